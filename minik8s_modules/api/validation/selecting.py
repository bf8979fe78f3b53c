"""Validation of label selectors. Source: k8s.io/apimachinery ``pkg/apis/meta/v1/validation``."""

from __future__ import annotations

from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.validation import common
from minik8s_modules.api.validation.meta import validate_labels


def label_selector(field: str, selector: JsonObject) -> list[Cause]:
    """Return what is wrong with a metav1.LabelSelector."""
    causes = validate_labels(f"{field}.matchLabels", selector.get("matchLabels") or {})
    for index, each in enumerate(selector.get("matchExpressions") or []):
        causes += _expression(f"{field}.matchExpressions[{index}]", each)
    return causes


def _expression(at: str, expression: JsonObject) -> list[Cause]:
    operator, values, key = expression.get("operator"), expression.get("values") or [], expression.get("key") or ""
    causes = []
    if operator in {"In", "NotIn"}:
        if not values:
            causes.append(common.required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
    elif operator in {"Exists", "DoesNotExist"}:
        if values:
            told = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            causes.append(common.forbidden(f"{at}.values", told))
    else:
        causes.append(common.invalid(f"{at}.operator", operator or "", "not a valid selector operator"))
    causes += common.all_invalid(f"{at}.key", key, common.qualified_name(key))
    for index, value in enumerate(values):
        causes += common.all_invalid(f"{at}.values[{index}]", value, common.label_value(value))
    return causes
