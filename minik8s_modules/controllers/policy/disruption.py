"""PodDisruptionBudgets: how many of the pods a budget selects may go now, by ``decide_budget``.

What asks is the ``eviction`` subresource (apiserver/verbs/eviction.py): it takes one from ``disruptionsAllowed`` and
notes the pod in ``disruptedPods``; until that pod is seen to go, for two minutes at most, it counts as unhealthy here.
Source: kubernetes ``pkg/controller/disruption``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import (
    DEPLOYMENT,
    KINDS,
    POD,
    POD_DISRUPTION_BUDGET,
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    STATEFUL_SET,
    Kind,
)
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.base.clock import rfc3339
from minik8s_modules.client.informer import Informer
from minik8s_modules.controllers.core import pods as podlib
from minik8s_modules.controllers.core.owning import selector_of, with_condition
from minik8s_modules.controllers.core.steps import Again, Patch, RecordEvent, Step, WriteStatus
from minik8s_modules.controllers.core.workload import WorkloadController
from minik8s_modules.controllers.workloads.rollouts import scaled
from minik8s_modules.runtime.controller import Context, own_keys
from minik8s_modules.runtime.informers import BY_LABEL, BY_NAMESPACE, selected

# an eviction whose deletion is not seen by then is forgotten (disruption.go, DeletionTimeout)
DELETION_TIMEOUT = timedelta(minutes=2)
_ALLOWED = "DisruptionAllowed"
_SCALABLE = (DEPLOYMENT, REPLICA_SET, REPLICATION_CONTROLLER, STATEFUL_SET)
_UNMANAGED = (
    "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the status of "
    "the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods please "
    'set ".spec.minAvailable" field of the PDB to an integer value.'
)


class Scale(NamedTuple):
    """A workload that declares a number of pods."""

    uid: str
    replicas: int


class Expected(NamedTuple):
    """How many pods there should be and must stay healthy, or why that cannot be said."""

    pods: int = 0
    healthy: int = 0
    unmanaged: bool = False
    trouble: str = ""


def decide_budget(
    budget: JsonObject, pods: Sequence[JsonObject], scales: Mapping[str, Scale | None], now: datetime
) -> list[Step]:
    """Return the steps to the status that the pods give.

    Args:
        budget: the object.
        pods: those that it selects.
        scales: by a pod's uid, what its controller declares; None for a controller without replicas.
        now: decides which evictions are to be forgotten.
    """
    expected = expected_of(budget, pods, scales)
    disrupted, forgotten = disrupted_pods(budget, pods, now)
    steps: list[Step] = [
        RecordEvent(
            pod, "Warning", "NotDeleted", f"Pod was expected by PDB {objects.key(budget)} to be deleted but it wasn't"
        )
        for pod in forgotten
    ]
    steps += [patch for pod in forgotten for patch in _not_targeted(pod, now)]
    status = _next_status(budget, pods, expected, disrupted, now)
    if status != objects.status(budget):
        steps += _events(budget, expected)
        steps.append(WriteStatus(POD_DISRUPTION_BUDGET, budget, status))
    waits = [(moment + DELETION_TIMEOUT - now).total_seconds() for moment in disrupted.values()]
    return [*steps, Again(max(0.1, min(waits)))] if waits else steps


def _not_targeted(pod: JsonObject, now: datetime) -> list[Step]:
    """Return the step that takes back what an eviction said of a pod that stayed (``syncStalePodDisruption``)."""
    said = objects.condition(pod, "DisruptionTarget")
    if said is None or said.get("status") != "True":
        return []
    condition = {**said, "status": "False", "lastTransitionTime": rfc3339(now)}
    conditions = [condition if each == said else each for each in objects.status(pod)["conditions"]]
    return [Patch(POD, pod, {"status": {"conditions": conditions}}, subresource="status")]


def _events(budget: JsonObject, expected: Expected) -> Iterable[RecordEvent]:
    if expected.trouble:
        text = f"Failed to calculate the number of expected pods: {expected.trouble}"
        yield RecordEvent(budget, "Warning", "CalculateExpectedPodCountFailed", text)
    elif expected.unmanaged and objects.status(budget).get("observedGeneration") != objects.generation(budget):
        selector = objects.spec(budget).get("selector")
        yield RecordEvent(budget, "Warning", "UnmanagedPods", _UNMANAGED.format(selector))


def expected_of(budget: JsonObject, pods: Sequence[JsonObject], scales: Mapping[str, Scale | None]) -> Expected:
    """Return how many pods there should be (``getExpectedPodCount``).

    A number of ``minAvailable`` needs no scale: it counts the pods there are.
    """
    declared = objects.spec(budget)
    least, most = declared.get("minAvailable"), declared.get("maxUnavailable")
    if isinstance(least, int):
        return Expected(len(pods), least)
    if least is None and most is None:
        return Expected()
    found: dict[str, int] = {}
    for pod in pods:
        controller = objects.controller_of(pod)
        if controller is None:
            continue
        scale = scales.get(objects.uid(pod))
        if scale is None:
            named = f'{str(controller.get("kind")).lower()} "{controller.get("name")}"'
            return Expected(trouble=f"{named} of pod {objects.name(pod)} declares no number of replicas")
        found[scale.uid] = scale.replicas
    total = sum(found.values())
    healthy = scaled(least, total, up=True) if least is not None else max(0, total - scaled(most, total, up=True))
    return Expected(total, healthy, any(objects.controller_of(pod) is None for pod in pods))


def disrupted_pods(
    budget: JsonObject, pods: Iterable[JsonObject], now: datetime
) -> tuple[dict[str, datetime], list[JsonObject]]:
    """Return the evictions not seen to happen yet, by the pod's name, and the pods whose eviction is forgotten."""
    noted = objects.status(budget).get("disruptedPods") or {}
    waiting, forgotten = {}, []
    for pod in pods:
        moment = podlib.moment(str(noted.get(objects.name(pod)) or ""))
        if moment is None or objects.is_deleting(pod):
            continue
        if moment + DELETION_TIMEOUT < now:
            forgotten.append(pod)
        else:
            waiting[objects.name(pod)] = moment
    return waiting, forgotten


