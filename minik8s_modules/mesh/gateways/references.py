"""References into other namespaces: whether the namespace that is referred to has granted them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.network.gateway_api import GROUP
from minik8s_modules.api.objects import JsonObject


class Reference(NamedTuple):
    """From an object of Gateway API, of ``kind`` in ``space``, to one by group, kind, namespace and name."""

    kind: str
    space: str
    to_group: str
    to_kind: str
    to_space: str
    to_name: str


def permitted(reference: Reference, grants: Iterable[JsonObject]) -> bool:
    """Return whether a reference stays in its namespace, or a ReferenceGrant of the other one allows it."""
    if reference.to_space == reference.space:
        return True
    return any(
        objects.namespace(grant) == reference.to_space
        and any(_is_from(reference, each) for each in objects.spec(grant).get("from") or [])
        and any(_is_to(reference, each) for each in objects.spec(grant).get("to") or [])
        for grant in grants
    )


def _is_from(reference: Reference, source: JsonObject) -> bool:
    return (source.get("group"), source.get("kind"), source.get("namespace")) == (
        GROUP,
        reference.kind,
        reference.space,
    )


def _is_to(reference: Reference, target: JsonObject) -> bool:
    same = (target.get("group") or "", target.get("kind")) == (reference.to_group, reference.to_kind)
    return same and target.get("name") in {None, "", reference.to_name}
