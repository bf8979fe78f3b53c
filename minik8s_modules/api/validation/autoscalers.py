"""Validation of ``autoscaling`` HorizontalPodAutoscalers.

Source: kubernetes 1.32 ``pkg/apis/autoscaling/validation``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minik8s_modules.api import cause, quantities, syntax
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.validation import check
from minik8s_modules.api.validation.check import Rule

_LONGEST_PERIOD_S, _LONGEST_WINDOW_S = 1800, 3600
_PERCENT, _EACH, _ALL = "averageUtilization", "averageValue", "value"
_EITHER_OF_RESOURCE = "must set either a target raw value or a target utilization"


def _segment(required: str = "") -> Rule:
    return check.mandatory(check.syntax_of(syntax.path_segment), required)


_REFERENCE = check.fields((("kind", "name"), _segment()))


def _replicas(at: str, declared: JsonObject) -> list[Cause]:
    lowest, highest = declared.get("minReplicas"), declared.get("maxReplicas") or 0
    causes = []
    if highest < 1:
        causes.append(cause.invalid(f"{at}.maxReplicas", highest, "must be greater than 0"))
    if lowest is not None and highest < lowest:
        detail = "must be greater than or equal to `minReplicas`"
        causes.append(cause.invalid(f"{at}.maxReplicas", highest, detail))
    return causes


# --- metrics --------------------------------------------------------------------------------------


def _target_type(at: str, kind: str | None) -> list[Cause]:
    causes = [] if kind else [cause.required(at, "must specify a metric target type")]
    if kind not in {"Utilization", "Value", "AverageValue"}:
        causes.append(cause.invalid(at, kind or "", "must be either Utilization, Value, or AverageValue"))
    return causes


def _is_positive(quantity: str | float) -> bool:
    return quantities.parse(quantity) > 0


_TARGET = check.fields(
    ("type", _target_type),
    ((_ALL, _EACH), check.if_given(check.held(_is_positive, "must be positive"))),
    (_PERCENT, check.at_least(1, "must be greater than 0")),
)


def _one_of(field: str, other: str, required: str, both: str = "") -> Rule:
    """Return the rule of a target that needs ``field`` or ``other``; with ``both`` not together."""

    def rule(at: str, target: JsonObject | None) -> list[Cause]:
        given = [(target or {}).get(each) is not None for each in (field, other)]
        if not any(given):
            return [cause.required(f"{at}.{field}", required)]
        return [cause.forbidden(f"{at}.{other}", both)] if both and all(given) else []

    return check.every(_TARGET, rule)


def _average(at: str, target: JsonObject | None) -> list[Cause]:
    given = (target or {}).get(_EACH) is not None
    return [] if given else [cause.required(f"{at}.{_EACH}", "must specify a positive target averageValue")]


_NAME = ("metric.name", _segment("must specify a metric name"))
_RESOURCE_TARGET = _one_of(
    _PERCENT, _EACH, _EITHER_OF_RESOURCE, "may not set both a target raw value and a target utilization"
)
_RESOURCE_NAME = "must specify a resource name"
# in the order in which kube-apiserver looks for them
_SOURCES: Mapping[str, Rule] = {
    "object": check.fields(
        ("describedObject", _REFERENCE),
        _NAME,
        ("target", _one_of(_EACH, _ALL, "must set either a target value or averageValue")),
    ),
    "external": check.fields(
        _NAME,
        ("target", _one_of(
            _EACH, _ALL, "must set either a target value for metric or a per-pod target",
            "may not set both a target value for metric and a per-pod target",
        )),
    ),
    "pods": check.fields(_NAME, ("target", check.every(_TARGET, _average))),
    "resource": check.fields(("name", check.mandatory(detail=_RESOURCE_NAME)), ("target", _RESOURCE_TARGET)),
    "containerResource": check.fields(
        ("name", check.mandatory(check.qualified_name, _RESOURCE_NAME)),
        ("container", check.mandatory(check.label, "must specify a container")),
        ("target", _RESOURCE_TARGET),
    ),
}  # fmt: skip
_TYPES = {f"{field[0].upper()}{field[1:]}": field for field in _SOURCES}


def _metric(at: str, metric: JsonObject) -> list[Cause]:
    kind = metric.get("type") or ""
    causes = [] if kind else [cause.required(f"{at}.type", "must specify a metric source type")]
    if kind not in _TYPES:
        causes.append(cause.not_supported(f"{at}.type", kind, _TYPES))
    given = [field for field in _SOURCES if metric.get(field) is not None]
    if given:
        causes += _SOURCES[given[0]](f"{at}.{given[0]}", metric[given[0]])
    expected = _TYPES.get(kind, "")
    if expected and expected not in given:
        causes.append(cause.required(f"{at}.{expected}", "must populate information for the given metric source"))
    if len(given) != 1:
        alone = "must populate the given metric source only"
        causes += [cause.forbidden(f"{at}.{field}", alone) for field in given if field != expected]
    return causes


def _to_zero(at: str, declared: JsonObject) -> list[Cause]:
    types = {metric.get("type") for metric in declared.get("metrics") or []}
    if declared.get("minReplicas") != 0 or types & {"Object", "External"}:
        return []
    detail = "must specify at least one Object or External metric to support scaling to zero replicas"
    return [cause.forbidden(f"{at}.metrics", detail)]


# --- behavior -------------------------------------------------------------------------------------


def _positive(at: str, value: Any) -> list[Cause]:
    return [] if (value or 0) > 0 else [cause.invalid(at, value or 0, "must be greater than zero")]


_POLICY = check.fields(
    ("type", check.one_of("Percent", "Pods")),
    ("value", _positive),
    ("periodSeconds", check.every(_positive, check.at_most(_LONGEST_PERIOD_S))),
)


_RULES = check.if_given(
    check.fields(
        (
            "stabilizationWindowSeconds",
            check.every(check.at_least(0, "must be greater than or equal to zero"), check.at_most(_LONGEST_WINDOW_S)),
        ),
        ("selectPolicy", check.if_given(check.one_of("Disabled", "Max", "Min"))),
        # an empty list has been filled with the defaults by now
        ("policies", check.each(_POLICY)),
    )
)

validate_autoscaler = check.of_spec(
    ("minReplicas", check.at_least(1)),
    ("", _replicas),
    ("scaleTargetRef", _REFERENCE),
    ("metrics", check.each(_metric)),
    ("", _to_zero),
    (("behavior.scaleUp", "behavior.scaleDown"), _RULES),
)
