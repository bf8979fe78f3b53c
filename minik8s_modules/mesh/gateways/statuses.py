"""Conditions of GatewayClasses, Gateways and HTTPRoutes, in upstream's words (gateway-api v1.3, apis/v1). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import islice, zip_longest

from minik8s_modules.api import objects
from minik8s_modules.api.network.gateway_api import CONTROLLER
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import rfc3339
from minik8s_modules.mesh.gateways.attaching import Parent
from minik8s_modules.mesh.gateways.deciding import GatewayVerdict, RouteVerdict
from minik8s_modules.mesh.gateways.listeners import Listener, Why

MOST_ADDRESSES = 16
"""In a Gateway's status, as the definition says."""
_Condition = tuple[str, bool, str, str]
"""Type, whether it is True, reason, message."""


def class_status(obj: JsonObject, now: datetime) -> JsonObject:
    """Return the status of a GatewayClass of ours."""
    why = None
    if objects.spec(obj).get("parametersRef"):
        why = ("InvalidParameters", "parametersRef is not known here")
    return _with(obj, objects.status(obj), [_unless("Accepted", why)], now)


def gateway_status(obj: JsonObject, verdict: GatewayVerdict, now: datetime) -> JsonObject:
    """Return the status of a Gateway."""
    old = objects.status(obj)
    served = [each for each in verdict.listeners if each.is_served]
    invalid = [each.name for each in verdict.listeners if not each.is_served]
    accepted = _unless("Accepted", verdict.refused)
    if verdict.refused is None and invalid:
        message = f"listeners that are not served: {', '.join(invalid)}"
        accepted = ("Accepted", bool(served), "ListenersNotValid", message)
    unreachable = verdict.unreachable or (None if served else ("Invalid", "no listener is served"))
    status = _with(obj, old, [accepted, _unless("Programmed", unreachable, verdict.remark)], now)
    old_listeners = {each["name"]: each for each in old.get("listeners") or []}
    status["listeners"] = [
        _listener(obj, each, verdict, old_listeners.get(each.name) or {}, now) for each in verdict.listeners
    ]
    status["addresses"] = [{"type": "IPAddress", "value": each} for each in _as_many_as_fit(verdict.addresses)]
    return status


def _as_many_as_fit(addresses: Sequence[str]) -> list[str]:
    """Return the addresses that there is room for, in their order: of both families as many, as far as they have."""
    families = ([each for each in addresses if (":" in each) == is_ipv6] for is_ipv6 in (False, True))
    in_turns = (each for turn in zip_longest(*families) for each in turn if each is not None)
    chosen = set(islice(in_turns, MOST_ADDRESSES))
    return [each for each in addresses if each in chosen]


def _listener(obj: JsonObject, one: Listener, verdict: GatewayVerdict, old: JsonObject, now: datetime) -> JsonObject:
    conflict = ("Conflicted", True, *one.conflict) if one.conflict else ("Conflicted", False, "NoConflicts", "")
    unserved = None if one.is_served else ("Invalid", "see the other conditions")
    pending = ("Pending", verdict.unreachable[1]) if verdict.unreachable else None
    conditions: list[_Condition] = [
        _unless("Accepted", one.refused or one.conflict),
        _unless("Programmed", unserved or pending),
        _unless("ResolvedRefs", one.unresolved),
        conflict,
    ]
    return {
        "name": one.name,
        "attachedRoutes": verdict.attached.get(one.name, 0),
        "supportedKinds": [*one.kinds],
        "conditions": _conditions(obj, old.get("conditions") or [], conditions, now),
    }


def route_status(obj: JsonObject, verdict: RouteVerdict | None, now: datetime) -> JsonObject:
    """Return the status of an HTTPRoute: the parents that others keep as they are, and ours."""
    old = objects.status(obj).get("parents") or []
    others = [each for each in old if each.get("controllerName") != CONTROLLER]
    ours = [each for each in old if each.get("controllerName") == CONTROLLER]
    own = [_parent(obj, verdict, each, ours, now) for each in verdict.parents] if verdict is not None else []
    return {**objects.status(obj), "parents": [*others, *own]}


def _parent(
    obj: JsonObject, verdict: RouteVerdict, parent: Parent, old: Iterable[JsonObject], now: datetime
) -> JsonObject:
    before = next((each for each in old if each.get("parentRef") == parent.ref), {})
    conditions = [
        _unless("Accepted", verdict.unsupported or parent.refused, parent.remark),
        _unless("ResolvedRefs", parent.unresolved),
    ]
    return {
        "parentRef": parent.ref,
        "controllerName": CONTROLLER,
        "conditions": _conditions(obj, before.get("conditions") or [], conditions, now),
    }


def _unless(kind: str, why: Why | None, remark: str = "") -> _Condition:
    return (kind, False, *why) if why else (kind, True, kind, remark)


def _with(obj: JsonObject, status: JsonObject, conditions: Sequence[_Condition], now: datetime) -> JsonObject:
    return {**status, "conditions": _conditions(obj, status.get("conditions") or [], conditions, now)}


def _conditions(
    obj: JsonObject, old: Iterable[Mapping[str, str]], conditions: Sequence[_Condition], now: datetime
) -> list[JsonObject]:
    """Return conditions of the object's present generation, those of other types kept."""
    before, generation = [*old], objects.metadata(obj).get("generation") or 0
    told = ((kind, "True" if holds else "False", (why, text)) for kind, holds, why, text in conditions)
    published = [
        {**objects.condition_since(*each, before, rfc3339(now)), "observedGeneration": generation} for each in told
    ]
    ours = {each["type"] for each in published}
    return [*published, *(dict(each) for each in before if each.get("type") not in ours)]
