"""Workloads as figures: Deployments and all else that makes Pods, autoscalers, budgets, RollingUpdates."""

from __future__ import annotations

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import (
    CRON_JOB,
    DAEMON_SET,
    DEPLOYMENT,
    HORIZONTAL_POD_AUTOSCALER,
    JOB,
    POD_DISRUPTION_BUDGET,
    REPLICA_SET,
    ROLLING_UPDATE,
    STATEFUL_SET,
)
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.monitoring.families.family import (
    Rows,
    RowsOf,
    Table,
    condition,
    conditions,
    gauge,
    moment,
    named,
    number,
    owners,
)

_CREATED, _GENERATION = moment("metadata", "creationTimestamp"), number("metadata", "generation")
_OBSERVED = number("status", "observedGeneration", default=0.0)


def _status(name: str) -> RowsOf:
    return number("status", name, default=0.0)


def _phase(obj: JsonObject) -> Rows:
    return [((str(objects.status(obj).get("phase") or "Pending"),), 1.0)]


_BATCH = moment("status", "batchStartTime")


def _revision(field: str) -> RowsOf:
    def rows(obj: JsonObject) -> Rows:
        name = objects.status(obj).get(field)
        return [((str(name),), 1.0)] if name else []

    return rows


DEPLOYMENTS = Table(
    DEPLOYMENT,
    named("deployment"),
    (
        gauge("kube_deployment_created", "When it was created, in Unix seconds.", (), _CREATED),
        gauge("kube_deployment_spec_replicas", "Pods that a Deployment should have.", (), number("spec", "replicas")),
        gauge(
            "kube_deployment_spec_paused",
            "1 for a Deployment that is paused.",
            (),
            number("spec", "paused", default=0.0),
        ),
        gauge("kube_deployment_metadata_generation", "The generation of its specification.", (), _GENERATION),
        gauge("kube_deployment_status_observed_generation", "The generation that was acted on last.", (), _OBSERVED),
        gauge("kube_deployment_status_replicas", "Pods that it has.", (), _status("replicas")),
        gauge("kube_deployment_status_replicas_ready", "Pods that are ready.", (), _status("readyReplicas")),
        gauge(
            "kube_deployment_status_replicas_available", "Pods that are available.", (), _status("availableReplicas")
        ),
        gauge(
            "kube_deployment_status_replicas_unavailable", "Pods that are missing.", (), _status("unavailableReplicas")
        ),
        gauge(
            "kube_deployment_status_replicas_updated", "Pods of the newest template.", (), _status("updatedReplicas")
        ),
        gauge("kube_deployment_status_condition", "Its conditions.", ("condition", "status"), conditions),
    ),
)
REPLICA_SETS = Table(
    REPLICA_SET,
    named("replicaset"),
    (
        gauge(
            "kube_replicaset_owner",
            "Who owns a ReplicaSet.",
            ("owner_kind", "owner_name", "owner_is_controller"),
            owners,
        ),
        gauge("kube_replicaset_spec_replicas", "Pods that a ReplicaSet should have.", (), number("spec", "replicas")),
        gauge("kube_replicaset_status_replicas", "Pods that it has.", (), _status("replicas")),
        gauge("kube_replicaset_status_ready_replicas", "Pods that are ready.", (), _status("readyReplicas")),
    ),
)
STATEFUL_SETS = Table(
    STATEFUL_SET,
    named("statefulset"),
    (
        gauge("kube_statefulset_replicas", "Pods that a StatefulSet should have.", (), number("spec", "replicas")),
        gauge("kube_statefulset_metadata_generation", "The generation of its specification.", (), _GENERATION),
        gauge("kube_statefulset_status_observed_generation", "The generation that was acted on last.", (), _OBSERVED),
        gauge("kube_statefulset_status_replicas", "Pods that it has.", (), _status("replicas")),
        gauge("kube_statefulset_status_replicas_ready", "Pods that are ready.", (), _status("readyReplicas")),
        gauge(
            "kube_statefulset_status_replicas_available", "Pods that are available.", (), _status("availableReplicas")
        ),
        gauge(
            "kube_statefulset_status_replicas_current", "Pods of the revision before.", (), _status("currentReplicas")
        ),
        gauge(
            "kube_statefulset_status_replicas_updated", "Pods of the newest revision.", (), _status("updatedReplicas")
        ),
        gauge(
            "kube_statefulset_status_current_revision",
            "The revision before.",
            ("revision",),
            _revision("currentRevision"),
        ),
        gauge(
            "kube_statefulset_status_update_revision",
            "The newest revision.",
            ("revision",),
            _revision("updateRevision"),
        ),
    ),
)
DAEMON_SETS = Table(
    DAEMON_SET,
    named("daemonset"),
    (
        gauge("kube_daemonset_metadata_generation", "The generation of its specification.", (), _GENERATION),
        gauge("kube_daemonset_status_observed_generation", "The generation that was acted on last.", (), _OBSERVED),
        gauge(
            "kube_daemonset_status_desired_number_scheduled",
            "Nodes that should have a pod.",
            (),
            _status("desiredNumberScheduled"),
        ),
        gauge(
            "kube_daemonset_status_current_number_scheduled",
            "Nodes that have one.",
            (),
            _status("currentNumberScheduled"),
        ),
        gauge("kube_daemonset_status_number_ready", "Nodes whose pod is ready.", (), _status("numberReady")),
        gauge(
            "kube_daemonset_status_number_available", "Nodes whose pod is available.", (), _status("numberAvailable")
        ),
        gauge(
            "kube_daemonset_status_number_unavailable", "Nodes whose pod is missing.", (), _status("numberUnavailable")
        ),
        gauge(
            "kube_daemonset_status_number_misscheduled", "Nodes with a pod too many.", (), _status("numberMisscheduled")
        ),
        gauge(
            "kube_daemonset_status_updated_number_scheduled",
            "Nodes with a pod of the newest template.",
            (),
            _status("updatedNumberScheduled"),
        ),
    ),
)
JOBS = Table(
    JOB,
    named("job_name"),
    (
        gauge("kube_job_owner", "Who owns a Job.", ("owner_kind", "owner_name", "owner_is_controller"), owners),
        gauge("kube_job_spec_completions", "Pods that must succeed.", (), number("spec", "completions")),
        gauge("kube_job_spec_parallelism", "Pods at once.", (), number("spec", "parallelism")),
        gauge("kube_job_status_active", "Pods that run.", (), _status("active")),
        gauge("kube_job_status_succeeded", "Pods that have succeeded.", (), _status("succeeded")),
        gauge("kube_job_status_failed", "Pods that have failed.", (), _status("failed")),
        gauge("kube_job_status_start_time", "When it began, in Unix seconds.", (), moment("status", "startTime")),
        gauge(
            "kube_job_status_completion_time", "When it ended, in Unix seconds.", (), moment("status", "completionTime")
        ),
        gauge("kube_job_complete", "Whether a Job has succeeded.", ("condition",), condition("Complete")),
        gauge("kube_job_failed", "Whether a Job has failed.", ("condition",), condition("Failed")),
    ),
)
CRON_JOBS = Table(
    CRON_JOB,
    named("cronjob"),
    (
        gauge(
            "kube_cronjob_spec_suspend",
            "1 for a CronJob that is suspended.",
            (),
            number("spec", "suspend", default=0.0),
        ),
        gauge(
            "kube_cronjob_status_active",
            "Jobs of it that run.",
            (),
            lambda obj: [((), float(len(objects.status(obj).get("active") or [])))],
        ),
        gauge(
            "kube_cronjob_status_last_schedule_time",
            "When it last made a Job, in Unix seconds.",
            (),
            moment("status", "lastScheduleTime"),
        ),
    ),
)
AUTOSCALERS = Table(
    HORIZONTAL_POD_AUTOSCALER,
    named("horizontalpodautoscaler"),
    (
        gauge(
            "kube_horizontalpodautoscaler_spec_min_replicas",
            "The least it scales to.",
            (),
            number("spec", "minReplicas"),
        ),
        gauge(
            "kube_horizontalpodautoscaler_spec_max_replicas",
            "The most it scales to.",
            (),
            number("spec", "maxReplicas"),
        ),
        gauge(
            "kube_horizontalpodautoscaler_status_current_replicas",
            "Replicas that there are.",
            (),
            _status("currentReplicas"),
        ),
        gauge(
            "kube_horizontalpodautoscaler_status_desired_replicas",
            "Replicas that it wants.",
            (),
            _status("desiredReplicas"),
        ),
        gauge("kube_horizontalpodautoscaler_status_condition", "Its conditions.", ("condition", "status"), conditions),
    ),
)
BUDGETS = Table(
    POD_DISRUPTION_BUDGET,
    named("poddisruptionbudget"),
    (
        gauge(
            "kube_poddisruptionbudget_status_current_healthy", "Pods that are healthy.", (), _status("currentHealthy")
        ),
        gauge("kube_poddisruptionbudget_status_desired_healthy", "Pods that must be.", (), _status("desiredHealthy")),
        gauge("kube_poddisruptionbudget_status_expected_pods", "Pods that count.", (), _status("expectedPods")),
        gauge(
            "kube_poddisruptionbudget_status_pod_disruptions_allowed",
            "Pods that may be evicted now.",
            (),
            _status("disruptionsAllowed"),
        ),
    ),
)
ROLLING_UPDATES = Table(
    ROLLING_UPDATE,
    named("rollingupdate"),
    (
        gauge("minik8s_rollingupdate_pods", "Pods that it replaces.", (), _status("total")),
        gauge("minik8s_rollingupdate_updated_pods", "Those that run with the new spec.", (), _status("updated")),
        gauge("minik8s_rollingupdate_status_phase", "1 for the phase it is in.", ("phase",), _phase),
        gauge("minik8s_rollingupdate_batch_start_time", "When the last batch began, in Unix seconds.", (), _BATCH),
    ),
)
WORKLOADS = (
    DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, DAEMON_SETS, JOBS, CRON_JOBS, AUTOSCALERS, BUDGETS, ROLLING_UPDATES,
)  # fmt: skip
