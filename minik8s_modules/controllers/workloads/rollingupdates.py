"""RollingUpdates, the original's: the Pods of a Service get another spec, batch by batch, and keep their names.

    withhold a batch ─▶ the sidecars acknowledge that it gets no requests ─▶ delete ─▶ create ─▶ ready: give it back
         ▲                                                                                            │
         └─────────────────── as many Pods as minimumAlive leaves, ``interval`` after the last ───────┘

What is withheld stands in the status, before anything is deleted; pilots read it there (mesh/mapping.py) and write
there whose sidecars have acknowledged it. So does what the Pods were: whoever is killed at any step is followed by one
that decides the same. ``spec.state`` pauses, aborts and undoes; an update that is deleted leaves no Pod missing.
Source: MiniK8s' pilot, which deleted at once, waited half of ``interval`` and forgot everything when it ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import POD, ROLLING_UPDATE, SERVICE
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.api.pods.mirror_pods import is_mirror
from minik8s_modules.api.pods.sidecar_images import has_sidecar
from minik8s_modules.api.selectors import from_map
from minik8s_modules.base.clock import parse_rfc3339, rfc3339
from minik8s_modules.controllers.core import pods as podlib
from minik8s_modules.controllers.core.owning import with_condition
from minik8s_modules.controllers.core.steps import (
    POD_CREATED,
    POD_DELETED,
    Again,
    Create,
    Delete,
    Patch,
    RecordEvent,
    Step,
    WriteStatus,
)
from minik8s_modules.controllers.core.workload import WorkloadController
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.informers import BY_NAMESPACE

UPDATED_BY = "minik8s.io/updated-by"
"""Annotation of a Pod: the uid of the update that has given it its spec."""
FINALIZER = "minik8s.io/rolling-update"
MOST_PODS = 200
"""Of an update: its status keeps what they were, some 3 kB each, and an object has at most 1.5 MB."""
PROGRESSING = "Progressing"
_ENDS = {"Running": "Finished", "Paused": "Paused", "Aborted": "Aborted", "Undone": "Undone"}
_Why = tuple[str, str]


class ObservedWorkload(NamedTuple):
    """What there is in the update's namespace."""

    service: JsonObject | None
    pods: Mapping[str, JsonObject]
    rivals: Sequence[JsonObject] = ()
    """All its RollingUpdates."""


def decide_rolling_update(update: JsonObject, seen: ObservedWorkload, now: datetime) -> list[Step]:
    """Return the next steps of an update; none when it has come to where it is wanted."""
    if objects.is_deleting(update):
        return _leave(update, seen)
    if not is_at_work(update):
        return []
    return _Work(update, seen, now).go_on() if objects.status(update).get("pods") else _begin(update, seen, now)


def is_at_work(update: JsonObject) -> bool:
    """Return whether something is left to be done for an update."""
    if objects.is_deleting(update):
        return FINALIZER in objects.finalizers(update)
    return bool(objects.status(update).get("phase") != _ENDS[_state(update)])


def _state(update: JsonObject) -> str:
    return str(objects.spec(update).get("state") or "Running")


# --- before the first batch -----------------------------------------------------------------------


def _begin(update: JsonObject, seen: ObservedWorkload, now: datetime) -> list[Step]:
    if _state(update) != "Running":
        return _written(update, {"phase": _state(update)}, (_state(update), "nothing was begun"), now, going=False)
    pods = service_pods(seen)
    obstacle = _obstacle(update, seen, pods)
    if obstacle:
        return _written(update, {"phase": "Pending"}, obstacle, now, going=False)
    # before the first Pod is deleted: whoever deletes the update then waits until none of them is missing
    if FINALIZER not in objects.finalizers(update):
        kept = [*objects.finalizers(update), FINALIZER]
        return [Patch(ROLLING_UPDATE, update, {"metadata": {"finalizers": kept}})]
    # what the Pods were is in the status before one is touched: they can be made again after any crash
    began = {"phase": "Running", "total": len(pods), "updated": 0, "batch": 0, "pods": [_record(pod) for pod in pods]}
    return _written(update, began, ("Started", f"{len(pods)} Pods are to be replaced"), now)


