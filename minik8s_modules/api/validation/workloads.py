"""Validation of the kinds that keep pods. Source: kubernetes ``pkg/apis/apps/validation/validation.go``."""

from __future__ import annotations

from collections.abc import Callable

from minik8s_modules.api import cause, objects
from minik8s_modules.api.defaulting.dialect import ANNOTATION, ORIGINAL
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject, namespace, spec
from minik8s_modules.api.selectors import as_label_selector
from minik8s_modules.api.validation import check, shared
from minik8s_modules.api.validation.meta import validate_labels

# the pods that Kubernetes is made for (its "considerations for large clusters"): more is a mistake, and would be tried
MOST_COPIES = 150_000
_STATEFUL_CHANGES = (
    "replicas", "ordinals", "template", "updateStrategy", "persistentVolumeClaimRetentionPolicy", "minReadySeconds",
)  # fmt: skip


def _kept_pods(owner: str) -> tuple[check.Row, check.Row]:
    """Return the rows of what each kind that keeps pods has: a selector, and the template that it must match."""
    return (("selector", shared.required_selector(owner)), ("", shared.matching_template))


_COUNTS = check.fields(
    (("replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"), check.not_negative)
)
_COPIES = check.fields(("", _COUNTS), ("replicas", check.at_most(MOST_COPIES)))
_TEMPLATE = check.fields(("", shared.matching_template))
_REPLICAS = check.fields(("", _COPIES), *_kept_pods("deployment"))


def validate_replica_set(replica_set: JsonObject) -> list[Cause]:
    """Return why the replica set may not be kept; an original's template may name the set's own namespace."""
    causes = _REPLICAS("spec", spec(replica_set))
    if objects.annotations(replica_set).get(ANNOTATION) != ORIGINAL:
        return causes
    meta = (spec(replica_set).get("template") or {}).get("metadata") or {}
    if meta.get("namespace") not in {None, "", namespace(replica_set)}:
        detail = "pods are made in the namespace of their replica set"
        causes.append(cause.invalid("spec.template.metadata.namespace", meta["namespace"], detail))
    return causes + check.if_set(check.subdomain)("spec.template.metadata.name", meta.get("name"))


def validate_replication_controller(controller: JsonObject) -> list[Cause]:
    """Return why the replication controller may not be kept; its selector is a plain map (``core/validation``)."""
    declared = spec(controller)
    selector = as_label_selector(declared.get("selector"))
    if not selector:
        return [cause.required("spec.selector"), *_COPIES("spec", declared), *_TEMPLATE("spec", declared)]
    causes = _COPIES("spec", declared) + validate_labels("spec.selector", declared["selector"])
    return causes + _TEMPLATE("spec", {**declared, "selector": selector})


def validate_pod_template(template: JsonObject) -> list[Cause]:
    """Return why the template may not be kept."""
    return shared.pod_template("template", template.get("template"))


def validate_deployment(deployment: JsonObject) -> list[Cause]:
    """Return why the deployment may not be kept."""
    declared = spec(deployment)
    causes = _REPLICAS("spec", declared) + _deployment_strategy(declared.get("strategy") or {})
    deadline = declared.get("progressDeadlineSeconds")
    if deadline is not None and deadline <= (declared.get("minReadySeconds") or 0):
        causes.append(cause.invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds"))
    return causes


def _deployment_strategy(strategy: JsonObject) -> list[Cause]:
    kind, rolling, at = strategy.get("type"), strategy.get("rollingUpdate"), "spec.strategy.rollingUpdate"
    if kind == "RollingUpdate":
        return _rolling(at, rolling or {})
    if kind != "Recreate":
        return [cause.not_supported("spec.strategy.type", kind, ["Recreate", "RollingUpdate"])]
    return [] if rolling is None else [cause.forbidden(at, "may not be specified when strategy `type` is 'Recreate'")]


_ROLLING = check.fields(("maxUnavailable", shared.int_or_percent_of_all), ("maxSurge", shared.int_or_percent))


def _rolling(at: str, rolling: JsonObject) -> list[Cause]:
    causes, unavailable = _ROLLING(at, rolling), rolling.get("maxUnavailable")
    if shared.is_zero(unavailable) and shared.is_zero(rolling.get("maxSurge")):
        causes.append(cause.invalid(f"{at}.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0"))
    return causes


def _partition_only_when_rolling(at: str, strategy: JsonObject) -> list[Cause]:
    if strategy.get("type") != "OnDelete" or "rollingUpdate" not in strategy:
        return []
    detail = "only allowed for updateStrategy 'RollingUpdate'"
    return [cause.invalid(f"{at}.rollingUpdate", strategy["rollingUpdate"] or {}, detail)]


def _template_with_claims(at: str, declared: JsonObject) -> list[Cause]:
    """Return what is wrong with a template whose pods also get a volume of each claim template's name."""
    template = declared.get("template") or {}
    volumes = (template.get("spec") or {}).get("volumes") or []
    known = {volume.get("name") for volume in volumes}
    claims = (objects.name(claim) for claim in declared.get("volumeClaimTemplates") or [])
    added = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims if name not in known]
    if added:
        template = {**template, "spec": {**(template.get("spec") or {}), "volumes": [*volumes, *added]}}
    return shared.matching_template(at, {**declared, "template": template})


