"""Scheduling gates: a pod may be made with some; later they can only be taken away.

A gated pod may still be narrowed down to fewer nodes. Source: kubernetes pkg/apis/core/validation (schedulingGates).
"""

from __future__ import annotations

import copy

from minik8s_modules.api import cause
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.nodes.node_affinity import REQUIRED
from minik8s_modules.api.objects import JsonObject, dig
from minik8s_modules.api.syntax import qualified_name

_FIELD = "spec.schedulingGates"


def validate_gates(declared: JsonObject) -> list[Cause]:
    """Return what is wrong with the gates of a pod's spec."""
    gates = [str(one.get("name") or "") for one in declared.get("schedulingGates") or []]
    causes = [
        cause.invalid(f"{_FIELD}[{index}].name", name, why)
        for index, name in enumerate(gates)
        for why in qualified_name(name)
    ]
    causes += [cause.duplicate(f"{_FIELD}[{index}]", name) for index, name in enumerate(gates) if name in gates[:index]]
    if gates and declared.get("nodeName"):
        causes.append(cause.forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
    return causes


def changed_gates(after: JsonObject, before: JsonObject) -> list[Cause]:
    """Return the gates that a change of a spec adds."""
    known = {one.get("name") for one in before.get("schedulingGates") or []}
    added = [str(one.get("name")) for one in after.get("schedulingGates") or [] if one.get("name") not in known]
    return [
        cause.forbidden(_FIELD, f"only deletion is allowed, but found new scheduling gate '{name}'") for name in added
    ]


def with_gated_changes(after: JsonObject, before: JsonObject) -> JsonObject:
    """Return the new spec with the old values of what may change because of gates."""
    munged = copy.copy(after)
    if before.get("schedulingGates"):
        if _narrower(after.get("nodeSelector") or {}, before.get("nodeSelector") or {}):
            _restore(munged, before, "nodeSelector")
        if _required(before) is None and _without_required(after) == _without_required(before):
            _restore(munged, before, "affinity")
    _restore(munged, before, "schedulingGates")
    return munged


def _restore(munged: JsonObject, before: JsonObject, field: str) -> None:
    munged.pop(field, None)
    if field in before:
        munged[field] = before[field]


def _narrower(after: JsonObject, before: JsonObject) -> bool:
    return before.items() <= after.items()


def _required(declared: JsonObject) -> JsonObject | None:
    found: JsonObject | None = dig(declared, "affinity", "nodeAffinity", REQUIRED)
    return found


def _without_required(declared: JsonObject) -> JsonObject:
    """Return the affinity without required terms of nodes, and without what is empty then."""
    affinity: JsonObject = dict(declared.get("affinity") or {})
    nodes = {name: value for name, value in (affinity.pop("nodeAffinity", None) or {}).items() if name != REQUIRED}
    return {**affinity, **({"nodeAffinity": nodes} if nodes else {})}