def service_pods(seen: ObservedWorkload) -> list[JsonObject]:
    """Return the Pods that an update of the Service begins with: those that run and have an address, by name."""
    selector = from_map(objects.spec(seen.service or {}).get("selector") or {})
    return [
        pod
        for _name, pod in sorted(seen.pods.items())
        if not selector.empty
        and selector.matches(objects.labels(pod))
        and podlib.phase(pod) == "Running"
        and objects.status(pod).get("podIP")
        and not objects.is_deleting(pod)
    ]


def _obstacle(update: JsonObject, seen: ObservedWorkload, pods: Sequence[JsonObject]) -> _Why | None:
    """Return why the update cannot begin now."""
    declared = objects.spec(update)
    name, port = declared["serviceRef"], declared["port"]
    if seen.service is None:
        return "ServiceNotFound", f"there is no Service {name} in this namespace"
    if all(each.get("port") != port for each in objects.spec(seen.service).get("ports") or []):
        return "PortNotFound", f"Service {name} has no port {port}"
    if not pods:
        return "NoPods", f"no Pod that Service {name} selects runs"
    found = (_number(pods, declared.get("minimumAlive") or 0), *map(_kept_by_others, pods), _rival(update, seen, pods))
    return next((why for why in found if why), None)


def _number(pods: Sequence[JsonObject], alive: int) -> _Why | None:
    if len(pods) <= alive:
        return "MinimumAlive", f"{len(pods)} Pods run, and minimumAlive has {alive} of them stay"
    if len(pods) > MOST_PODS:
        return "TooManyPods", f"{len(pods)} Pods run, and an update replaces at most {MOST_PODS}"
    return None


def _kept_by_others(pod: JsonObject) -> _Why | None:
    if is_mirror(pod):
        return "PodsStatic", f"Pod {objects.name(pod)} stands for a file on its node: change that one"
    owner = objects.controller_of(pod)
    if owner is None:
        return None
    message = f"{owner.get('kind')} {owner.get('name')} keeps Pod {objects.name(pod)}, and would make it again"
    return "PodsOwned", f"{message} as its own template says: change that one"


def _rival(update: JsonObject, seen: ObservedWorkload, pods: Sequence[JsonObject]) -> _Why | None:
    names = {objects.name(pod) for pod in pods}
    for other in seen.rivals:
        if objects.uid(other) != objects.uid(update) and is_at_work(other) and names & _records(other).keys():
            return "Conflicted", f"RollingUpdate {objects.name(other)} is replacing Pods of this Service"
    return None


def _record(pod: JsonObject) -> JsonObject:
    """Return what a Pod was, so that it can be made again, on whatever node."""
    spec = {
        field: each for field, each in objects.spec(pod).items() if field not in {"nodeName", "ephemeralContainers"}
    }
    return {
        "name": objects.name(pod),
        "labels": objects.labels(pod),
        "annotations": objects.annotations(pod),
        "spec": spec,
    }


def _records(update: JsonObject) -> dict[str, JsonObject]:
    return {each["name"]: each for each in objects.status(update).get("pods") or []}


def _made(update: JsonObject, record: JsonObject, *, new: bool) -> Create:
    annotations = record.get("annotations") or {}
    pod = {
        "apiVersion": POD.api_version,
        "kind": POD.kind,
        "metadata": {
            "name": record["name"],
            "namespace": objects.namespace(update),
            "labels": record.get("labels") or {},
            "annotations": {**annotations, UPDATED_BY: objects.uid(update)} if new else annotations,
        },
        "spec": objects.spec(update)["newPodSpec"] if new else record["spec"],
    }
    return Create(POD, pod, POD_CREATED)


def _leave(update: JsonObject, seen: ObservedWorkload) -> list[Step]:
    """Return what an update that is deleted still does: Pods it has deleted are made again, as they were."""
    if FINALIZER not in objects.finalizers(update):
        return []
    names = objects.status(update).get("withheld") or []
    found = {name: seen.pods.get(name) for name in names}
    if any(pod is not None and objects.is_deleting(pod) for pod in found.values()):
        return []
    records = _records(update)
    missing = [_made(update, records[name], new=False) for name, pod in found.items() if pod is None]
    kept = [each for each in objects.finalizers(update) if each != FINALIZER]
    return [*missing, Patch(ROLLING_UPDATE, update, {"metadata": {"finalizers": kept or None}})]


