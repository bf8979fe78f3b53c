"""Why a workload is not as wished: what it cannot make, what keeps its pods from being ready, or that it is paused.

A workload's conditions tell that copies are missing; the cause is with the pods, so they are asked first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.client.api import ApiClient

KINDS = frozenset({"Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job"})
CauseOf = Callable[[JsonObject], str]


def pods_of(client: ApiClient, obj: JsonObject) -> list[JsonObject]:
    """Return the pods that a workload selects by labels; none for other kinds. Raises as the API does."""
    labels = objects.dig(obj, "spec", "selector", "matchLabels")
    if obj.get("kind") not in KINDS or not isinstance(labels, dict) or not labels:
        return []
    selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    return client.list(POD, objects.namespace(obj), label_selector=selector).items


def workload_causes(obj: JsonObject, pods: Sequence[JsonObject], cause_of: CauseOf) -> Iterator[str]:
    """Yield why ``obj`` is not as wished; ``cause_of`` tells what is wrong with a pod."""
    if obj.get("kind") not in KINDS:
        return
    failure = objects.condition(obj, "ReplicaFailure") or {}
    if failure.get("status") == "True":
        yield f"ReplicaFailure: {failure.get('reason', '')}: {failure.get('message', '')}"
    troubled = [(objects.name(pod), cause) for pod in pods if (cause := cause_of(pod))]
    if troubled:
        name, cause = troubled[0]
        several = f"{len(troubled)} of {len(pods)} pods are not as wished; " if len(pods) > 1 else ""
        yield f"{several}pod {name}: {cause}"
    if objects.spec(obj).get("paused"):
        yield "the rollout is paused: changes of the template wait until it is resumed"
