"""Columns and cells of workloads, autoscalers, budgets, volumes, ingresses, classes and signing requests.

Source: kubernetes ``pkg/printers/internalversion/printers.go``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.defaulting import conversion
from minik8s_modules.api.objects import JsonObject, dig, labels, metadata, name, spec, status
from minik8s_modules.api.selectors import describe, selector_text
from minik8s_modules.api.tables.cells import AGE, NAME, NONE, UNKNOWN, Column, age, columns, human_duration, since
from minik8s_modules.base.clock import parse_rfc3339

_UNSET = "<unset>"
_SHORT_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
_OLD_CLASS = "volume.beta.kubernetes.io/storage-class"
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
_CLOSED = 64  # characters of the pods' addresses of an ingress


def _template(obj: JsonObject) -> tuple[str, str]:
    """Return the names and images of a template's containers."""
    containers = dig(spec(obj), "template", "spec", "containers") or []
    return (",".join(str(c.get("name")) for c in containers), ",".join(str(c.get("image") or "") for c in containers))


def _wide(obj: JsonObject) -> list[str]:
    return [*_template(obj), selector_text(spec(obj).get("selector"))]


def _counts(obj: JsonObject, *fields: str) -> list[int]:
    return [int(status(obj).get(field) or 0) for field in fields]


def _deployment(obj: JsonObject, now: datetime) -> list[Any]:
    ready, updated, available = _counts(obj, "readyReplicas", "updatedReplicas", "availableReplicas")
    wanted = spec(obj).get("replicas") or 0
    return [name(obj), f"{ready}/{wanted}", updated, available, age(obj, now), *_wide(obj)]


def _replica_set(obj: JsonObject, now: datetime) -> list[Any]:
    counts = _counts(obj, "replicas", "readyReplicas")
    return [name(obj), spec(obj).get("replicas") or 0, *counts, age(obj, now), *_wide(obj)]


def _pod_template(obj: JsonObject, _now: datetime) -> list[Any]:
    return [name(obj), *_template({"spec": obj}), describe(labels(obj.get("template") or {}))]


def _stateful_set(obj: JsonObject, now: datetime) -> list[Any]:
    (ready,) = _counts(obj, "readyReplicas")
    return [name(obj), f"{ready}/{spec(obj).get('replicas') or 0}", age(obj, now), *_template(obj)]


def _daemon_set(obj: JsonObject, now: datetime) -> list[Any]:
    counts = _counts(
        obj,
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    )
    chosen = dig(spec(obj), "template", "spec", "nodeSelector") or {}
    nodes = ",".join(f"{key}={value}" for key, value in sorted(chosen.items())) or NONE
    return [name(obj), *counts, nodes, age(obj, now), *_wide(obj)]


def _revision(obj: JsonObject, now: datetime) -> list[Any]:
    owner = next((each for each in metadata(obj).get("ownerReferences") or [] if each.get("controller")), None)
    group = str((owner or {}).get("apiVersion", "")).rpartition("/")[0]
    kind = str((owner or {}).get("kind", "")).lower()
    shown = f"{kind}{'.' + group if group else ''}/{(owner or {}).get('name', '')}" if owner else NONE
    return [name(obj), shown, obj.get("revision") or 0, age(obj, now)]


