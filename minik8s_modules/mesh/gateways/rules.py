"""The rules of an HTTPRoute: what of them cannot be done, and what their references resolve to. Pure."""

from __future__ import annotations

from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.network.gateway_api import duration_ms
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.mesh.gateways.backends import Backend, Backends
from minik8s_modules.mesh.gateways.filters import filters_fault
from minik8s_modules.mesh.gateways.listeners import Why
from minik8s_modules.mesh.gateways.matching import ALL, match_fault, text_fault


class Rule(NamedTuple):
    """A rule of a route, with what its references resolve to; None for one that leads nowhere."""

    declared: JsonObject
    backends: tuple[Backend | None, ...]
    mirrors: tuple[Backend | None, ...]


class Routed(NamedTuple):
    """A route, and its rules."""

    route: JsonObject
    rules: tuple[Rule, ...]


def unsupported(route: JsonObject) -> Why | None:
    """Return what of a route Envoys cannot be told.

    An Envoy refuses a whole answer for a single text of it: nothing that it would refuse may pass here.
    """
    if fault := text_fault(objects.spec(route).get("hostnames")):
        return "UnsupportedValue", f"hostnames: {fault}"
    for number, rule in enumerate(objects.spec(route).get("rules") or []):
        faults = [
            text_fault(rule),
            filters_fault(rule),
            *(match_fault(each) for each in rule.get("matches") or [ALL]),
            _time_fault(rule),
        ]
        faults += [f"{field} is not known here" for field in ("sessionPersistence", "retry") if rule.get(field)]
        if fault := next(filter(None, faults), ""):
            return "UnsupportedValue", f"rule {number + 1}: {fault}"
    return None


def _time_fault(rule: JsonObject) -> str:
    for each in (rule.get("timeouts") or {}).values():
        try:
            duration_ms(each)
        except ValueError:
            return f"{each} is not a duration"
    return ""


def rules_of(route: JsonObject, backends: Backends, parent: Key | None = None) -> tuple[tuple[Rule, ...], Why | None]:
    """Return a route's rules, and why the first reference of them that leads nowhere does not.

    Args:
        route: the HTTPRoute.
        backends: what its references may resolve to.
        parent: the Service whose requests it leads, which it may lead there without a grant.
    """
    wrong: list[Why] = []

    def resolved(ref: JsonObject) -> Backend | None:
        found = backends.resolve(ref, route, parent)
        if isinstance(found, Backend):
            return found
        wrong.append(found)
        return None

    rules = tuple(
        Rule(
            rule,
            tuple(resolved(ref) for ref in rule.get("backendRefs") or []),
            tuple(
                resolved(each["requestMirror"]["backendRef"])
                for each in rule.get("filters") or []
                if each.get("requestMirror")
            ),
        )
        for rule in objects.spec(route).get("rules") or []
    )
    return rules, next(iter(wrong), None)
