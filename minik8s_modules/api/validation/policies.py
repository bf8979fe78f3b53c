"""Validation of autoscalers, budgets, quotas, limits, priorities and signing requests.

Source: kubernetes ``pkg/apis/{autoscaling,policy,core,scheduling,certificates}/validation``.
"""

from __future__ import annotations

from collections.abc import Iterable

from minik8s_modules.api import field_errors, quantities, syntax
from minik8s_modules.api.access import certificate_requests
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject, name, spec
from minik8s_modules.api.validation import shared
from minik8s_modules.api.validation.containers import validate_resources
from minik8s_modules.api.validation.meta import validate_labels

# --- HorizontalPodAutoscaler ----------------------------------------------------------------------

_METRICS = {
    "Resource": "resource", "ContainerResource": "containerResource", "Pods": "pods", "Object": "object",
    "External": "external",
}  # fmt: skip
_TARGETS = {"Utilization": "averageUtilization", "AverageValue": "averageValue", "Value": "value"}


def validate_autoscaler(autoscaler: JsonObject) -> list[Cause]:
    """Return why the autoscaler (v2) may not be kept."""
    declared = spec(autoscaler)
    lowest, highest = declared.get("minReplicas"), declared.get("maxReplicas") or 0
    causes = []
    if lowest is not None and lowest < 1:
        causes.append(field_errors.invalid("spec.minReplicas", lowest, "must be greater than or equal to 1"))
    if highest < 1:
        causes.append(field_errors.invalid("spec.maxReplicas", highest, "must be greater than 0"))
    if lowest is not None and highest < lowest:
        causes.append(
            field_errors.invalid("spec.maxReplicas", highest, "must be greater than or equal to `minReplicas`")
        )
    target = declared.get("scaleTargetRef") or {}
    causes += [
        field_errors.required(f"spec.scaleTargetRef.{field}") for field in ("kind", "name") if not target.get(field)
    ]
    for index, metric in enumerate(declared.get("metrics") or []):
        causes += _metric(f"spec.metrics[{index}]", metric)
    return causes + _behavior(declared.get("behavior") or {})


def _metric(at: str, metric: JsonObject) -> list[Cause]:
    kind = metric.get("type")
    if not kind:
        return [field_errors.required(f"{at}.type", "must specify a metric source type")]
    if kind not in _METRICS:
        return [field_errors.not_supported(f"{at}.type", kind, _METRICS)]
    field = _METRICS[kind]
    if metric.get(field) is None:
        told = f"must populate information for the given metric source ({kind})"
        return [field_errors.required(f"{at}.{field}", told)]
    source = metric[field]
    named = source if "esource" in field else source.get("metric") or {}
    causes = [] if named.get("name") else [field_errors.required(f"{at}.{field}.name", f"must specify a {kind} name")]
    return causes + _metric_target(f"{at}.{field}.target", source.get("target") or {})


def _metric_target(at: str, target: JsonObject) -> list[Cause]:
    kind = target.get("type")
    if kind not in _TARGETS:
        return [field_errors.invalid(f"{at}.type", kind or "", "must be either Utilization, Value, or AverageValue")]
    value = target.get(_TARGETS[kind])
    if value is None:
        return [field_errors.required(f"{at}.{_TARGETS[kind]}", f"must specify a target for {kind}")]
    positive = value > 0 if isinstance(value, int) else quantities.parse(value) > 0
    return [] if positive else [field_errors.invalid(f"{at}.{_TARGETS[kind]}", value, "must be greater than 0")]


