"""Validation of webhook configurations.

Source: kubernetes ``pkg/apis/admissionregistration/validation``, apiserver ``pkg/util/webhook/validation.go``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from minik8s_modules.api import cause, syntax
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject, spec
from minik8s_modules.api.validation import check
from minik8s_modules.api.validation.extensions.expressions import match_conditions
from minik8s_modules.api.validation.meta import label_selector

REVIEW_VERSIONS = ("v1", "v1beta1")
_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_FORM = "; desired format: https://host[/path]"
_SEGMENTS = 3


def _name(at: str, value: Any) -> list[Cause]:
    if not value:
        return [cause.required(at)]
    if problems := syntax.dns1123_subdomain(value):
        return [cause.invalid(at, value, ",".join(problems))]
    if value.count(".") + 1 < _SEGMENTS:
        return [cause.invalid(at, value, "should be a domain with at least three segments separated by dots")]
    return []


# --- rules ----------------------------------------------------------------------------------------


def _alone(what: str) -> check.Rule:
    """Return the rule of a list that is not empty, and where ``*`` stands alone; ``what``: the others that it names."""

    def found(at: str, values: Any) -> list[Cause]:
        if not values:
            return [cause.required(at)]
        detail = f"if '*' is present, must not specify other {what}"
        return [cause.invalid(at, values, detail)] if len(values) > 1 and "*" in values else []

    return found


def _resources(at: str, values: Any) -> list[Cause]:
    if not values:
        return [cause.required(at)]
    causes: list[Cause] = []
    whole: set[str] = set()
    everywhere: set[str] = set()
    for index, value in enumerate(values):
        here = f"{at}[{index}]"
        resource, slash, subresource = value.partition("/")
        if not value:
            causes.append(cause.required(here))
        if not slash:
            continue
        for known, part, shown in ((whole, resource, f"{resource}/*"), (everywhere, subresource, f"*/{subresource}")):
            if part in known:
                causes.append(cause.invalid(here, value, f"if '{shown}' is present, must not specify {value}"))
        whole |= {resource} if subresource == "*" else set()
        everywhere |= {subresource} if resource == "*" else set()
    return causes + _alone_resources(at, values)


def _alone_resources(at: str, values: list[str]) -> list[Cause]:
    causes, plain = [], [value for value in values if "/" not in value]
    if len(values) > 1 and "*/*" in values:
        causes.append(cause.invalid(at, values, "if '*/*' is present, must not specify other resources"))
    if "*" in plain and plain[-1] != "*":
        text = "if '*' is present, must not specify other resources without subresources"
        causes.append(cause.invalid(at, values, text))
    return causes


def _operations(at: str, values: Any) -> list[Cause]:
    one = check.one_of(*_OPERATIONS)
    return [c for index, value in enumerate(values or ()) for c in one(f"{at}[{index}]", value)]


RULE = check.fields(
    ("operations", check.every(_alone("operations"), _operations)),
    ("apiGroups", _alone("API groups")),
    ("apiVersions", check.every(_alone("API versions"), check.each(check.mandatory()))),
    ("resources", _resources),
    ("scope", check.if_given(check.one_of("*", "Cluster", "Namespaced"))),
)


# --- where it is ----------------------------------------------------------------------------------


def url(at: str, value: str) -> list[Cause]:
    """Return what keeps ``value`` from being the URL of a webhook (``ValidateWebhookURL``)."""
    try:
        parts = urlsplit(value)
        host = parts.hostname and parts.port != 0
    except ValueError as error:
        return [cause.required(at, f"url must be a valid URL: {error}{_FORM}")]
    causes = []
    if parts.scheme != "https":
        causes.append(cause.invalid(at, parts.scheme, f"'https' is the only allowed URL scheme{_FORM}"))
    if not host:
        causes.append(cause.invalid(at, parts.netloc, f"host must be specified{_FORM}"))
    if "@" in parts.netloc:
        shown = parts.netloc.rpartition("@")[0]
        causes.append(cause.invalid(at, shown, "user information is not permitted in the URL"))
    if parts.fragment:
        causes.append(cause.invalid(at, parts.fragment, "fragments are not permitted in the URL"))
    if parts.query:
        causes.append(cause.invalid(at, parts.query, "query parameters are not permitted in the URL"))
    if not (value.isascii() and value.isprintable() and " " not in value):
        causes.append(cause.invalid(at, value, f"must be printable ASCII without spaces{_FORM}"))
    return causes


def _path(at: str, value: str) -> list[Cause]:
    if value in {"", "/"}:
        return []
    if value == "//":
        return [cause.invalid(at, value, "segment[0] may not be empty")]
    causes = [] if value.startswith("/") else [cause.invalid(at, value, "must start with a '/'")]
    for index, step in enumerate(value[1:].removesuffix("/").split("/")):
        problems = syntax.dns1123_subdomain(step) if step else ["may not be empty"]
        between = ": " if step else " "
        causes += [cause.invalid(at, value, f"segment[{index}]{between}{problem}") for problem in problems]
    return causes


def _port(at: str, value: Any) -> list[Cause]:
    found = syntax.port_number(value)
    return [cause.invalid(at, value, f"port is not valid: {', '.join(found)}")] if found else []


_SERVICE = check.fields(
    ("name", check.mandatory(detail="service name is required")),
    ("namespace", check.mandatory(detail="service namespace is required")),
    ("port", _port),
    ("path", check.if_given(_path)),
)


def client_config(at: str, value: Any) -> list[Cause]:
    """Return what is wrong with where a webhook is."""
    found = value or {}
    if (found.get("url") is None) == (found.get("service") is None):
        return [cause.required(at, "exactly one of url or service is required")]
    if found.get("url") is not None:
        return url(f"{at}.url", found["url"])
    return _SERVICE(f"{at}.service", found["service"])


# --- a webhook ------------------------------------------------------------------------------------


def review_versions(at: str, values: Any) -> list[Cause]:
    """Return what is wrong with the versions of reviews that a webhook reads."""
    if not values:
        return [cause.required(at, f"must specify one of {', '.join(REVIEW_VERSIONS)}")]
    causes: list[Cause] = []
    for index, value in enumerate(values):
        if value in values[:index]:
            causes.append(cause.invalid(f"{at}[{index}]", value, "duplicate version"))
        else:
            causes += cause.all_invalid(f"{at}[{index}]", value, syntax.dns1035_label(value))
    if not set(values) & set(REVIEW_VERSIONS):
        causes.append(cause.invalid(at, values, f"must include at least one of {', '.join(REVIEW_VERSIONS)}"))
    return causes


def conversion(definition: JsonObject) -> list[Cause]:
    """Return what is wrong with how a CustomResourceDefinition has its objects converted.

    Source: apiextensions-apiserver ``validateCustomResourceConversion``.
    """
    found, at = spec(definition).get("conversion") or {}, "spec.conversion"
    strategy: str = found.get("strategy") or ""
    webhook: JsonObject = found.get("webhook") or {}
    if not strategy:
        return [cause.required(f"{at}.strategy")]
    if strategy not in {"None", "Webhook"}:
        return [cause.not_supported(f"{at}.strategy", strategy, ("None", "Webhook"))]
    if strategy == "None":
        text = "should not be set when strategy is not set to Webhook"
        return [cause.forbidden(f"{at}.webhook", text)] if webhook else []
    if webhook.get("clientConfig") is None:
        return [cause.required(f"{at}.webhook.clientConfig", "required when strategy is set to Webhook")]
    causes = client_config(f"{at}.webhook.clientConfig", webhook["clientConfig"])
    return causes + review_versions(f"{at}.webhook.conversionReviewVersions", webhook.get("conversionReviewVersions"))


def _side_effects(at: str, value: Any) -> list[Cause]:
    if value is None:
        return [cause.required(at, "must specify one of None, NoneOnDryRun")]
    return check.one_of("None", "NoneOnDryRun")(at, value)


_HOOK = check.fields(
    ("name", _name),
    ("rules", check.each(RULE)),
    ("failurePolicy", check.if_given(check.one_of("Fail", "Ignore"))),
    ("matchPolicy", check.if_given(check.one_of("Equivalent", "Exact"))),
    ("sideEffects", _side_effects),
    ("timeoutSeconds", check.between(1, 30, "the timeout value must be between 1 and 30 seconds")),
    (("namespaceSelector", "objectSelector"), check.if_given(label_selector)),
    ("reinvocationPolicy", check.if_given(check.one_of("IfNeeded", "Never"))),
    ("clientConfig", client_config),
    ("matchConditions", match_conditions),
    ("admissionReviewVersions", review_versions),
)


def _configuration(configuration: JsonObject) -> Iterator[Cause]:
    seen = set()
    for index, hook in enumerate(configuration.get("webhooks") or ()):
        at = f"webhooks[{index}]"
        yield from _HOOK(at, hook)
        if hook.get("name") and hook["name"] in seen:
            yield cause.duplicate(f"{at}.name", hook["name"])
        seen.add(hook.get("name"))


def validate_configuration(configuration: JsonObject) -> list[Cause]:
    """Return what is wrong with a configuration of either kind; the schema knows which fields each has."""
    return list(_configuration(configuration))
