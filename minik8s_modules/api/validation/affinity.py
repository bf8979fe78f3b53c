"""Validation of where a pod wants to be: affinity, and constraints of an even spread.

Source: kubernetes ``pkg/apis/core/validation/validation.go`` (``validateAffinity``,
``validateTopologySpreadConstraints``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from minik8s_modules.api import cause, syntax
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.validation.selecting import label_selector

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_ACTIONS = ("DoNotSchedule", "ScheduleAnyway")
_POLICIES = ("Honor", "Ignore")
_WEIGHTS = range(1, 101)


def pod_placement(declared: JsonObject) -> list[Cause]:
    """Return what is wrong with ``affinity`` and ``topologySpreadConstraints`` of a pod's spec."""
    affinity = declared.get("affinity") or {}
    causes = _node_affinity("spec.affinity.nodeAffinity", affinity.get("nodeAffinity") or {})
    for kind in ("podAffinity", "podAntiAffinity"):
        for at, term in _pod_terms(f"spec.affinity.{kind}", affinity.get(kind) or {}, causes):
            causes += _pod_term(at, term)
    return causes + _spread("spec.topologySpreadConstraints", declared.get("topologySpreadConstraints") or [])


def _node_affinity(field: str, affinity: JsonObject) -> list[Cause]:
    causes: list[Cause] = []
    demanded = affinity.get(REQUIRED)
    if demanded is not None and not demanded.get("nodeSelectorTerms"):
        at = f"{field}.{REQUIRED}.nodeSelectorTerms"
        causes.append(cause.required(at, "must have at least one node selector term"))
    for index, term in enumerate((demanded or {}).get("nodeSelectorTerms") or []):
        causes += _node_term(f"{field}.{REQUIRED}.nodeSelectorTerms[{index}]", term)
    for index, one in enumerate(affinity.get(PREFERRED) or []):
        causes += _weight(f"{field}.{PREFERRED}[{index}].weight", one.get("weight"))
        causes += _node_term(f"{field}.{PREFERRED}[{index}].preference", one.get("preference") or {})
    return causes


def _weight(field: str, weight: Any) -> list[Cause]:
    return [] if weight in _WEIGHTS else [cause.invalid(field, weight, "must be in the range 1-100")]


def _node_term(field: str, term: JsonObject) -> list[Cause]:
    causes = []
    for index, one in enumerate(term.get("matchExpressions") or []):
        at = f"{field}.matchExpressions[{index}]"
        causes += _requirement(at, one)
        causes += cause.all_invalid(f"{at}.key", one.get("key") or "", syntax.qualified_name(one.get("key") or ""))
    for index, one in enumerate(term.get("matchFields") or []):
        causes += _field_requirement(f"{field}.matchFields[{index}]", one)
    return causes


def _requirement(at: str, one: JsonObject) -> list[Cause]:
    operator, values = one.get("operator"), one.get("values") or []
    if operator in {"In", "NotIn"} and not values:
        return [cause.required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'")]
    if operator in {"Exists", "DoesNotExist"} and values:
        return [cause.forbidden(f"{at}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")]
    if operator in {"Gt", "Lt"} and len(values) != 1:
        told = "must be specified single value when `operator` is 'Lt' or 'Gt'"
        return [cause.required(f"{at}.values", told)]
    if operator not in _OPERATORS:
        return [cause.invalid(f"{at}.operator", operator, "not a valid selector operator")]
    return []


def _field_requirement(at: str, one: JsonObject) -> list[Cause]:
    causes = []
    if one.get("operator") not in {"In", "NotIn"}:
        causes.append(cause.invalid(f"{at}.operator", one.get("operator"), "not a valid selector operator"))
    elif len(one.get("values") or []) != 1:
        told = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        causes.append(cause.required(f"{at}.values", told))
    if one.get("key") != "metadata.name":
        causes.append(cause.invalid(f"{at}.key", one.get("key"), "not a valid field selector key"))
    return causes


def _pod_terms(field: str, affinity: JsonObject, causes: list[Cause]) -> Iterator[tuple[str, JsonObject]]:
    """Yield the terms with their fields; what is wrong with weights goes to ``causes``."""
    for index, term in enumerate(affinity.get(REQUIRED) or []):
        yield f"{field}.{REQUIRED}[{index}]", term
    for index, one in enumerate(affinity.get(PREFERRED) or []):
        at = f"{field}.{PREFERRED}[{index}]"
        causes += _weight(f"{at}.weight", one.get("weight"))
        yield f"{at}.podAffinityTerm", one.get("podAffinityTerm") or {}


def _pod_term(at: str, term: JsonObject) -> list[Cause]:
    causes = []
    for name in ("labelSelector", "namespaceSelector"):
        causes += label_selector(f"{at}.{name}", term.get(name) or {})
    for index, name in enumerate(term.get("namespaces") or []):
        causes += cause.all_invalid(f"{at}.namespaces[{index}]", name, syntax.dns1123_label(name))
    return causes + _topology_key(f"{at}.topologyKey", term.get("topologyKey") or "")


def _topology_key(field: str, key: str) -> list[Cause]:
    if not key:
        return [cause.required(field, "can not be empty")]
    return cause.all_invalid(field, key, syntax.qualified_name(key))


def _spread(field: str, constraints: list[JsonObject]) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[tuple[Any, Any]] = set()
    for index, one in enumerate(constraints):
        at, pair = f"{field}[{index}]", (one.get("topologyKey"), one.get("whenUnsatisfiable"))
        causes += _constraint(at, one)
        if pair in seen:
            causes.append(cause.duplicate(f"{at}.{{topologyKey, whenUnsatisfiable}}", f"{{{pair[0]}, {pair[1]}}}"))
        seen.add(pair)
    return causes


def _constraint(at: str, one: JsonObject) -> list[Cause]:
    causes, action = [], one.get("whenUnsatisfiable")
    for name in ("maxSkew", "minDomains"):
        value = one.get(name)
        if (name == "maxSkew" or value is not None) and not (isinstance(value, int) and value > 0):
            causes.append(cause.invalid(f"{at}.{name}", value, "must be greater than zero"))
    causes += _topology_key(f"{at}.topologyKey", one.get("topologyKey") or "")
    if action not in _ACTIONS:
        causes.append(cause.not_supported(f"{at}.whenUnsatisfiable", action, _ACTIONS))
    if one.get("minDomains") is not None and action != "DoNotSchedule":
        told = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
        causes.append(cause.invalid(f"{at}.minDomains", one["minDomains"], told))
    for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if one.get(name) is not None and one[name] not in _POLICIES:
            causes.append(cause.not_supported(f"{at}.{name}", one[name], _POLICIES))
    return causes + label_selector(f"{at}.labelSelector", one.get("labelSelector") or {})