def _job(obj: JsonObject, now: datetime) -> list[Any]:
    declared, seen = spec(obj), status(obj)
    done, wanted, parallel = seen.get("succeeded") or 0, declared.get("completions"), declared.get("parallelism") or 0
    completions = (
        f"{done}/{wanted}" if wanted is not None else (f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1")
    )
    return [name(obj), _job_status(obj), completions, _duration(seen, now), age(obj, now), *_wide(obj)]


def _job_status(obj: JsonObject) -> str:
    true = {c.get("type") for c in status(obj).get("conditions") or [] if c.get("status") == "True"}
    if true & {"Complete", "Failed"}:
        return "Complete" if "Complete" in true else "Failed"
    if metadata(obj).get("deletionTimestamp"):
        return "Terminating"
    order = {"Suspended": "Suspended", "FailureTarget": "FailureTarget", "SuccessCriteriaMet": "SuccessCriteriaMet"}
    return next((shown for kind, shown in order.items() if kind in true), "Running")


def _duration(seen: JsonObject, now: datetime) -> str:
    if not seen.get("startTime"):
        return ""
    end = parse_rfc3339(seen["completionTime"]) if seen.get("completionTime") else now
    return human_duration((end - parse_rfc3339(seen["startTime"])).total_seconds())


def _cron_job(obj: JsonObject, now: datetime) -> list[Any]:
    declared, seen = spec(obj), status(obj)
    job = {"spec": dig(declared, "jobTemplate", "spec") or {}}
    last = since(seen["lastScheduleTime"], now) if seen.get("lastScheduleTime") else NONE
    return [
        name(obj), declared.get("schedule", ""), declared.get("timeZone") or NONE, str(bool(declared.get("suspend"))),
        len(seen.get("active") or []), last, age(obj, now), *_wide(job),
    ]  # fmt: skip


# --- autoscalers, budgets, quotas -----------------------------------------------------------------


def _autoscaler(obj: JsonObject, now: datetime) -> list[Any]:
    if obj.get("apiVersion") == "autoscaling/v1":
        obj = conversion.to_storage_autoscaler(obj)
    declared = spec(obj)
    target = declared.get("scaleTargetRef") or {}
    current = status(obj).get("currentMetrics") or []
    shown = [_metric(metric, current, index) for index, metric in enumerate(declared.get("metrics") or [])]
    more = f" + {len(shown) - 2} more..." if len(shown) > 2 else ""  # noqa: PLR2004 - two are shown
    lowest = declared.get("minReplicas")
    return [
        name(obj), f"{target.get('kind', '')}/{target.get('name', '')}", (", ".join(shown[:2]) + more) or NONE,
        _UNSET if lowest is None else str(lowest), declared.get("maxReplicas") or 0,
        status(obj).get("currentReplicas") or 0, age(obj, now),
    ]  # fmt: skip


def _metric(metric: JsonObject, current: list[JsonObject], index: int) -> str:
    kind = str(metric.get("type", ""))
    field = kind[:1].lower() + kind[1:]
    source, seen = metric.get(field) or {}, (dig(current, index, field, "current") or {})
    target = source.get("target") or {}
    of_pods = kind in {"Resource", "ContainerResource"}
    label = f"{source.get('name', '')}: " if of_pods else ""
    if target.get("averageUtilization") is not None:
        now = seen.get("averageUtilization")
        return f"{label}{UNKNOWN if now is None else f'{now}%'}/{target['averageUtilization']}%"
    what = "averageValue" if target.get("averageValue") is not None else "value"
    # only what has another value as well is called an average (formatHPAMetrics)
    suffix = " (avg)" if what == "averageValue" and kind in {"Object", "External"} else ""
    return f"{label}{seen.get(what) or UNKNOWN}/{target.get(what)}{suffix}"


def _budget(obj: JsonObject, now: datetime) -> list[Any]:
    declared = spec(obj)
    bounds = [
        "N/A" if declared.get(field) is None else str(declared[field]) for field in ("minAvailable", "maxUnavailable")
    ]
    return [name(obj), *bounds, status(obj).get("disruptionsAllowed") or 0, age(obj, now)]


def _quota(obj: JsonObject, now: datetime) -> list[Any]:
    hard = status(obj).get("hard") or {}
    used = status(obj).get("used") or {}
    sides: dict[bool, list[str]] = {False: [], True: []}
    for resource in sorted(hard):
        sides[resource.startswith("limits.")].append(f"{resource}: {used.get(resource, '0')}/{hard[resource]}")
    return [name(obj), ", ".join(sides[False]), ", ".join(sides[True]), age(obj, now)]


def _limit_range(obj: JsonObject, _now: datetime) -> list[Any]:
    return [name(obj), metadata(obj).get("creationTimestamp", "")]


# --- volumes --------------------------------------------------------------------------------------


def _modes(declared: JsonObject) -> str:
    return ",".join(_SHORT_MODES.get(mode, mode) for mode in declared.get("accessModes") or [])


def _class_of(obj: JsonObject) -> str:
    return str(objects.annotations(obj).get(_OLD_CLASS) or spec(obj).get("storageClassName") or "")


def _phase(obj: JsonObject) -> str:
    return "Terminating" if metadata(obj).get("deletionTimestamp") else str(status(obj).get("phase") or "")


def _volume(obj: JsonObject, now: datetime) -> list[Any]:
    declared = spec(obj)
    claim = declared.get("claimRef")
    holder = f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else ""
    return [
        name(obj), str((declared.get("capacity") or {}).get("storage", "")), _modes(declared),
        declared.get("persistentVolumeReclaimPolicy", ""), _phase(obj), holder, _class_of(obj),
        declared.get("volumeAttributesClassName") or _UNSET, status(obj).get("reason", ""), age(obj, now),
        declared.get("volumeMode") or _UNSET,
    ]  # fmt: skip


def _claim(obj: JsonObject, now: datetime) -> list[Any]:
    declared, seen = spec(obj), status(obj)
    bound = bool(declared.get("volumeName"))
    capacity = str((seen.get("capacity") or {}).get("storage", "")) if bound else ""
    return [
        name(obj), _phase(obj), declared.get("volumeName", ""), capacity, _modes(seen) if bound else "", _class_of(obj),
        declared.get("volumeAttributesClassName") or _UNSET, age(obj, now), declared.get("volumeMode") or _UNSET,
    ]  # fmt: skip


def _storage_class(obj: JsonObject, now: datetime) -> list[Any]:
    default = " (default)" if objects.annotations(obj).get(_DEFAULT_CLASS) == "true" else ""
    return [
        name(obj) + default, obj.get("provisioner", ""), obj.get("reclaimPolicy") or "Delete",
        obj.get("volumeBindingMode") or _UNSET, str(bool(obj.get("allowVolumeExpansion"))).lower(), age(obj, now),
    ]  # fmt: skip


# --- networking, priorities, requests -------------------------------------------------------------


def _ingress(obj: JsonObject, now: datetime) -> list[Any]:
    declared = spec(obj)
    hosts = [str(rule["host"]) for rule in declared.get("rules") or [] if rule.get("host")]
    shown = ",".join(hosts[:3]) + (f" + {len(hosts) - 3} more..." if len(hosts) > 3 else "")  # noqa: PLR2004 - three are shown
    addresses = [
        each.get("ip") or each.get("hostname") or "" for each in dig(obj, "status", "loadBalancer", "ingress") or []
    ]
    return [
        name(obj), declared.get("ingressClassName") or NONE, shown or "*", ",".join(addresses)[:_CLOSED],
        "80, 443" if declared.get("tls") else "80", age(obj, now),
    ]  # fmt: skip


def _ingress_class(obj: JsonObject, now: datetime) -> list[Any]:
    found = spec(obj).get("parameters")
    shown = NONE
    if found:
        group = f".{found['apiGroup']}" if found.get("apiGroup") else ""
        shown = f"{found.get('kind', '')}{group}/{found.get('name', '')}"
    return [name(obj), spec(obj).get("controller", ""), shown, age(obj, now)]


def _network_policy(obj: JsonObject, now: datetime) -> list[Any]:
    return [name(obj), selector_text(spec(obj).get("podSelector") or {}), age(obj, now)]


def _priority_class(obj: JsonObject, now: datetime) -> list[Any]:
    is_default = str(bool(obj.get("globalDefault"))).lower()
    return [name(obj), obj.get("value") or 0, is_default, age(obj, now), obj.get("preemptionPolicy", "")]


def _runtime_class(obj: JsonObject, now: datetime) -> list[Any]:
    return [name(obj), obj.get("handler") or "", age(obj, now)]


def _signing_request(obj: JsonObject, now: datetime) -> list[Any]:
    declared, seen = spec(obj), status(obj)
    kinds = [c.get("type") for c in seen.get("conditions") or []]
    words = [str(kind) for kind in ("Approved", "Denied", "Failed") if kind in kinds] or ["Pending"]
    if seen.get("certificate"):
        words.append("Issued")
    seconds = declared.get("expirationSeconds")
    duration = NONE if seconds is None else human_duration(seconds)
    requester = declared.get("username") or NONE
    return [name(obj), age(obj, now), declared.get("signerName") or NONE, requester, duration, ",".join(words)]


Cells = Callable[[JsonObject, datetime], list[Any]]
_MADE = columns("Containers+", "Images+", "Selector+")


def _numbers(*names: str) -> list[Column]:
    return [Column(each, "integer") for each in names]


TABLES: dict[tuple[str, str], tuple[Sequence[Column], Cells]] = {
    ("apps", "Deployment"): ([NAME, *columns("Ready"), *_numbers("Up-to-date", "Available"), AGE, *_MADE], _deployment),
    ("apps", "ReplicaSet"): ([NAME, *_numbers("Desired", "Current", "Ready"), AGE, *_MADE], _replica_set),
    ("", "ReplicationController"): ([NAME, *_numbers("Desired", "Current", "Ready"), AGE, *_MADE], _replica_set),
    ("", "PodTemplate"): ([NAME, *columns("Containers", "Images", "Pod Labels")], _pod_template),
    ("", "ReplicaSet"): ([NAME, *_numbers("Desired", "Current", "Ready"), AGE, *_MADE], _replica_set),
    ("apps", "StatefulSet"): ([NAME, *columns("Ready"), AGE, *_MADE[:2]], _stateful_set),
    ("apps", "DaemonSet"): (
        [NAME, *_numbers("Desired", "Current", "Ready", "Up-to-date", "Available"), *columns("Node Selector"), AGE,
         *_MADE], _daemon_set,
    ),
    ("apps", "ControllerRevision"): ([NAME, *columns("Controller"), *_numbers("Revision"), AGE], _revision),
    ("batch", "Job"): ([NAME, *columns("Status", "Completions", "Duration"), AGE, *_MADE], _job),
    ("batch", "CronJob"): (
        [NAME, *columns("Schedule", "Timezone", "Suspend"), *_numbers("Active"), Column("Last Schedule"), AGE, *_MADE],
        _cron_job,
    ),
    ("autoscaling", "HorizontalPodAutoscaler"): (
        [NAME, *columns("Reference", "Targets", "MinPods", "MaxPods"), *_numbers("Replicas"), AGE], _autoscaler,
    ),
    ("policy", "PodDisruptionBudget"): (
        [NAME, *columns("Min Available", "Max Unavailable"), *_numbers("Allowed Disruptions"), AGE], _budget,
    ),
    ("", "ResourceQuota"): ([NAME, *columns("Request", "Limit"), AGE], _quota),
    ("", "LimitRange"): ([NAME, Column("Created At")], _limit_range),
    ("", "PersistentVolume"): (
        [NAME, *columns("Capacity", "Access Modes", "Reclaim Policy", "Status", "Claim", "StorageClass",
                        "VolumeAttributesClass", "Reason"), AGE, *columns("VolumeMode+")], _volume,
    ),
    ("", "PersistentVolumeClaim"): (
        [NAME, *columns("Status", "Volume", "Capacity", "Access Modes", "StorageClass", "VolumeAttributesClass"), AGE,
         *columns("VolumeMode+")], _claim,
    ),
    ("storage.k8s.io", "StorageClass"): (
        [NAME, *columns("Provisioner", "ReclaimPolicy", "VolumeBindingMode", "AllowVolumeExpansion"), AGE],
        _storage_class,
    ),
    ("networking.k8s.io", "Ingress"): ([NAME, *columns("Class", "Hosts", "Address", "Ports"), AGE], _ingress),
    ("networking.k8s.io", "IngressClass"): ([NAME, *columns("Controller", "Parameters"), AGE], _ingress_class),
    ("networking.k8s.io", "NetworkPolicy"): ([NAME, *columns("Pod-Selector"), AGE], _network_policy),
    ("scheduling.k8s.io", "PriorityClass"): (
        [NAME, *_numbers("Value"), *columns("Global-Default"), AGE, *columns("PreemptionPolicy")], _priority_class,
    ),
    ("node.k8s.io", "RuntimeClass"): ([NAME, *columns("Handler"), AGE], _runtime_class),
    ("certificates.k8s.io", "CertificateSigningRequest"): (
        [NAME, AGE, *columns("SignerName", "Requestor", "RequestedDuration", "Condition")], _signing_request,
    ),
}  # fmt: skip
