"""Validation of the kinds that keep pods. Source: kubernetes ``pkg/apis/apps/validation/validation.go``."""

from __future__ import annotations

from collections.abc import Callable

from minik8s_modules.api import field_errors, objects, syntax
from minik8s_modules.api.defaulting.dialect import ANNOTATION, ORIGINAL
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject, namespace, spec
from minik8s_modules.api.validation import shared

# the pods that Kubernetes is made for (its "considerations for large clusters"): more is a mistake, and would be tried
MOST_COPIES = 150_000
_STATEFUL_CHANGES = (
    "replicas", "ordinals", "template", "updateStrategy", "persistentVolumeClaimRetentionPolicy", "minReadySeconds",
)  # fmt: skip


def validate_replica_set(replica_set: JsonObject) -> list[Cause]:
    """Return why the replica set may not be kept."""
    declared = spec(replica_set)
    causes = shared.not_negative("spec", declared, "replicas", "minReadySeconds")
    causes += shared.at_most("spec.replicas", declared.get("replicas"), MOST_COPIES)
    causes += shared.required_selector(declared, "deployment")
    causes += shared.matching_template(declared)
    return causes + _original_template(replica_set)


def _original_template(replica_set: JsonObject) -> list[Cause]:
    """Return what is wrong with an original's template: it may name a namespace, which must be the set's own."""
    if objects.annotations(replica_set).get(ANNOTATION) != ORIGINAL:
        return []
    meta = (spec(replica_set).get("template") or {}).get("metadata") or {}
    causes: list[Cause] = []
    if meta.get("namespace") not in {None, "", namespace(replica_set)}:
        told = "pods are made in the namespace of their replica set"
        causes.append(field_errors.invalid("spec.template.metadata.namespace", meta["namespace"], told))
    if meta.get("name"):
        wrong = syntax.dns1123_subdomain(meta["name"])
        causes += field_errors.all_invalid("spec.template.metadata.name", meta["name"], wrong)
    return causes


def validate_deployment(deployment: JsonObject) -> list[Cause]:
    """Return why the deployment may not be kept."""
    declared = spec(deployment)
    causes = shared.not_negative(
        "spec", declared, "replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"
    )
    causes += shared.at_most("spec.replicas", declared.get("replicas"), MOST_COPIES)
    causes += shared.required_selector(declared, "deployment")
    causes += shared.matching_template(declared)
    causes += _deployment_strategy(declared.get("strategy") or {})
    deadline = declared.get("progressDeadlineSeconds")
    if deadline is not None and deadline <= (declared.get("minReadySeconds") or 0):
        told = "must be greater than minReadySeconds"
        causes.append(field_errors.invalid("spec.progressDeadlineSeconds", deadline, told))
    return causes


def _deployment_strategy(strategy: JsonObject) -> list[Cause]:
    kind, rolling, at = strategy.get("type"), strategy.get("rollingUpdate"), "spec.strategy.rollingUpdate"
    if kind not in {"Recreate", "RollingUpdate"}:
        return [field_errors.not_supported("spec.strategy.type", kind, ["Recreate", "RollingUpdate"])]
    if kind == "Recreate":
        told = "may not be specified when strategy `type` is 'Recreate'"
        return [field_errors.forbidden(at, told)] if rolling is not None else []
    return _rolling(at, rolling or {})


def _rolling(at: str, rolling: JsonObject) -> list[Cause]:
    unavailable, surge = rolling.get("maxUnavailable"), rolling.get("maxSurge")
    causes = shared.int_or_percent(f"{at}.maxUnavailable", unavailable, at_most_all=True)
    causes += shared.int_or_percent(f"{at}.maxSurge", surge)
    if shared.is_zero(unavailable) and shared.is_zero(surge):
        causes.append(field_errors.invalid(f"{at}.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0"))
    return causes


