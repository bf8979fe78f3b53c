"""One node as the loop knows it at one moment: what a plan (plan.py) starts from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import NamedTuple

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.reconcile.loop.section_changes import Confirmed
from minik8s_modules.reconcile.pods.observed import ObservedPod
from minik8s_modules.reconcile.pods.service_links import Links, no_links
from minik8s_modules.reconcile.values.values import NOTHING_NAMED, Entries, Named, PodDecision, Tokens


class Basis(NamedTuple):
    """One node as the loop knows it."""

    node: JsonObject
    pods: tuple[JsonObject, ...]
    decisions: Mapping[str, PodDecision]
    observed: Mapping[str, ObservedPod]
    confirmed: Mapping[str, Confirmed | None]
    images: frozenset[str]
    busy: bool
    """Whether an item is under way: what the node will have confirmed after it is not known yet."""
    services: Entries = MappingProxyType({})
    """The section ``services``."""
    policies: Entries = MappingProxyType({})
    """The section ``policies``."""
    named: Named = NOTHING_NAMED
    """Names and paths."""
    tokens: Mapping[str, Tokens] = {}
    """Tokens by the UID of their pod."""
    links: Links = no_links
    unenforced: Callable[[JsonObject], str] = lambda _: ""
    realized: Mapping[str, Entries] = {}
    """What the node has had as declared (drifts.py), by section."""
    held: Mapping[str, AbstractSet[str]] = {}
    """The keys of each section that are known to be left as somebody else made them."""
    errors: Mapping[str, JsonObject] = {}
    """Why ``<section>/<key>`` is not realized."""