# --- batch by batch -------------------------------------------------------------------------------


class _Work:
    """One decision on an update that has begun."""

    def __init__(self, update: JsonObject, seen: ObservedWorkload, now: datetime) -> None:
        self._update, self._seen, self._now = update, seen, now
        self._spec, self._status = objects.spec(update), objects.status(update)
        self._state = _state(update)
        self._records = _records(update)
        self._withheld: list[str] = list(self._status.get("withheld") or [])
        self._steps: list[Step] = []

    def go_on(self) -> list[Step]:
        """Return the steps of the batch at work; when it is over, the next one."""
        waiting = [why for why in [self._attend(name) for name in self._withheld] if why]
        self._withheld = [name for name in self._withheld if not self._is_done(name)]
        if self._withheld:
            why = waiting[0] if waiting else ("Replacing", f"Pods {_list(self._withheld)} are replaced")
            return self._published({"phase": "Running"}, why)
        rest = self._rest_s()
        if rest > 0:
            why = ("Interval", f"a batch takes at least {self._spec.get('interval')} seconds")
            return [*self._published({"phase": "Running"}, why), Again(rest)]
        return self._next()

    def _attend(self, name: str) -> _Why | None:
        """Take the next step for a Pod that is withheld; return what it waits for."""
        pod = self._seen.pods.get(name)
        if pod is None:
            self._steps.append(_made(self._update, self._records[name], new=self._wants_new))
            return None
        if objects.is_deleting(pod):
            return "Replacing", f"Pod {name} ends"
        if self._is_new(pod) == self._wants_new:
            return None if podlib.is_ready(pod) else ("PodsNotReady", f"Pod {name} is not ready yet")
        # one that is not ready gets no requests anyway: nobody has to acknowledge that
        deaf = self._unaware() if podlib.is_ready(pod) else []
        if deaf:
            message = f"the sidecars of Pods {_list(deaf)} have not acknowledged that {name} gets no requests"
            return "WaitsForSidecars", message
        self._steps.append(Delete(POD, pod, POD_DELETED))
        return None

    def _next(self) -> list[Step]:
        """Return the beginning of the next batch, or the end."""
        end = _ENDS[self._state]
        # an update that is paused or aborted ends the batch it is at and begins no other
        left = [] if self._state in {"Aborted", "Paused"} else self._unlike()
        if not left:
            return self._published(
                {"phase": end}, (end, f"{self._updated()} of {len(self._records)} Pods have the new spec")
            )
        batch = self._room(left)
        if not batch:
            alive, ready = self._spec.get("minimumAlive") or 0, len(self._ready())
            why = ("MinimumAlive", f"{ready} Pods are ready, and minimumAlive has {alive} of them stay")
            return self._published({"phase": "Running"}, why)
        self._withheld = batch
        number = (self._status.get("batch") or 0) + 1
        begun: JsonObject = {"phase": "Running", "batch": number, "acknowledged": []}
        begun["batchStartTime"] = rfc3339(self._now)
        why = ("WaitsForSidecars", f"sidecars are told to send no requests to {_list(batch)}")
        self._steps.append(RecordEvent(self._update, "Normal", "BatchStarted", f"Batch {number}: {_list(batch)}"))
        return self._published(begun, why)

    def _room(self, left: Sequence[str]) -> list[str]:
        """Return which of the Pods that are left make a batch: first those that do not serve anyway."""
        alive, ready = self._spec.get("minimumAlive") or 0, self._ready()
        idle = [name for name in left if name not in ready]
        serving = [name for name in left if name in ready][: max(len(ready) - alive, 0)]
        # one at least: a Pod that does not serve can be replaced whatever minimumAlive says
        return sorted([*idle, *serving][: max(len(self._records) - alive, 1)])

    @property
    def _wants_new(self) -> bool:
        return self._state in {"Running", "Paused"}

    def _is_new(self, pod: JsonObject) -> bool:
        return objects.annotations(pod).get(UPDATED_BY) == objects.uid(self._update)

    def _is_done(self, name: str) -> bool:
        pod = self._seen.pods.get(name)
        return pod is not None and self._serves(pod) and self._is_new(pod) == self._wants_new

    @staticmethod
    def _serves(pod: JsonObject) -> bool:
        return podlib.is_ready(pod) and not objects.is_deleting(pod)

    def _there(self) -> Iterable[tuple[str, JsonObject]]:
        """Yield the Pods of the update that there are: what somebody else has deleted stays away."""
        for name in self._records:
            pod = self._seen.pods.get(name)
            if pod is not None and not objects.is_deleting(pod):
                yield name, pod

    def _unlike(self) -> list[str]:
        return [name for name, pod in self._there() if self._is_new(pod) != self._wants_new]

    def _ready(self) -> set[str]:
        return {name for name, pod in self._there() if podlib.is_ready(pod)}

    def _updated(self) -> int:
        return sum(self._is_new(pod) and podlib.is_ready(pod) for _name, pod in self._there())

    def _unaware(self) -> list[str]:
        """Return the Pods whose sidecars may still send requests to what is withheld."""
        acknowledged = set(self._status.get("acknowledged") or [])
        return [
            name for name, pod in sorted(self._seen.pods.items()) if name not in acknowledged and _has_live_sidecar(pod)
        ]

    def _rest_s(self) -> float:
        """Return how long the batch that is done is still to last."""
        began = self._status.get("batchStartTime")
        if not began or self._state == "Aborted":
            return 0.0
        over = parse_rfc3339(began) + timedelta(seconds=self._spec.get("interval") or 0)
        return (over - self._now).total_seconds()

    def _published(self, status: JsonObject, why: _Why) -> list[Step]:
        published = {**status, "withheld": self._withheld, "updated": self._updated()}
        return [*self._steps, *_written(self._update, published, why, self._now, going=status["phase"] == "Running")]


