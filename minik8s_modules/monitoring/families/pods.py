"""Pods as figures."""

from __future__ import annotations

from collections.abc import Callable

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.monitoring.families.family import (
    Family,
    Rows,
    RowsOf,
    Table,
    amounts,
    condition,
    counter,
    flag,
    gauge,
    moment,
    owners,
    phases,
)

_PHASES = ("Pending", "Succeeded", "Failed", "Unknown", "Running")
_STATUS, _INIT_STATUS = "containerStatuses", "initContainerStatuses"


def _identity(pod: JsonObject) -> dict[str, str]:
    return {"namespace": objects.namespace(pod), "pod": objects.name(pod), "uid": objects.uid(pod)}


def _info(pod: JsonObject) -> Rows:
    spec, status, owner = objects.spec(pod), objects.status(pod), objects.controller_of(pod) or {}
    texts = (status.get("hostIP"), status.get("podIP"), spec.get("nodeName"), owner.get("kind"), owner.get("name"))
    kept = tuple(str(each or "") for each in texts)
    return [((*kept, str(spec.get("priorityClassName") or ""), flag(spec.get("hostNetwork"))), 1.0)]


def _reason(pod: JsonObject) -> Rows:
    reason = str(objects.status(pod).get("reason") or "")
    return [((reason,), 1.0)] if reason else []


def _statuses(pod: JsonObject, where: str = _STATUS) -> list[JsonObject]:
    return objects.status(pod).get(where) or []


def _of_containers(value: Callable[[JsonObject], float], where: str = _STATUS) -> RowsOf:
    return lambda pod: [((str(each["name"]),), float(value(each))) for each in _statuses(pod, where)]


def _in_state(state: str) -> Callable[[JsonObject], float]:
    return lambda each: float(state in (each.get("state") or {}))


def _why(where: str, state: str) -> RowsOf:
    def rows(pod: JsonObject) -> Rows:
        for each in _statuses(pod):
            reason = str(((each.get(where) or {}).get(state) or {}).get("reason") or "")
            if reason:
                yield (str(each["name"]), reason), 1.0

    return rows


def _exit_codes(pod: JsonObject) -> Rows:
    for each in _statuses(pod):
        ended = (each.get("lastState") or {}).get("terminated")
        if ended:
            yield (str(each["name"]),), float(ended.get("exitCode") or 0)


def _images(pod: JsonObject) -> Rows:
    asked = {each["name"]: str(each.get("image") or "") for each in objects.containers(pod)}
    for each in _statuses(pod):
        name = str(each["name"])
        texts = (asked.get(name, ""), each.get("image"), each.get("imageID"), each.get("containerID"))
        yield (name, *(str(text or "") for text in texts)), 1.0


def _resources(which: str) -> RowsOf:
    def rows(pod: JsonObject) -> Rows:
        node = str(objects.spec(pod).get("nodeName") or "")
        for container in objects.containers(pod):
            for resource, unit, amount in amounts((container.get("resources") or {}).get(which) or {}):
                yield (str(container["name"]), node, resource, unit), amount

    return rows


_OF_CONTAINERS: tuple[Family, ...] = (
    gauge(
        "kube_pod_container_info",
        "Images of a container: the one requested and the one that runs.",
        ("container", "image_spec", "image", "image_id", "container_id"),
        _images,
    ),
    counter(
        "kube_pod_container_status_restarts_total",
        "Restarts of a container.",
        ("container",),
        _of_containers(lambda each: float(each.get("restartCount") or 0)),
    ),
    counter(
        "kube_pod_init_container_status_restarts_total",
        "Restarts of an init container.",
        ("container",),
        _of_containers(lambda each: float(each.get("restartCount") or 0), _INIT_STATUS),
    ),
    gauge(
        "kube_pod_container_status_ready",
        "1 for a container that is ready.",
        ("container",),
        _of_containers(lambda each: float(bool(each.get("ready")))),
    ),
    gauge(
        "kube_pod_container_status_running",
        "1 for a container that runs.",
        ("container",),
        _of_containers(_in_state("running")),
    ),
    gauge(
        "kube_pod_container_status_waiting",
        "1 for a container that waits.",
        ("container",),
        _of_containers(_in_state("waiting")),
    ),
    gauge(
        "kube_pod_container_status_terminated",
        "1 for a container that has ended.",
        ("container",),
        _of_containers(_in_state("terminated")),
    ),
    gauge(
        "kube_pod_container_status_waiting_reason",
        "Why a container waits.",
        ("container", "reason"),
        _why("state", "waiting"),
    ),
    gauge(
        "kube_pod_container_status_terminated_reason",
        "Why a container has ended.",
        ("container", "reason"),
        _why("state", "terminated"),
    ),
    gauge(
        "kube_pod_container_status_last_terminated_reason",
        "Why a container ended the last time.",
        ("container", "reason"),
        _why("lastState", "terminated"),
    ),
    gauge(
        "kube_pod_container_status_last_terminated_exitcode",
        "Exit code of a container the last time.",
        ("container",),
        _exit_codes,
    ),
    gauge(
        "kube_pod_container_resource_requests",
        "What a container requests.",
        ("container", "node", "resource", "unit"),
        _resources("requests"),
    ),
    gauge(
        "kube_pod_container_resource_limits",
        "The limits of a container.",
        ("container", "node", "resource", "unit"),
        _resources("limits"),
    ),
)

PODS = Table(
    POD,
    _identity,
    (
        gauge(
            "kube_pod_info",
            "A pod's place and owner.",
            ("host_ip", "pod_ip", "node", "created_by_kind", "created_by_name", "priority_class", "host_network"),
            _info,
        ),
        gauge("kube_pod_owner", "A pod's owners.", ("owner_kind", "owner_name", "owner_is_controller"), owners),
        gauge(
            "kube_pod_created", "When a pod was created, in Unix seconds.", (), moment("metadata", "creationTimestamp")
        ),
        gauge(
            "kube_pod_start_time",
            "When a pod was accepted by its node, in Unix seconds.",
            (),
            moment("status", "startTime"),
        ),
        gauge(
            "kube_pod_deletion_timestamp",
            "When a pod that is being deleted ends at the latest, in Unix seconds.",
            (),
            moment("metadata", "deletionTimestamp"),
        ),
        gauge("kube_pod_status_phase", "1 for the phase that a pod is in.", ("phase",), phases(_PHASES)),
        gauge("kube_pod_status_ready", "Whether a pod is ready.", ("condition",), condition("Ready")),
        gauge("kube_pod_status_scheduled", "Whether a pod has a node.", ("condition",), condition("PodScheduled")),
        gauge("kube_pod_status_reason", "Why a pod is as it is, such as Evicted.", ("reason",), _reason),
        *_OF_CONTAINERS,
    ),
)
