"""Pods that nobody else would delete: too many that have ended, and those nobody can end.

Of ended pods the oldest go beyond a number (12,500, or ``terminated_pods`` in controllers.yml), evicted ones first. A
pod that is being deleted goes by force when it was never bound, or when its node is not ready and carries the taint
``node.kubernetes.io/out-of-service``, by which a person says that nothing runs there. Pods of nodes that do not exist
are orphans.py's. Source: kubernetes ``pkg/controller/podgc``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Conflict, NotFound
from minik8s_modules.api.kinds import NODE, POD
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.base.clock import rfc3339
from minik8s_modules.controllers.core import pods as podlib
from minik8s_modules.controllers.core.owning import without_condition
from minik8s_modules.controllers.core.steps import Delete, Patch, Step
from minik8s_modules.runtime.controller import Context, Loop, Looping
from minik8s_modules.runtime.informers import BY_NODE

log = logging.getLogger(__name__)

TERMINATED_PODS = 12_500  # --terminated-pod-gc-threshold
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
_TARGET = "DisruptionTarget"
# what ends in one moment is looked at together
_TOGETHER_S = 1.0
_ALL = Key("", "all")


def decide_pod_gc(
    pods: Sequence[JsonObject], nodes: Mapping[str, JsonObject], terminated_pods: int, now: datetime
) -> list[Step]:
    """Return the pods to delete, as steps.

    Args:
        pods: all of them.
        nodes: by name.
        terminated_pods: how many that have ended may stay; 0 or less is all of them.
        now: of conditions.
    """
    steps: list[Step] = []
    ended = [pod for pod in pods if podlib.has_ended(pod) and not objects.is_deleting(pod)]
    surplus = len(ended) - terminated_pods if terminated_pods > 0 else 0
    if surplus > 0:
        steps += [Delete(POD, pod, grace_s=0) for pod in sorted(ended, key=_first_to_go)[:surplus]]
    for pod in pods:
        why = _stranded(pod, nodes)
        if why:
            steps += [*failed(pod, why, now), Delete(POD, pod, grace_s=0)]
    return steps


def failed(pod: JsonObject, why: str, now: datetime) -> list[Patch]:
    """Return the step that says a pod was ended by its collection; none where it has ended (``markFailed…``)."""
    if podlib.has_ended(pod):
        return []
    condition = {
        "type": _TARGET,
        "status": "True",
        "reason": "DeletionByPodGC",
        "message": f"PodGC: {why}",
        "lastTransitionTime": rfc3339(now),
    }
    others = without_condition(objects.status(pod).get("conditions") or [], _TARGET)
    status = {"phase": "Failed", "conditions": [*others, condition]}
    return [Patch(POD, pod, {"status": status}, subresource="status")]


def _first_to_go(pod: JsonObject) -> tuple[bool, str, str]:
    evicted = objects.status(pod).get("reason") == "Evicted"
    return (not evicted, str((pod.get("metadata") or {}).get("creationTimestamp") or ""), objects.name(pod))


def _stranded(pod: JsonObject, nodes: Mapping[str, JsonObject]) -> str:
    """Return why nobody will end a pod that is being deleted; "" where somebody will."""
    if not objects.is_deleting(pod) or not (pod["metadata"].get("deletionGracePeriodSeconds") or 0):
        return ""
    name = objects.spec(pod).get("nodeName")
    if not name:
        return "pod was never bound to a node"
    node = nodes.get(str(name))
    return "node is out of service" if node is not None and is_out_of_service(node) else ""


def is_out_of_service(node: JsonObject) -> bool:
    """Return whether a person has said that nothing runs on the node, and it does not say otherwise."""
    ready = (objects.condition(node, "Ready") or {}).get("status") == "True"
    return not ready and any(taint.get("key") == OUT_OF_SERVICE for taint in objects.spec(node).get("taints") or [])


class PodGc(Looping):
    """Collects pods."""

    def __init__(self, context: Context, terminated_pods: int = TERMINATED_PODS) -> None:
        self._context = context
        self._terminated_pods = terminated_pods
        self._loop = Loop(context, "pod-gc", self.sync, workers=1)
        self._pods = self._loop.reads(POD, BY_NODE)
        self._nodes = self._loop.watch(NODE, _out_of_service_now)
        self._pods.add_handler(self._pod_changed)

    def sync(self, _key: Key) -> None:
        """Look at all pods.

        Raises:
            StatusError: the API refused.
            TemporaryError: it did not answer.
        """
        nodes = {objects.name(node): node for node in objects.readable(self._nodes.list(), is_out_of_service)}
        now = self._context.clock.now()

        def steps(pods: list[JsonObject]) -> list[Step]:
            return decide_pod_gc(pods, nodes, self._terminated_pods, now)

        for step in objects.decided(self._pods.list(), steps, lambda pod: (failed(pod, "", now), _stranded(pod, {}))):
            take(self._context, step)

    def _pod_changed(self, old: JsonObject | None, new: JsonObject | None) -> None:
        if new is not None and _state(new) != (_state(old) if old is not None else (False, False)):
            self._loop.add_after(_ALL, _TOGETHER_S)


def _state(pod: JsonObject) -> tuple[bool, bool]:
    return podlib.has_ended(pod), objects.is_deleting(pod)


def _out_of_service_now(old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
    was, is_ = (node is not None and is_out_of_service(node) for node in (old, new))
    return [_ALL] if is_ and not was else []


def take(context: Context, step: Step, on_delete: Callable[[JsonObject], None] = lambda _pod: None) -> None:
    """Mark a pod as failed, or delete it by its uid; one that has gone meanwhile is left alone."""
    key = objects.key(step.obj) if isinstance(step, Patch | Delete) else Key("", "")
    try:
        match step:
            case Patch(kind, pod, body, subresource):
                body = {**body, "metadata": {"uid": objects.uid(pod)}}
                context.client.patch(kind, key.name, key.namespace, body, subresource=subresource)
            case Delete(kind, pod):
                context.client.delete(kind, key.name, key.namespace, grace_s=0, uid=objects.uid(pod))
                log.info("pod %s is deleted: it had ended, or nobody could end it", key)
                on_delete(pod)
    except (NotFound, Conflict) as error:
        log.debug("pod %s has changed: %s", key, error)
