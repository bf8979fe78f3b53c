"""Validation of label selectors. Source: k8s.io/apimachinery ``pkg/apis/meta/v1/validation``."""

from __future__ import annotations

from minik8s_modules.api import field_errors, syntax
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject
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
            causes.append(field_errors.required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
    elif operator in {"Exists", "DoesNotExist"}:
        if values:
            told = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            causes.append(field_errors.forbidden(f"{at}.values", told))
    else:
        causes.append(field_errors.invalid(f"{at}.operator", operator or "", "not a valid selector operator"))
    causes += field_errors.all_invalid(f"{at}.key", key, syntax.qualified_name(key))
    for index, value in enumerate(values):
        causes += field_errors.all_invalid(f"{at}.values[{index}]", value, syntax.label_value(value))
    return causes