_UPDATE_TYPE = check.mandatory(check.one_of("OnDelete", "RollingUpdate"))
_RETENTION = "persistentVolumeClaimRetentionPolicy"
validate_stateful_set = check.of_spec(
    ("", _COUNTS),
    ("podManagementPolicy", check.mandatory(check.one_of("OrderedReady", "Parallel"))),
    ("updateStrategy.type", _UPDATE_TYPE),
    ("updateStrategy.rollingUpdate.partition", check.not_negative),
    ("updateStrategy", check.if_given(_partition_only_when_rolling)),
    ((f"{_RETENTION}.whenDeleted", f"{_RETENTION}.whenScaled"), check.mandatory(check.one_of("Delete", "Retain"))),
    ("ordinals.start", check.not_negative),
    ("selector", shared.required_selector("statefulset")),
    ("", _template_with_claims),
)


def validate_stateful_set_update(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return why the old stateful set may not become the new one: most of it is fixed."""
    fixed = [
        {field: value for field, value in spec(each).items() if field not in _STATEFUL_CHANGES} for each in (new, old)
    ]
    if fixed[0] == fixed[1]:
        return []
    named = ", ".join(f"'{field}'" for field in _STATEFUL_CHANGES[:-1])
    detail = f"updates to statefulset spec for fields other than {named} and 'minReadySeconds' are forbidden"
    return [cause.forbidden("spec", detail)]


def _daemon_strategy(at: str, strategy: JsonObject) -> list[Cause]:
    if strategy.get("type") != "RollingUpdate":
        return []
    rolling, at = strategy.get("rollingUpdate") or {}, f"{at}.rollingUpdate"
    causes = _rolling(at, rolling)
    if not any(shared.is_zero(rolling.get(field)) for field in ("maxUnavailable", "maxSurge")):
        detail = "may not be set when maxUnavailable is non-zero"
        causes.append(cause.invalid(f"{at}.maxSurge", rolling.get("maxSurge"), detail))
    return causes


validate_daemon_set = check.of_spec(
    ("", _COUNTS),
    *_kept_pods("daemonset"),
    ("updateStrategy.type", _UPDATE_TYPE),
    ("updateStrategy", check.if_given(_daemon_strategy)),
)


def validate_controller_revision(revision: JsonObject) -> list[Cause]:
    """Return why the revision may not be kept."""
    causes = check.not_negative("revision", revision.get("revision"))
    return causes if revision.get("data") is not None else [*causes, cause.required("data", "data is mandatory")]


def validate_controller_revision_update(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return why the old revision may not become the new one: its data stays."""
    return [] if new.get("data") == old.get("data") else [cause.immutable("data", new.get("data"))]


def spec_immutable(*path: str) -> Callable[[JsonObject, JsonObject], list[Cause]]:
    """Return the rule that fields of spec keep what they were created with."""

    def rule(new: JsonObject, old: JsonObject) -> list[Cause]:
        return [
            cause.immutable(f"spec.{field}", spec(new).get(field))
            for field in path
            if spec(new).get(field) != spec(old).get(field)
        ]

    return rule
