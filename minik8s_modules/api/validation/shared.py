"""Rules that several kinds share: pod templates and the selectors that match them, counts and percentages."""

from __future__ import annotations

import re
from typing import Any

from minik8s_modules.api import cause, selectors
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject, labels
from minik8s_modules.api.validation import check
from minik8s_modules.api.validation.meta import label_selector, validate_labels
from minik8s_modules.api.validation.pods.pods import validate_pod

_PERCENT = re.compile("[0-9]+%")
_PERCENT_MESSAGE = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for "
    "validation is '[0-9]+%')"
)


def below(field: str, causes: list[Cause]) -> list[Cause]:
    """Return the causes as of an object that stands at ``field``."""
    return [Cause(reason, message, f"{field}.{at}") for reason, message, at in causes]


def is_empty_selector(selector: JsonObject | None) -> bool:
    """Return whether a selector asks for nothing."""
    return not ((selector or {}).get("matchLabels") or (selector or {}).get("matchExpressions"))


def required_selector(owner: str) -> check.Rule:
    """Return the rule of a selector that must ask for something."""

    def rule(at: str, selector: JsonObject | None) -> list[Cause]:
        if selector is None:
            return [cause.required(at)]
        causes = label_selector(at, selector)
        if is_empty_selector(selector):
            causes.append(cause.invalid(at, selector, f"empty selector is invalid for {owner}"))
        return causes

    return rule


def pod_template(at: str, template: JsonObject | None) -> list[Cause]:
    """Return what is wrong with a pod template."""
    causes = validate_labels(f"{at}.metadata.labels", labels(template or {}))
    return causes + below(at, validate_pod({"spec": {}, **(template or {})}))


def matching_template(at: str, declared: JsonObject) -> list[Cause]:
    """Return what is wrong with the template of a ``spec``, whose labels its selector must select."""
    template, selector = declared.get("template") or {}, declared.get("selector")
    causes = pod_template(f"{at}.template", template)
    if selector is not None and not is_empty_selector(selector) and not label_selector("", selector):
        found = selectors.from_label_selector(selector)
        if not found.matches(labels(template)):
            detail = "`selector` does not match template `labels`"
            causes.append(cause.invalid(f"{at}.template.metadata.labels", labels(template), detail))
    return causes + _ALWAYS(f"{at}.template", template)


_ALWAYS = check.fields(("spec.restartPolicy", check.one_of("Always")))


def int_or_percent(at: str, value: Any) -> list[Cause]:
    """Return what is wrong with a count or percentage."""
    if isinstance(value, str) and not _PERCENT.fullmatch(value):
        return [cause.invalid(at, value, _PERCENT_MESSAGE)]
    negative = isinstance(value, int) and value < 0
    return [cause.invalid(at, value, cause.NOT_NEGATIVE)] if negative else []


def int_or_percent_of_all(at: str, value: Any) -> list[Cause]:
    """Return what is wrong with a count, or a percentage up to 100."""
    causes = int_or_percent(at, value)
    if not causes and isinstance(value, str) and int(value[:-1]) > 100:  # noqa: PLR2004 - percent
        return [cause.invalid(at, value, "must not be greater than 100%")]
    return causes


def is_zero(value: Any) -> bool:
    """Return whether a count or percentage is nothing."""
    return value in {0, "0%"} or (isinstance(value, str) and value.strip("0") == "%")
