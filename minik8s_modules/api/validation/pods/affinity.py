"""Validation of where a pod wants to be: affinity, and constraints of an even spread.

Source: kubernetes ``pkg/apis/core/validation/validation.go`` (``validateAffinity``,
``validateTopologySpreadConstraints``).
"""

from __future__ import annotations

from typing import Any

from minik8s_modules.api import cause
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.validation import check
from minik8s_modules.api.validation.meta import label_selector

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_WEIGHTS = range(1, 101)


def _requirement(at: str, one: JsonObject) -> list[Cause]:
    operator, values = one.get("operator"), one.get("values") or []
    if operator in {"In", "NotIn"} and not values:
        return [cause.required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'")]
    if operator in {"Exists", "DoesNotExist"} and values:
        return [cause.forbidden(f"{at}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")]
    if operator in {"Gt", "Lt"} and len(values) != 1:
        detail = "must be specified single value when `operator` is 'Lt' or 'Gt'"
        return [cause.required(f"{at}.values", detail)]
    if operator not in _OPERATORS:
        return [cause.invalid(f"{at}.operator", operator, "not a valid selector operator")]
    return []


def _field_requirement(at: str, one: JsonObject) -> list[Cause]:
    causes = []
    if one.get("operator") not in {"In", "NotIn"}:
        causes.append(cause.invalid(f"{at}.operator", one.get("operator"), "not a valid selector operator"))
    elif len(one.get("values") or []) != 1:
        detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        causes.append(cause.required(f"{at}.values", detail))
    if one.get("key") != "metadata.name":
        causes.append(cause.invalid(f"{at}.key", one.get("key"), "not a valid field selector key"))
    return causes


_TOPOLOGY_KEY = check.mandatory(check.qualified_name, "can not be empty")
_WEIGHT = check.held(lambda weight: weight in _WEIGHTS, "must be in the range 1-100")
_EXPRESSION = check.fields(("", _requirement), ("key", check.qualified_name))
_NODE_TERM = check.fields(
    ("matchExpressions", check.each(_EXPRESSION)),
    ("matchFields", check.each(_field_requirement)),
)
_NODE_TERMS = check.mandatory(check.each(_NODE_TERM), "must have at least one node selector term")
_NODE_AFFINITY = check.fields(
    (REQUIRED, check.if_given(check.fields(("nodeSelectorTerms", _NODE_TERMS)))),
    (PREFERRED, check.each(check.fields(("weight", _WEIGHT), ("preference", _NODE_TERM)))),
)
_POD_TERM = check.fields(
    (("labelSelector", "namespaceSelector"), label_selector),
    ("namespaces", check.each(check.label)),
    ("topologyKey", _TOPOLOGY_KEY),
)
_POD_AFFINITY = check.fields(
    (REQUIRED, check.each(_POD_TERM)),
    (PREFERRED, check.each(check.fields(("weight", _WEIGHT), ("podAffinityTerm", _POD_TERM)))),
)


def _spread(field: str, constraints: list[JsonObject] | None) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[tuple[Any, Any]] = set()
    for index, one in enumerate(constraints or []):
        at, pair = f"{field}[{index}]", (one.get("topologyKey"), one.get("whenUnsatisfiable"))
        causes += _CONSTRAINT(at, one)
        if pair in seen:
            causes.append(cause.duplicate(f"{at}.{{topologyKey, whenUnsatisfiable}}", f"{{{pair[0]}, {pair[1]}}}"))
        seen.add(pair)
    return causes


def _min_domains(at: str, constraint: JsonObject) -> list[Cause]:
    action = constraint.get("whenUnsatisfiable")
    if constraint.get("minDomains") is None or action == "DoNotSchedule":
        return []
    detail = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
    return [cause.invalid(f"{at}.minDomains", constraint["minDomains"], detail)]


_POSITIVE = check.held(lambda value: isinstance(value, int) and value > 0, "must be greater than zero")
_CONSTRAINT = check.fields(
    ("maxSkew", _POSITIVE),
    ("minDomains", check.if_given(_POSITIVE)),
    ("topologyKey", _TOPOLOGY_KEY),
    ("whenUnsatisfiable", check.one_of("DoNotSchedule", "ScheduleAnyway")),
    ("", _min_domains),
    (("nodeAffinityPolicy", "nodeTaintsPolicy"), check.if_given(check.one_of("Honor", "Ignore"))),
    ("labelSelector", label_selector),
)
pod_placement = check.fields(
    ("affinity.nodeAffinity", _NODE_AFFINITY),
    (("affinity.podAffinity", "affinity.podAntiAffinity"), _POD_AFFINITY),
    ("topologySpreadConstraints", _spread),
)
"""What is wrong with where a pod's spec wants it to be."""
