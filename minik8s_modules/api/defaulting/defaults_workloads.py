"""Defaults of the kinds that make pods. Source: kubernetes ``pkg/apis/{apps,batch}/v1/defaults.go``."""

from __future__ import annotations

from collections.abc import Callable

from minik8s_modules.api.defaulting.defaults_pod import (
    claim_spec,
    pod_template,
    set_missing,
    set_nonempty,
)
from minik8s_modules.api.objects import JsonObject, dig, labels, metadata

_LARGEST = 2**31 - 1
_CONTROLLER_UID, _JOB_NAME = "controller-uid", "job-name"
_BATCH_UID, _BATCH_NAME = f"batch.kubernetes.io/{_CONTROLLER_UID}", f"batch.kubernetes.io/{_JOB_NAME}"


def _spec(obj: JsonObject) -> JsonObject:
    """Return the spec with its pod template defaulted, putting in what is missing of them."""
    spec: JsonObject = obj.setdefault("spec", {})
    pod_template(spec.setdefault("template", {}))
    return spec


def _deployment(deployment: JsonObject) -> None:
    spec = _spec(deployment)
    set_missing(spec, replicas=1, strategy={}, revisionHistoryLimit=10, progressDeadlineSeconds=600)
    strategy = spec["strategy"]
    set_nonempty(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        set_missing(strategy, rollingUpdate={})
        set_missing(strategy["rollingUpdate"], maxUnavailable="25%", maxSurge="25%")


def _replica_set(replica_set: JsonObject) -> None:
    set_missing(_spec(replica_set), replicas=1)


def _replication_controller(controller: JsonObject) -> None:
    """Fill in its selector and labels from its template, before the rest (``SetDefaults_ReplicationController``)."""
    spec = _spec(controller)
    for holder, field in ((spec, "selector"), (metadata(controller), "labels")):
        if not holder.get(field) and (template_labels := labels(spec["template"])):
            holder[field] = dict(template_labels)
    set_missing(spec, replicas=1)


def _pod_template(template: JsonObject) -> None:
    pod_template(template.setdefault("template", {}))


def _stateful_set(stateful_set: JsonObject) -> None:
    spec = _spec(stateful_set)
    set_nonempty(spec, podManagementPolicy="OrderedReady")
    set_missing(spec, replicas=1, revisionHistoryLimit=10, updateStrategy={}, persistentVolumeClaimRetentionPolicy={})
    set_nonempty(spec["persistentVolumeClaimRetentionPolicy"], whenDeleted="Retain", whenScaled="Retain")
    strategy = spec["updateStrategy"]
    set_nonempty(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        set_missing(strategy, rollingUpdate={})
        set_missing(strategy["rollingUpdate"], partition=0)
    for claim in spec.get("volumeClaimTemplates") or []:
        set_nonempty(claim, apiVersion="v1", kind="PersistentVolumeClaim")
        volume_claim(claim)


def _daemon_set(daemon_set: JsonObject) -> None:
    spec = _spec(daemon_set)
    set_missing(spec, revisionHistoryLimit=10, updateStrategy={})
    strategy = spec["updateStrategy"]
    set_nonempty(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        set_missing(strategy, rollingUpdate={})
        set_missing(strategy["rollingUpdate"], maxUnavailable=1, maxSurge=0)


def _job(job: JsonObject) -> None:
    spec = _spec(job)
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    set_missing(spec, parallelism=1, backoffLimit=_LARGEST if "backoffLimitPerIndex" in spec else 6, suspend=False)
    replacement = "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed"
    set_nonempty(spec, completionMode="NonIndexed", podReplacementPolicy=replacement)
    template_labels = labels(spec["template"])
    if template_labels and not labels(job):
        metadata(job)["labels"] = dict(template_labels)


def generate_job_selector(job: JsonObject) -> None:
    """Give a new job, in place, the selector and template labels that only its own pods have; needs its uid."""
    spec = job["spec"]
    if spec.get("manualSelector"):
        return
    meta = metadata(job)
    own = metadata(spec["template"]).setdefault("labels", {})
    for key in (_CONTROLLER_UID, _BATCH_UID):
        own.setdefault(key, meta["uid"])
    for key in (_JOB_NAME, _BATCH_NAME):
        own.setdefault(key, meta.get("name", ""))
    if not meta.get("labels"):
        meta["labels"] = dict(own)
    selector = spec.setdefault("selector", {})
    selector.setdefault("matchLabels", {}).setdefault(_BATCH_UID, meta["uid"])


def _cron_job(cron_job: JsonObject) -> None:
    spec: JsonObject = cron_job.setdefault("spec", {})
    set_nonempty(spec, concurrencyPolicy="Allow")
    set_missing(spec, suspend=False, successfulJobsHistoryLimit=3, failedJobsHistoryLimit=1, jobTemplate={})
    if dig(spec, "jobTemplate", "spec", "template") is not None:
        pod_template(spec["jobTemplate"]["spec"]["template"])


def volume_claim(claim: JsonObject) -> None:
    """Fill in, in place, the defaults of a PersistentVolumeClaim, or of a template of one."""
    claim_spec(claim.setdefault("spec", {}))
    set_nonempty(claim.setdefault("status", {}), phase="Pending")


def _rolling_update(update: JsonObject) -> None:
    spec: JsonObject = update.setdefault("spec", {})
    set_missing(spec, minimumAlive=0, interval=0)
    if "newPodSpec" in spec:
        pod_template({"spec": spec["newPodSpec"]})


BY_KIND: dict[tuple[str, str], Callable[[JsonObject], None]] = {
    ("apps", "Deployment"): _deployment,
    ("apps", "ReplicaSet"): _replica_set,
    ("", "ReplicationController"): _replication_controller,
    ("", "PodTemplate"): _pod_template,
    ("apps", "StatefulSet"): _stateful_set,
    ("apps", "DaemonSet"): _daemon_set,
    ("batch", "Job"): _job,
    ("batch", "CronJob"): _cron_job,
    ("", "PersistentVolumeClaim"): volume_claim,
    ("", "ReplicaSet"): _replica_set,
    ("", "RollingUpdate"): _rolling_update,
}