def validate_stateful_set(stateful_set: JsonObject) -> list[Cause]:
    """Return why the stateful set may not be kept."""
    declared = spec(stateful_set)
    causes = shared.not_negative("spec", declared, "replicas", "minReadySeconds", "revisionHistoryLimit")
    causes += shared.one_of(
        "spec.podManagementPolicy", declared.get("podManagementPolicy"), ("OrderedReady", "Parallel")
    )
    strategy = declared.get("updateStrategy") or {}
    causes += shared.one_of("spec.updateStrategy.type", strategy.get("type"), ("OnDelete", "RollingUpdate"))
    rolling = strategy.get("rollingUpdate") or {}
    causes += shared.not_negative("spec.updateStrategy.rollingUpdate", rolling, "partition")
    if strategy.get("type") == "OnDelete" and "rollingUpdate" in strategy:
        told = "only allowed for updateStrategy 'RollingUpdate'"
        causes.append(field_errors.invalid("spec.updateStrategy.rollingUpdate", rolling, told))
    retention = declared.get("persistentVolumeClaimRetentionPolicy") or {}
    for field in ("whenDeleted", "whenScaled"):
        at = f"spec.persistentVolumeClaimRetentionPolicy.{field}"
        causes += shared.one_of(at, retention.get(field), ("Delete", "Retain"))
    causes += shared.not_negative("spec.ordinals", declared.get("ordinals") or {}, "start")
    causes += shared.required_selector(declared, "statefulset")
    return causes + shared.matching_template(declared)


def validate_stateful_set_update(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return why the old stateful set may not become the new one: most of it is fixed."""
    fixed = [
        {field: value for field, value in spec(each).items() if field not in _STATEFUL_CHANGES} for each in (new, old)
    ]
    if fixed[0] == fixed[1]:
        return []
    named = ", ".join(f"'{field}'" for field in _STATEFUL_CHANGES[:-1])
    told = f"updates to statefulset spec for fields other than {named} and 'minReadySeconds' are forbidden"
    return [field_errors.forbidden("spec", told)]


def validate_daemon_set(daemon_set: JsonObject) -> list[Cause]:
    """Return why the daemon set may not be kept."""
    declared = spec(daemon_set)
    causes = shared.not_negative("spec", declared, "minReadySeconds", "revisionHistoryLimit")
    causes += shared.required_selector(declared, "daemonset")
    causes += shared.matching_template(declared)
    strategy, at = declared.get("updateStrategy") or {}, "spec.updateStrategy"
    causes += shared.one_of(f"{at}.type", strategy.get("type"), ("OnDelete", "RollingUpdate"))
    if strategy.get("type") != "RollingUpdate":
        return causes
    rolling = strategy.get("rollingUpdate") or {}
    causes += _rolling(f"{at}.rollingUpdate", rolling)
    if not any(shared.is_zero(rolling.get(field)) for field in ("maxUnavailable", "maxSurge")):
        told = "may not be set when maxUnavailable is non-zero"
        causes.append(field_errors.invalid(f"{at}.rollingUpdate.maxSurge", rolling.get("maxSurge"), told))
    return causes


def immutable(*path: str) -> Callable[[JsonObject, JsonObject], list[Cause]]:
    """Return the rule that fields of spec keep what they were created with."""

    def check(new: JsonObject, old: JsonObject) -> list[Cause]:
        return [
            field_errors.immutable(f"spec.{field}", spec(new).get(field))
            for field in path
            if spec(new).get(field) != spec(old).get(field)
        ]

    return check


def validate_controller_revision(revision: JsonObject) -> list[Cause]:
    """Return why the revision may not be kept."""
    causes = shared.not_negative("", revision, "revision")
    causes = [cause._replace(field=cause.field.lstrip(".")) for cause in causes]
    return causes if revision.get("data") is not None else [*causes, field_errors.required("data", "data is mandatory")]


def validate_controller_revision_update(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return why the old revision may not become the new one: its data stays."""
    return [] if new.get("data") == old.get("data") else [field_errors.immutable("data", new.get("data"))]