def _next_status(
    budget: JsonObject,
    pods: Sequence[JsonObject],
    expected: Expected,
    disrupted: Mapping[str, datetime],
    now: datetime,
) -> JsonObject:
    known = objects.status(budget)
    if expected.trouble:
        # fail-safe: what is not known is not spent
        counts = {field: known.get(field) or 0 for field in ("currentHealthy", "desiredHealthy", "expectedPods")}
        allowed, reason = 0, "SyncFailed"
    else:
        healthy = sum(
            podlib.is_ready(pod) and not objects.is_deleting(pod) and objects.name(pod) not in disrupted for pod in pods
        )
        counts = {"currentHealthy": healthy, "desiredHealthy": expected.healthy, "expectedPods": expected.pods}
        allowed = max(0, healthy - expected.healthy) if expected.pods > 0 else 0
        reason = "SufficientPods" if allowed else "InsufficientPods"
    condition = {
        "type": _ALLOWED,
        "status": "True" if allowed else "False",
        "reason": reason,
        "message": expected.trouble,
        "lastTransitionTime": rfc3339(now),
        "observedGeneration": objects.generation(budget),
    }
    status: JsonObject = {"disruptionsAllowed": allowed, **counts, "observedGeneration": objects.generation(budget)}
    if disrupted:
        status["disruptedPods"] = {name: rfc3339(moment) for name, moment in sorted(disrupted.items())}
    status["conditions"] = _with_generation(with_condition(known.get("conditions") or [], condition), condition)
    return status


def _with_generation(conditions: list[JsonObject], wanted: JsonObject) -> list[JsonObject]:
    """Return the conditions with message and observedGeneration of ``wanted``, also where its state has not changed."""
    news = {field: wanted[field] for field in ("message", "observedGeneration")}
    return [{**each, **news} if each.get("type") == wanted["type"] else each for each in conditions]


class DisruptionController(WorkloadController):
    """Keeps the status of PodDisruptionBudgets."""

    def __init__(self, context: Context) -> None:
        super().__init__(context, POD_DISRUPTION_BUDGET, ())
        self._pods = self.loop.watch(POD, self._selecting, BY_LABEL, BY_NAMESPACE)
        self._workloads: dict[Kind, Informer] = {
            kind: self.loop.watch(kind, self._of_namespace, BY_NAMESPACE) for kind in _SCALABLE
        }

    def decide(self, obj: JsonObject) -> Sequence[Step]:
        """Return the steps for one budget."""
        found = list(selected(self._pods, objects.namespace(obj), selector_of(obj)))
        scales = {objects.uid(pod): self._scale_of(pod) for pod in found if objects.controller_of(pod)}
        return decide_budget(obj, found, scales, self.context.clock.now())

    def _scale_of(self, obj: JsonObject) -> Scale | None:
        """Return what the controller of ``obj`` declares; a replica set of a deployment has the deployment's scale."""
        reference = objects.controller_of(obj) or {}
        kind = KINDS.by_api_version(str(reference.get("apiVersion")), str(reference.get("kind")))
        informer = self._workloads.get(kind) if kind is not None else None
        owner = informer.get(objects.namespace(obj), str(reference.get("name"))) if informer is not None else None
        if owner is None or objects.uid(owner) != reference.get("uid"):
            return None
        above = self._scale_of(owner) if kind == REPLICA_SET and objects.controller_of(owner) else None
        return above or Scale(objects.uid(owner), int(objects.spec(owner).get("replicas") or 0))

    def _selecting(self, old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
        found = [obj for obj in (old, new) if obj is not None]
        return {
            objects.key(budget)
            for obj in found
            for budget in self.own.by_index(BY_NAMESPACE, objects.namespace(obj))
            if selector_of(budget).matches(objects.labels(obj))
        }

    def _of_namespace(self, old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
        if old is not None and new is not None and objects.spec(old) == objects.spec(new):
            return []
        spaces = {key.namespace for key in own_keys(old, new)}
        return {objects.key(each) for space in spaces for each in self.own.by_index(BY_NAMESPACE, space)}