def _behavior(behavior: JsonObject) -> list[Cause]:
    causes = []
    for side in ("scaleUp", "scaleDown"):
        rules, at = behavior.get(side) or {}, f"spec.behavior.{side}"
        window = rules.get("stabilizationWindowSeconds") or 0
        if not 0 <= window <= 3600:  # noqa: PLR2004 - an hour
            causes.append(
                field_errors.invalid(f"{at}.stabilizationWindowSeconds", window, "must be between 0 and 3600")
            )
        if rules.get("selectPolicy") not in {None, "Max", "Min", "Disabled"}:
            causes.append(
                field_errors.not_supported(f"{at}.selectPolicy", rules["selectPolicy"], ["Disabled", "Max", "Min"])
            )
        for index, policy in enumerate(rules.get("policies") or []):
            causes += shared.one_of(f"{at}.policies[{index}].type", policy.get("type"), ("Percent", "Pods"))
            for field in ("value", "periodSeconds"):
                if (policy.get(field) or 0) <= 0:
                    told = "must be greater than zero"
                    causes.append(field_errors.invalid(f"{at}.policies[{index}].{field}", policy.get(field), told))
    return causes


# --- PodDisruptionBudget --------------------------------------------------------------------------


def validate_budget(budget: JsonObject) -> list[Cause]:
    """Return why the budget may not be kept."""
    declared, causes = spec(budget), []
    if declared.get("minAvailable") is not None and declared.get("maxUnavailable") is not None:
        causes.append(field_errors.invalid("spec", declared, "minAvailable and maxUnavailable cannot be both set"))
    for field in ("minAvailable", "maxUnavailable"):
        causes += shared.int_or_percent(f"spec.{field}", declared.get(field), at_most_all=True)
    policy = declared.get("unhealthyPodEvictionPolicy")
    if policy is not None:
        causes += shared.one_of("spec.unhealthyPodEvictionPolicy", policy, ("AlwaysAllow", "IfHealthyBudget"))
    return causes + shared.label_selector("spec.selector", declared.get("selector") or {})


# --- LimitRange -----------------------------------------------------------------------------------


def _amounts(at: str, amounts: JsonObject) -> list[Cause]:
    causes = []
    for resource, amount in amounts.items():
        causes += field_errors.all_invalid(f"{at}[{resource}]", resource, syntax.qualified_name(resource))
        if quantities.parse(amount) < 0:
            causes.append(field_errors.invalid(f"{at}[{resource}]", str(amount), field_errors.NOT_NEGATIVE))
    return causes


_ORDERED = (  # the first may not be more than the second; what messages call them
    ("min", "max", "min value {} is greater than max value {}"),
    ("min", "defaultRequest", "min value {} is greater than default request value {}"),
    ("defaultRequest", "max", "default request value {} is greater than max value {}"),
    ("defaultRequest", "default", "default request value {} is greater than default limit value {}"),
    ("min", "default", "min value {} is greater than default value {}"),
    ("default", "max", "default value {} is greater than max value {}"),
)


def validate_limit_range(limit_range: JsonObject) -> list[Cause]:
    """Return why the limit range may not be kept."""
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, item in enumerate(spec(limit_range).get("limits") or []):
        at, kind = f"spec.limits[{index}]", item.get("type") or ""
        if kind in seen:
            causes.append(field_errors.duplicate(f"{at}.type", kind))
        seen.add(kind)
        if not kind:
            causes.append(field_errors.required(f"{at}.type"))
        causes += _limits(at, item)
    return causes


def _limits(at: str, item: JsonObject) -> list[Cause]:
    causes = []
    for field in ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"):
        causes += _amounts(f"{at}.{field}", item.get(field) or {})
    if item.get("type") == "Pod":
        causes += [
            field_errors.forbidden(f"{at}.{field}", "may not be specified when `type` is 'Pod'")
            for field in ("default", "defaultRequest")
            if item.get(field)
        ]
    for low, high, told in _ORDERED:
        smaller, larger = item.get(low) or {}, item.get(high) or {}
        causes += [
            field_errors.invalid(f"{at}.{low}[{name}]", smaller[name], told.format(smaller[name], larger[name]))
            for name in smaller
            if name in larger and quantities.parse(smaller[name]) > quantities.parse(larger[name])
        ]
    return causes


# --- PriorityClass --------------------------------------------------------------------------------

_HIGHEST_OF_USERS = 1_000_000_000
_SYSTEM = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}