def _has_live_sidecar(pod: JsonObject) -> bool:
    return podlib.phase(pod) == "Running" and not objects.is_deleting(pod) and has_sidecar(objects.spec(pod))


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown  # noqa: PLR2004 - as many as shown


def _written(update: JsonObject, changes: JsonObject, why: _Why, now: datetime, *, going: bool = True) -> list[Step]:
    """Return the step that writes the status, if it differs, and what an end of the update is told by."""
    old = objects.status(update)
    condition = {
        "type": PROGRESSING,
        "status": "True" if going else "False",
        "reason": why[0],
        "message": why[1],
        "lastTransitionTime": rfc3339(now),
    }
    conditions = _with_message(with_condition(old.get("conditions") or [], condition), why[1])
    status = {**old, **changes, "observedGeneration": objects.generation(update), "conditions": conditions}
    if status == old:
        return []
    steps: list[Step] = [WriteStatus(ROLLING_UPDATE, update, status)]
    if changes["phase"] != old.get("phase") and changes["phase"] != "Pending":
        steps.append(RecordEvent(update, "Normal", why[0], why[1]))
    return steps


def _with_message(conditions: Iterable[JsonObject], message: str) -> list[JsonObject]:
    return [{**each, "message": message} if each.get("type") == PROGRESSING else each for each in conditions]


class RollingUpdateController(WorkloadController):
    """Replaces the Pods of RollingUpdates that are at work; what changes in a namespace without any costs nothing."""

    def __init__(self, context: Context) -> None:
        super().__init__(context, ROLLING_UPDATE, ())
        self._pods = self.loop.watch(POD, self._concerned, BY_NAMESPACE)
        self._services = self.loop.watch(SERVICE, self._concerned)

    def decide(self, obj: JsonObject) -> Sequence[Step]:
        """Return the next steps of one update."""
        space = objects.namespace(obj)
        service = self._services.get(space, objects.spec(obj)["serviceRef"])
        pods = {objects.name(pod): pod for pod in self._pods.by_index(BY_NAMESPACE, space)} if is_at_work(obj) else {}
        return decide_rolling_update(
            obj, ObservedWorkload(service, pods, self._updates(space)), self.context.clock.now()
        )

    def _concerned(self, old: JsonObject | None, new: JsonObject | None) -> list[Key]:
        updates = self._updates(objects.namespace(new if new is not None else old or {}))
        return [objects.key(each) for each in updates if is_at_work(each)]

    def _updates(self, namespace: str) -> list[JsonObject]:
        return list(self.own.by_index(BY_NAMESPACE, namespace))
