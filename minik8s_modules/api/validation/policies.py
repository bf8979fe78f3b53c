"""Validation of budgets, quotas, limits, priorities and signing requests.

Source: kubernetes ``pkg/apis/{policy,core,scheduling,certificates}/validation``.
"""

from __future__ import annotations

from collections.abc import Iterable

from minik8s_modules.api import cause, quantities, syntax
from minik8s_modules.api.access import certificate_requests
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject, name, spec
from minik8s_modules.api.pods.priority_classes import SYSTEM_PREFIX, system_obstacle
from minik8s_modules.api.validation import check, shared
from minik8s_modules.api.validation.meta import label_selector, validate_labels
from minik8s_modules.api.validation.pods.containers import validate_resources

# --- PodDisruptionBudget --------------------------------------------------------------------------


def _one_bound(at: str, declared: JsonObject) -> list[Cause]:
    if declared.get("minAvailable") is None or declared.get("maxUnavailable") is None:
        return []
    return [cause.invalid(at, declared, "minAvailable and maxUnavailable cannot be both set")]


validate_budget = check.of_spec(
    ("", _one_bound),
    (("minAvailable", "maxUnavailable"), shared.int_or_percent_of_all),
    ("unhealthyPodEvictionPolicy", check.if_given(check.mandatory(check.one_of("AlwaysAllow", "IfHealthyBudget")))),
    ("selector", label_selector),
)


# --- LimitRange -----------------------------------------------------------------------------------


_ORDERED = (  # the first may not be more than the second; what messages call them
    ("min", "max", "min value {} is greater than max value {}"),
    ("min", "defaultRequest", "min value {} is greater than default request value {}"),
    ("defaultRequest", "max", "default request value {} is greater than max value {}"),
    ("defaultRequest", "default", "default request value {} is greater than default limit value {}"),
    ("min", "default", "min value {} is greater than default value {}"),
    ("default", "max", "default value {} is greater than max value {}"),
)


def _limits(at: str, item: JsonObject) -> list[Cause]:
    causes = _AMOUNTS(at, item)
    if item.get("type") == "Pod":
        causes += [
            cause.forbidden(f"{at}.{field}", "may not be specified when `type` is 'Pod'")
            for field in ("default", "defaultRequest")
            if item.get(field)
        ]
    for low, high, detail in _ORDERED:
        smaller, larger = item.get(low) or {}, item.get(high) or {}
        causes += [
            cause.invalid(f"{at}.{low}[{name}]", smaller[name], detail.format(smaller[name], larger[name]))
            for name in smaller
            if name in larger and quantities.parse(smaller[name]) > quantities.parse(larger[name])
        ]
    return causes


def _amounts(at: str, amounts: JsonObject | None) -> list[Cause]:
    causes = []
    for resource, amount in (amounts or {}).items():
        causes += check.qualified_name(f"{at}[{resource}]", resource)
        if quantities.parse(amount) < 0:
            causes.append(cause.invalid(f"{at}[{resource}]", str(amount), cause.NOT_NEGATIVE))
    return causes


_AMOUNTS = check.fields((("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"), _amounts))
validate_limit_range = check.of_spec(
    ("limits", check.each(check.fields(("type", check.mandatory()), ("", _limits)), key=("type", check.no_rule)))
)


# --- PriorityClass --------------------------------------------------------------------------------

_HIGHEST_OF_USERS = 1_000_000_000


def validate_priority_class(priority_class: JsonObject) -> list[Cause]:
    """Return why the priority class may not be kept."""
    own, value, causes = name(priority_class), priority_class.get("value") or 0, []
    if own.startswith(SYSTEM_PREFIX):
        if why := system_obstacle(priority_class):
            detail = "priority class names with 'system-' prefix are reserved for system use only. error: "
            causes.append(cause.forbidden("metadata.name", f"{detail}{why}"))
    elif value > _HIGHEST_OF_USERS:
        detail = f"maximum allowed value of a user defined priority is {_HIGHEST_OF_USERS}"
        causes.append(cause.forbidden("value", detail))
    return causes + _PREEMPTION("preemptionPolicy", priority_class.get("preemptionPolicy"))


_PREEMPTION = check.mandatory(check.one_of("Never", "PreemptLowerPriority"))


def validate_priority_class_update(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return why the old class may not become the new one: pods hold copies of what it says."""
    causes = []
    if new.get("value") != old.get("value"):
        causes.append(cause.forbidden("value", "may not be changed in an update."))
    if new.get("preemptionPolicy") != old.get("preemptionPolicy"):
        causes.append(cause.immutable("preemptionPolicy", new.get("preemptionPolicy")))
    return causes


# --- RuntimeClass ----------------------------------------------------------------------------------


def _overhead(at: str, fixed: JsonObject | None) -> list[Cause]:
    above = at.removesuffix(".podFixed")
    return shared.below(above, validate_resources("podFixed", {"limits": fixed or {}}))


_RUNTIME_CLASS = check.fields(
    ("handler", check.label),
    ("overhead.podFixed", _overhead),
    ("scheduling.nodeSelector", validate_labels),
)


def validate_runtime_class(runtime_class: JsonObject) -> list[Cause]:
    """Return why the runtime class may not be kept."""
    return _RUNTIME_CLASS("", runtime_class)


def validate_runtime_class_update(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return why the old class may not become the new one: pods hold copies of what it says."""
    return [] if new.get("handler") == old.get("handler") else [cause.immutable("handler", new.get("handler"))]


# --- CertificateSigningRequest --------------------------------------------------------------------

_USAGES = (
    "signing", "digital signature", "content commitment", "key encipherment", "key agreement", "data encipherment",
    "cert sign", "crl sign", "encipher only", "decipher only", "any", "server auth", "client auth", "code signing",
    "email protection", "s/mime", "ipsec end system", "ipsec tunnel", "ipsec user", "timestamping", "ocsp signing",
    "microsoft sgc", "netscape sgc",
)  # fmt: skip


def _usages(at: str, usages: Iterable[str]) -> list[Cause]:
    causes = [
        cause.not_supported(f"{at}[{index}]", usage, _USAGES)
        for index, usage in enumerate(usages)
        if usage not in _USAGES
    ]
    return causes + cause.duplicates(at, usages)


def _pem(at: str, text: str) -> list[Cause]:
    try:
        certificate_requests.load(text)
    except ValueError:
        return [cause.invalid(at, text[:64], "PEM block type must be CERTIFICATE REQUEST")]
    return []


def _is_signer(name: str) -> bool:
    domain, _, path = name.partition("/")
    return bool(path) and "." in domain and not syntax.dns1123_subdomain(domain)


_SIGNER = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
validate_signing_request = check.of_spec(
    ("request", check.absent_as("", _pem)),
    ("usages", check.mandatory(_usages, "usages is required")),
    ("signerName", check.mandatory(check.held(_is_signer, _SIGNER))),
    ("expirationSeconds", check.at_least(600, "may not specify a duration less than 600 seconds")),
)


def validate_signing_request_update(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return why the old request may not become the new one: what is asked for stays."""
    return [] if spec(new) == spec(old) else [cause.immutable("spec", None)]