def validate_priority_class(priority_class: JsonObject) -> list[Cause]:
    """Return why the priority class may not be kept."""
    own, value, causes = name(priority_class), priority_class.get("value") or 0, []
    if own.startswith("system-"):
        if _SYSTEM.get(own) != value:
            told = "priority class names with 'system-' prefix are reserved for system use only. error: "
            causes.append(field_errors.forbidden("metadata.name", f"{told}{own} is not a known system priority class"))
    elif value > _HIGHEST_OF_USERS:
        told = f"maximum allowed value of a user defined priority is {_HIGHEST_OF_USERS}"
        causes.append(field_errors.forbidden("value", told))
    policies = ("Never", "PreemptLowerPriority")
    return causes + shared.one_of("preemptionPolicy", priority_class.get("preemptionPolicy"), policies)


def validate_priority_class_update(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return why the old class may not become the new one: pods hold copies of what it says."""
    causes = []
    if new.get("value") != old.get("value"):
        causes.append(field_errors.forbidden("value", "may not be changed in an update."))
    if new.get("preemptionPolicy") != old.get("preemptionPolicy"):
        causes.append(field_errors.immutable("preemptionPolicy", new.get("preemptionPolicy")))
    return causes


# --- RuntimeClass ----------------------------------------------------------------------------------


def validate_runtime_class(runtime_class: JsonObject) -> list[Cause]:
    """Return why the runtime class may not be kept."""
    handler = str(runtime_class.get("handler") or "")
    causes = field_errors.all_invalid("handler", handler, syntax.dns1123_label(handler))
    fixed = (runtime_class.get("overhead") or {}).get("podFixed") or {}
    causes += shared.below("overhead", validate_resources("podFixed", {"limits": fixed}))
    scheduling = runtime_class.get("scheduling") or {}
    return causes + validate_labels("scheduling.nodeSelector", scheduling.get("nodeSelector") or {})


def validate_runtime_class_update(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return why the old class may not become the new one: pods hold copies of what it says."""
    return [] if new.get("handler") == old.get("handler") else [field_errors.immutable("handler", new.get("handler"))]


# --- CertificateSigningRequest --------------------------------------------------------------------

_USAGES = (
    "signing", "digital signature", "content commitment", "key encipherment", "key agreement", "data encipherment",
    "cert sign", "crl sign", "encipher only", "decipher only", "any", "server auth", "client auth", "code signing",
    "email protection", "s/mime", "ipsec end system", "ipsec tunnel", "ipsec user", "timestamping", "ocsp signing",
    "microsoft sgc", "netscape sgc",
)  # fmt: skip
_SHORTEST_S = 600


def validate_signing_request(request: JsonObject) -> list[Cause]:
    """Return why the signing request may not be kept."""
    declared = spec(request)
    causes = _pem(declared.get("request") or "")
    causes += _usages(declared.get("usages") or [])
    signer = declared.get("signerName") or ""
    if not signer:
        causes.append(field_errors.required("spec.signerName"))
    else:
        domain, slash, path = signer.partition("/")
        if not slash or not path or "." not in domain or syntax.dns1123_subdomain(domain):
            told = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
            causes.append(field_errors.invalid("spec.signerName", signer, told))
    seconds = declared.get("expirationSeconds")
    if seconds is not None and seconds < _SHORTEST_S:
        causes.append(
            field_errors.invalid("spec.expirationSeconds", seconds, "may not specify a duration less than 600 seconds")
        )
    return causes


def _usages(usages: Iterable[str]) -> list[Cause]:
    found = list(usages)
    if not found:
        return [field_errors.required("spec.usages", "usages is required")]
    causes = [
        field_errors.not_supported(f"spec.usages[{index}]", usage, _USAGES)
        for index, usage in enumerate(found)
        if usage not in _USAGES
    ]
    return causes + field_errors.duplicates("spec.usages", found)


def _pem(text: str) -> list[Cause]:
    try:
        certificate_requests.load(text)
    except ValueError:
        told = "PEM block type must be CERTIFICATE REQUEST"
        return [field_errors.invalid("spec.request", text[:64], told)]
    return []


def validate_signing_request_update(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return why the old request may not become the new one: what is asked for stays."""
    return [] if spec(new) == spec(old) else [field_errors.immutable("spec", None)]
