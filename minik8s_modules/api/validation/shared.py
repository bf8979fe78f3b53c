"""Rules that several kinds share: label selectors, pod templates, numbers, percentages."""

from __future__ import annotations

import re
from typing import Any

from minik8s_modules.api import field_errors, selectors
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject, labels
from minik8s_modules.api.validation import selecting
from minik8s_modules.api.validation.meta import validate_labels
from minik8s_modules.api.validation.pods import validate_pod

_PERCENT = re.compile("[0-9]+%")
_PERCENT_MESSAGE = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for "
    "validation is '[0-9]+%')"
)


def below(field: str, causes: list[Cause]) -> list[Cause]:
    """Return the causes as of an object that stands at ``field``."""
    return [cause._replace(field=f"{field}.{cause.field}") for cause in causes]


def not_negative(at: str, declared: JsonObject, *fields: str) -> list[Cause]:
    """Return a cause for each of the fields that is below 0."""
    return [
        field_errors.invalid(f"{at}.{field}", declared[field], field_errors.NOT_NEGATIVE)
        for field in fields
        if (declared.get(field) or 0) < 0
    ]


def at_most(field: str, value: int | None, most: int) -> list[Cause]:
    """Return a cause if ``value`` is above ``most``."""
    if value is None or value <= most:
        return []
    return [field_errors.invalid(field, value, f"must be less than or equal to {most}")]


def one_of(field: str, value: str | None, allowed: tuple[str, ...]) -> list[Cause]:
    """Return what is wrong with a value that must be one of a few; absent is none of them."""
    if not value:
        return [field_errors.required(field)]
    return [] if value in allowed else [field_errors.not_supported(field, value, allowed)]


label_selector = selecting.label_selector


def is_empty_selector(selector: JsonObject | None) -> bool:
    """Return whether a selector asks for nothing."""
    return not ((selector or {}).get("matchLabels") or (selector or {}).get("matchExpressions"))


def required_selector(declared: JsonObject, owner: str) -> list[Cause]:
    """Return what is wrong with ``spec.selector``, which must ask for something."""
    selector = declared.get("selector")
    if selector is None:
        return [field_errors.required("spec.selector")]
    causes = label_selector("spec.selector", selector)
    if is_empty_selector(selector):
        causes.append(field_errors.invalid("spec.selector", selector, f"empty selector is invalid for {owner}"))
    return causes


def pod_template(field: str, template: JsonObject) -> list[Cause]:
    """Return what is wrong with a pod template."""
    causes = validate_labels(f"{field}.metadata.labels", labels(template))
    return causes + below(field, validate_pod({"spec": {}, **template}))


def matching_template(declared: JsonObject) -> list[Cause]:
    """Return what is wrong with ``spec.template``, whose labels ``spec.selector`` must select."""
    template, selector = declared.get("template") or {}, declared.get("selector")
    causes = pod_template("spec.template", template)
    if selector is not None and not is_empty_selector(selector) and not label_selector("", selector):
        found = selectors.from_label_selector(selector)
        if not found.matches(labels(template)):
            told = "`selector` does not match template `labels`"
            causes.append(field_errors.invalid("spec.template.metadata.labels", labels(template), told))
    if (template.get("spec") or {}).get("restartPolicy") != "Always":
        policy = (template.get("spec") or {}).get("restartPolicy")
        causes.append(field_errors.not_supported("spec.template.spec.restartPolicy", policy, ["Always"]))
    return causes


def int_or_percent(field: str, value: Any, *, at_most_all: bool = False) -> list[Cause]:
    """Return what is wrong with a count or percentage."""
    if isinstance(value, str):
        if not _PERCENT.fullmatch(value):
            return [field_errors.invalid(field, value, _PERCENT_MESSAGE)]
        too_much = at_most_all and int(value[:-1]) > 100  # noqa: PLR2004 - percent
        return [field_errors.invalid(field, value, "must not be greater than 100%")] if too_much else []
    return (
        [field_errors.invalid(field, value, field_errors.NOT_NEGATIVE)] if isinstance(value, int) and value < 0 else []
    )


def is_zero(value: Any) -> bool:
    """Return whether a count or percentage is nothing."""
    return value in {0, "0%"} or (isinstance(value, str) and value.strip("0") == "%")
