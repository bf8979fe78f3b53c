"""The cause when an object is not as it should be, looked for where it is nearest to the fault.

A pod's node that is gone or not ready comes first, then a container that waits or has died, then a workload's pods
(its own conditions only count missing copies), then a condition that is not true, then the newest Warning event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.selectors import as_label_selector
from minik8s_modules.cli.causes.service_endpoints import Behind, service_cause
from minik8s_modules.client.api import ApiClient

# a container that waits for these is simply on its way
ON_THE_WAY = {"ContainerCreating", "PodInitializing"}
WORKLOADS = frozenset({"Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Job"})

NodeOf = Callable[[str], JsonObject | None]


def find_cause(
    obj: JsonObject,
    events: Sequence[JsonObject],
    node_of: NodeOf,
    pods: Sequence[JsonObject] = (),
    found: Behind | None = None,
    ways: Sequence[str] = (),
) -> str:
    """Return why ``obj`` is not as it should be in one line; empty when nothing is wrong."""
    if ways:
        return "; ".join(ways)
    of_pods = workload_causes(obj, pods, lambda pod: find_cause(pod, (), node_of))
    for cause in (*_node_causes(obj, node_of), *_container_causes(obj), *of_pods, *_condition_causes(obj)):
        return cause
    if found is not None and (of_service := service_cause(obj, found, lambda pod: find_cause(pod, (), node_of))):
        return of_service
    warnings = [event for event in events if event.get("type") == "Warning"]
    if warnings and _unsettled(obj):
        return f"{warnings[-1].get('reason', '')}: {warnings[-1].get('message', '')}"
    return ""


def _unsettled(obj: JsonObject) -> bool:
    return obj.get("status", {}).get("phase") in ("Pending", "Failed", "Unknown")


def _node_causes(obj: JsonObject, node_of: NodeOf) -> Iterator[str]:
    """Yield what is wrong with the node of a pod: what its status says is then as old as that."""
    name = objects.spec(obj).get("nodeName")
    if obj.get("kind") != "Pod" or not name or objects.status(obj).get("phase") in ("Succeeded", "Failed"):
        return
    node = node_of(name)
    if node is None:
        yield f"node {name} does not exist"
        return
    ready = objects.condition(node, "Ready") or {}
    if ready.get("status") != "True":
        yield f"node {name} is not ready: {ready.get('message') or 'it has not reported yet'}"


def _container_causes(obj: JsonObject) -> Iterator[str]:
    status = obj.get("status", {})
    for entry in [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]:
        state = entry.get("state", {})
        waiting, ended = state.get("waiting", {}), state.get("terminated", {})
        if waiting.get("message") or waiting.get("reason", "ContainerCreating") not in ON_THE_WAY:
            before = entry.get("lastState", {}).get("terminated", {})
            ending = f" ({_ending(before)})" if "exitCode" in before else ""
            yield f"container {entry['name']}: {waiting.get('reason', '')}: {waiting.get('message', '')}{ending}"
        elif ended and ended.get("exitCode"):
            yield f"container {entry['name']}: {_ending(ended)}"


def _ending(ended: JsonObject) -> str:
    """Return how a container ended, as in ``OOMKilled: it exited with 137``."""
    how = ended.get("message") or f"it exited with {ended['exitCode']}"
    return f"{ended.get('reason', 'Error')}: {how}"


def _condition_causes(obj: JsonObject) -> Iterator[str]:
    for condition in obj.get("status", {}).get("conditions", []):
        if condition.get("status") != "True" and condition.get("message") and condition.get("type") not in PRESSURES:
            yield f"{condition['type']}: {condition.get('reason', '')}: {condition['message']}"


# node conditions for which "False" is the good news
PRESSURES = {"MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"}


def pods_of(client: ApiClient, obj: JsonObject) -> list[JsonObject]:
    """Return the pods that a workload selects by labels; none for other kinds. Raises as the API does."""
    labels = objects.dig(as_label_selector(objects.spec(obj).get("selector")), "matchLabels")
    if obj.get("kind") not in WORKLOADS or not isinstance(labels, dict) or not labels:
        return []
    selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    return client.list(POD, objects.namespace(obj), label_selector=selector).items


def workload_causes(
    obj: JsonObject, pods: Sequence[JsonObject], cause_of: Callable[[JsonObject], str]
) -> Iterator[str]:
    """Yield why ``obj`` is not as it should be; ``cause_of`` tells what is wrong with a pod."""
    if obj.get("kind") not in WORKLOADS:
        return
    failure = objects.condition(obj, "ReplicaFailure") or {}
    if failure.get("status") == "True":
        yield f"ReplicaFailure: {failure.get('reason', '')}: {failure.get('message', '')}"
    troubled = [(objects.name(pod), cause) for pod in pods if (cause := cause_of(pod))]
    if troubled:
        name, cause = troubled[0]
        several = f"{len(troubled)} of {len(pods)} pods are not ready; " if len(pods) > 1 else ""
        yield f"{several}pod {name}: {cause}"
    if objects.spec(obj).get("paused"):
        yield "the rollout is paused: template changes wait until it is resumed"
