"""Validation of label selectors. Source: k8s.io/apimachinery ``pkg/apis/meta/v1/validation``."""

from __future__ import annotations

from minik8s_modules.api import cause
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.validation import check
from minik8s_modules.api.validation.meta import validate_labels


def _operator(at: str, expression: JsonObject) -> list[Cause]:
    operator, values = expression.get("operator"), expression.get("values")
    if operator in {"In", "NotIn"}:
        detail = "must be specified when `operator` is 'In' or 'NotIn'"
        return [] if values else [cause.required(f"{at}.values", detail)]
    if operator in {"Exists", "DoesNotExist"}:
        detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        return [cause.forbidden(f"{at}.values", detail)] if values else []
    return [cause.invalid(f"{at}.operator", operator or "", "not a valid selector operator")]


_EXPRESSION = check.fields(("", _operator), ("key", check.qualified_name), ("values", check.each(check.label_value)))
label_selector = check.fields(("matchLabels", validate_labels), ("matchExpressions", check.each(_EXPRESSION)))
"""The rule of a metav1.LabelSelector."""
