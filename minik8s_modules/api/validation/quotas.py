"""ResourceQuotas that may be kept. Source: kubernetes ``pkg/apis/core/validation`` (``ValidateResourceQuotaSpec``)."""

from __future__ import annotations

from collections.abc import Iterable

from minik8s_modules.api import cause, quantities, syntax
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject, spec

_COMPUTE = (
    "cpu", "memory", "ephemeral-storage", "requests.cpu", "requests.memory", "requests.ephemeral-storage",
    "limits.cpu", "limits.memory", "limits.ephemeral-storage",
)  # fmt: skip
# core/helper: standardQuotaResources; what is none of them needs a prefix of its own, as in count/pods
_STANDARD = frozenset({
    *_COMPUTE, "pods", "services", "replicationcontrollers", "resourcequotas", "secrets", "configmaps",
    "persistentvolumeclaims", "requests.storage", "services.nodeports", "services.loadbalancers",
})  # fmt: skip
_WHOLE = frozenset({*_STANDARD} - {*_COMPUTE, "requests.storage"})
_HUGE = ("hugepages-", "requests.hugepages-")
_SCOPES = ("BestEffort", "CrossNamespacePodAffinity", "NotBestEffort", "NotTerminating", "PriorityClass", "Terminating")
_CONFLICTING = ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"})
_OPERATORS = ("DoesNotExist", "Exists", "In", "NotIn")


def validate_quota(quota: JsonObject) -> list[Cause]:
    """Return why the quota may not be kept."""
    hard = spec(quota).get("hard") or {}
    causes = []
    for resource, amount in hard.items():
        causes += _amount(f"spec.hard[{resource}]", resource, amount)
    for resource, amount in hard.items():
        if (resource in _WHOLE or resource.startswith("count/")) and quantities.parse(amount) % 1:
            causes.append(cause.invalid(f"spec.hard[{resource}]", amount, "must be an integer"))
    return causes + _scopes(spec(quota).get("scopes") or [], hard) + _selector(spec(quota), hard)


def _amount(at: str, resource: str, amount: str) -> list[Cause]:
    causes = cause.all_invalid(at, resource, syntax.qualified_name(resource))
    if not causes and "/" not in resource and resource not in _STANDARD and not resource.startswith(_HUGE):
        causes.append(cause.invalid(at, resource, "must be a standard resource for quota"))
    if quantities.parse(amount) < 0:
        causes.append(cause.invalid(at, str(amount), cause.NOT_NEGATIVE))
    return causes


def _scopes(scopes: list[str], hard: Iterable[str]) -> list[Cause]:
    causes = []
    for index, scope in enumerate(scopes):
        if scope not in _SCOPES:
            causes.append(cause.invalid(f"spec.scopes[{index}]", scope, "unsupported scope"))
    return causes + _suits("spec.scopes", scopes, hard)


def _selector(declared: JsonObject, hard: Iterable[str]) -> list[Cause]:
    causes, scopes = [], []
    for index, wanted in enumerate((declared.get("scopeSelector") or {}).get("matchExpressions") or []):
        at, scope = f"spec.scopeSelector.matchExpressions[{index}]", wanted.get("scopeName") or ""
        operator, values = wanted.get("operator") or "", wanted.get("values") or []
        scopes.append(scope)
        if scope not in _SCOPES:
            causes.append(cause.invalid(f"{at}.scopeName", scope, "unsupported scope"))
        elif scope != "PriorityClass" and operator != "Exists":
            detail = f"must be 'Exists' when scope is {scope}"
            causes.append(cause.invalid(f"{at}.operator", operator, detail))
        elif operator not in _OPERATORS:
            causes.append(cause.invalid(f"{at}.operator", operator, "not a valid selector operator"))
        if operator in {"In", "NotIn"} and not values:
            detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
            causes.append(cause.required(f"{at}.values", detail))
        if operator in {"Exists", "DoesNotExist"} and values:
            detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
            causes.append(cause.invalid(f"{at}.values", values, detail))
    return causes + _suits("spec.scopeSelector.matchExpressions", scopes, hard)


def _suits(at: str, scopes: list[str], hard: Iterable[str]) -> list[Cause]:
    """Scopes tell pods apart, so only amounts of pods may have them; pods of best effort have no amounts."""
    causes = []
    for scope in scopes:
        fitting = {"pods", "count/pods"} if scope == "BestEffort" else {"pods", "count/pods", *_COMPUTE}
        unfit = sorted(set(hard) - fitting)
        if scope in _SCOPES and unfit:
            detail = f"unsupported scope applied to resource: {', '.join(unfit)}"
            causes.append(cause.invalid(at, scope, detail))
    causes += [cause.invalid(at, scopes, "conflicting scopes") for pair in _CONFLICTING if pair <= {*scopes}]
    return causes


def validate_quota_update(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return why the old quota may not become the new one: its scopes stay."""
    after, before = spec(new).get("scopes") or [], spec(old).get("scopes") or []
    causes = [] if set(after) == set(before) else [cause.immutable("spec.scopes", after)]
    if spec(new).get("scopeSelector") != spec(old).get("scopeSelector"):
        causes.append(cause.immutable("spec.scopeSelector", spec(new).get("scopeSelector")))
    return causes
