"""Counted devices in a Node: how many of each there are, and which are missing. Pure.

The setting says which paths count (``minik8s_devices``), the machine which of them are devices. The annotation
``minik8s.io/devices`` names what is counted, so that a resource whose setting goes leaves the Node, too, and what
people have put there by hand stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from minik8s_modules.api import objects
from minik8s_modules.api.nodes.counted_devices import COUNTED, MISSING
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.module_utils.minik8s.pods.devices import Device


def counted(node: JsonObject) -> set[str]:
    """Return the resources of a Node that are its reconciler's to say."""
    return {name for name in objects.annotations(node).get(COUNTED, "").split(",") if name}


def amounts(declared: Iterable[Device], present: Iterable[str]) -> dict[str, str]:
    """Return how many a node has of each, by resource."""
    there = frozenset(present)
    return {one.resource: str(one.left(there)) for one in declared}


def conditions(
    known: list[JsonObject], declared: Sequence[Device], present: Iterable[str], now: str
) -> list[JsonObject]:
    """Return a node's conditions with which devices are missing; without declared ones it says nothing."""
    others = [one for one in known if one.get("type") != MISSING]
    if not declared:
        return known if len(others) == len(known) else others
    there = frozenset(present)
    gone = [f"{one.resource}: {path}" for one in declared for path in (*one.paths, *one.beside) if path not in there]
    before = next((one for one in known if one.get("type") == MISSING), {})
    condition = {
        "type": MISSING,
        "status": "True" if gone else "False",
        "reason": "NoSuchDevice" if gone else "DevicesThere",
        "message": f"no devices on this node: {', '.join(gone)}"
        if gone
        else "every device of minik8s_devices is there",
    }
    if all(before.get(name) == value for name, value in condition.items()):
        return known
    kept = before.get("lastTransitionTime") if before.get("status") == condition["status"] else None
    return [{**condition, "lastTransitionTime": kept or now}, *others]
