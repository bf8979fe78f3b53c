"""A description of a running cluster: names, labels, sizes and what scheduling looks at, and nothing else.

What is written is chosen field by field, so that no command, environment, image, annotation or address gets into a file
that may be passed on. Secrets and ConfigMaps are not read at all. Templates that differ only in what is left out still
have to differ, since a controller compares them: their number says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import (
    CONTROLLER_REVISION,
    NAMESPACE,
    NODE,
    POD,
    POD_DISRUPTION_BUDGET,
    PRIORITY_CLASS,
    SERVICE,
    Kind,
)
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli.simulating.cluster import TAKEN
from minik8s_modules.client.interface import Lister
from minik8s_modules.controllers.workloads import history
from minik8s_modules.controllers.workloads.revisions import HASH_LABEL

NUMBER = "simulation.minik8s.io/template"
"""The annotation of a template that tells it from others."""
_META = ("name", "namespace", "uid", "labels", "ownerReferences", "creationTimestamp", "generation")
_POD = (
    "nodeName", "nodeSelector", "affinity", "tolerations", "topologySpreadConstraints", "overhead", "priority",
    "priorityClassName", "preemptionPolicy", "schedulerName", "restartPolicy", "hostNetwork", "schedulingGates",
    "resources",
)  # fmt: skip
_CONTAINER = ("name", "resources", "restartPolicy")
_PORT = ("containerPort", "hostPort", "hostIP", "protocol")
_WORKLOAD = (
    "replicas", "selector", "strategy", "updateStrategy", "podManagementPolicy", "paused", "parallelism", "completions",
    "completionMode", "backoffLimit", "suspend", "manualSelector", "serviceName", "revisionHistoryLimit", "ordinals",
)  # fmt: skip
_STATUSES: Mapping[Kind, tuple[str, ...]] = {
    NODE: ("allocatable", "capacity"),
    POD: ("phase", "nominatedNodeName"),
    POD_DISRUPTION_BUDGET: ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"),
}
_SPECS: Mapping[Kind, tuple[str, ...]] = {
    NODE: ("taints", "unschedulable"),
    NAMESPACE: (),
    SERVICE: ("selector",),
    POD_DISRUPTION_BUDGET: ("selector", "minAvailable", "maxUnavailable"),
}
_ELSEWHERE: Mapping[Kind, tuple[str, ...]] = {
    PRIORITY_CLASS: ("value", "globalDefault", "preemptionPolicy"),
    CONTROLLER_REVISION: ("revision",),
}


def snapshot(api: Lister) -> Iterator[str]:
    """Yield each object that a simulation regards, as JSON. Raises StatusError: something may not be read."""
    numbers: dict[bytes, int] = {}
    for kind in TAKEN:
        for obj in api.list(kind).items:
            yield orjson.dumps(described(kind, obj, numbers)).decode()


def described(kind: Kind, obj: JsonObject, numbers: dict[bytes, int]) -> JsonObject:
    """Return what a description says of an object; ``numbers`` are those of templates so far."""
    found: JsonObject = {
        "apiVersion": kind.api_version, "kind": kind.kind, "metadata": _of(obj["metadata"], _META),
        **_of(obj, _ELSEWHERE.get(kind, ())),
    }  # fmt: skip
    spec = objects.spec(obj)
    if kind == POD:
        found["spec"] = _pod(spec)
    elif kind in _SPECS:
        found["spec"] = _of(spec, _SPECS[kind])
    elif kind == CONTROLLER_REVISION:
        template = _template(history.template_of(obj), numbers)
        found["data"] = history.data_of({"spec": {"template": template}})
    elif spec:
        found["spec"] = _of(spec, _WORKLOAD)
        if "template" in spec:
            same = history.template_of({"data": history.data_of(obj)})  # written as a revision writes it
            found["spec"]["template"] = _template(same, numbers)
    found["status"] = _status(kind, obj)
    return found


def _status(kind: Kind, obj: JsonObject) -> JsonObject:
    status = objects.status(obj)
    found = _of(status, _STATUSES[kind]) if kind in _STATUSES else _counts(status)
    ready = objects.condition(obj, "Ready") if kind in {NODE, POD} else None
    if ready is not None:
        found["conditions"] = [_of(ready, ("type", "status", "lastTransitionTime"))]
    return found


def _counts(status: JsonObject) -> JsonObject:
    """Return the numbers of a workload's status."""
    return {name: value for name, value in status.items() if isinstance(value, int)}


def _template(template: JsonObject, numbers: dict[bytes, int]) -> JsonObject:
    labels = objects.labels(template)
    unhashed = {name: value for name, value in labels.items() if name != HASH_LABEL}
    whole = {**template, "metadata": {**(template.get("metadata") or {}), "labels": unhashed}}
    number = numbers.setdefault(orjson.dumps(whole, option=orjson.OPT_SORT_KEYS), len(numbers) + 1)
    return {"metadata": {"labels": labels, "annotations": {NUMBER: str(number)}}, "spec": _pod(objects.spec(template))}


def _pod(spec: JsonObject) -> JsonObject:
    found = _of(spec, _POD)
    for field in ("initContainers", "containers"):
        if spec.get(field):
            found[field] = [*_containers(spec[field])]
    claims = [one for one in spec.get("volumes") or () if "persistentVolumeClaim" in one]
    if claims:
        found["volumes"] = [_of(one, ("name", "persistentVolumeClaim")) for one in claims]
    return found


def _containers(containers: Iterable[JsonObject]) -> Iterator[JsonObject]:
    for container in containers:
        found = {**_of(container, _CONTAINER), "image": "not-told"}
        ports = [_of(port, _PORT) for port in container.get("ports") or () if port.get("hostPort")]
        yield {**found, "ports": ports} if ports else found


def _of(found: Mapping[str, Any], names: Iterable[str]) -> JsonObject:
    return {name: found[name] for name in names if name in found}
