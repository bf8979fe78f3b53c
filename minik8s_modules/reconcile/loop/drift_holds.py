"""Which keys of a node's document are left as somebody else made them, by the policies of Pods and Node. Pure.

A key is only named here. Whether it differs, and whether that is drift and no pending work, its module finds on the
node (core/section.py), which knows it after a restart of the reconciler, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from minik8s_modules.api.nodes.drift_policies import HELD, OF_PODS, of_node, of_pod
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.reconcile.loop.section_changes import Request
from minik8s_modules.reconcile.values.values import Entries


class Hold(NamedTuple):
    """The keys of a section that are not healed; those ``ignored`` are not told of either."""

    keys: frozenset[str] = frozenset()
    ignored: frozenset[str] = frozenset()


NO_HOLD = Hold()
Holds = Mapping[str, Hold]
"""By section; one that is missing is healed."""


def holds(
    node: JsonObject, pod: Callable[[str], JsonObject | None], document: Mapping[str, Entries], *, healing: bool = False
) -> dict[str, Hold]:
    """Return what to hold of ``document``; ``healing``: what is only reported is put right now."""
    found = {}
    policies = of_node(node)
    for section in HELD:
        own = {key: (_of_key(section, key, pod) or policies.get(section, "heal")) for key in document.get(section, ())}
        ignored = frozenset(key for key, policy in own.items() if policy == "ignore")
        reported = frozenset(key for key, policy in own.items() if policy == "report" and not healing)
        if ignored or reported:
            found[section] = Hold(ignored | reported, ignored)
    return found


def _of_key(section: str, key: str, pod: Callable[[str], JsonObject | None]) -> str | None:
    found = pod(key.partition("/")[0]) if section in OF_PODS else None
    return of_pod(found) if found is not None else None


def holding(request: Request, hold: Hold) -> Request:
    """Return the request with what it is to leave as it is."""
    looked = hold.keys & (request.entries.keys() if request.keys is None else request.keys)
    if not looked:
        return request
    return request._replace(options={**request.options, "hold": sorted(looked)}, ignored=hold.ignored & looked)
