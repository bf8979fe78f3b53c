"""Events about pods, worded as kubelet's: what happened to containers, and what a decision has to say, once each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, Protocol

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.reconcile.pods.observed import ObservedPod
from minik8s_modules.reconcile.values.values import PodEvent
from minik8s_modules.runtime.events import KUBELET


class Recorder(Protocol):
    """The part of ``EventRecorder`` needed here."""

    def event(
        self,
        obj: JsonObject,
        kind: Literal["Normal", "Warning"],
        reason: str,
        message: str,
        *,
        field_path: str = "",
        component: str = "",
        host: str = "",
    ) -> None:
        """Record that ``reason`` happened to ``obj``."""


def happenings(before: ObservedPod, after: ObservedPod) -> list[PodEvent]:
    """Return the events of the step from ``before`` to ``after``: containers created, started, killed for memory."""
    known = {one.id: one for one in before.attempts()}
    found = []
    for one in after.attempts():
        earlier = known.get(one.id)
        if earlier is None:
            text = f"Created container: {one.container}"
            found.append(PodEvent("Normal", "Created", text, f"created/{one.id}", one.container))
        if one.started_at is not None and (earlier is None or earlier.started_at is None):
            text = f"Started container {one.container}"
            found.append(PodEvent("Normal", "Started", text, f"started/{one.id}", one.container))
        if one.oom_killed and not (earlier is not None and earlier.oom_killed):
            text = f"Memory cgroup out of memory: container {one.container} was killed"
            found.append(PodEvent("Warning", "OOMKilling", text, f"oom/{one.id}", one.container))
    return found


class PodEvents:
    """Records events of pods; ``lookup(uid)`` finds a pod. One caller at a time."""

    def __init__(self, recorder: Recorder, lookup: Callable[[str], JsonObject | None]) -> None:
        self._recorder = recorder
        self._lookup = lookup
        self._recorded: dict[str, frozenset[str]] = {}

    def forget(self, uid: str) -> None:
        """Forget a pod that is gone."""
        self._recorded.pop(uid, None)

    def decided(self, pod: JsonObject, events: Iterable[PodEvent]) -> None:
        """Record what a decision says, unless it is the same occurrence as before."""
        known = self._recorded.get(objects.uid(pod), frozenset())
        said = {event.key: event for event in events}
        for key in said.keys() - known:
            self._record(pod, said[key])
        self._recorded[objects.uid(pod)] = frozenset(said)

    def happened(self, uid: str, before: ObservedPod, after: ObservedPod) -> None:
        """Record what happened to the containers of a pod."""
        pod = self._lookup(uid)
        if pod is not None:
            for event in happenings(before, after):
                self._record(pod, event)

    def image(self, uid: str, image: str, reason: str, message: str) -> None:
        """Record what happened to an image the pod uses."""
        pod = self._lookup(uid)
        if pod is not None:
            # the pause image is no container's: the event is the pod's then
            names = (one["name"] for _, _, one in objects.every_container(pod) if one["image"] == image)
            self._record(pod, PodEvent("Normal", reason, message, "", next(names, "")))

    def uses(self, uid: str, image: str) -> bool:
        """Return whether a container of the pod names ``image``."""
        pod = self._lookup(uid)
        return pod is not None and any(one["image"] == image for _, _, one in objects.every_container(pod))

    def _record(self, pod: JsonObject, event: PodEvent) -> None:
        inits = {one["name"] for one in objects.init_containers(pod)}
        extra = {one["name"] for one in objects.spec(pod).get("ephemeralContainers") or []}
        field = "containers" if event.container not in inits | extra else "initContainers"
        field = "ephemeralContainers" if event.container in extra else field
        path = f"spec.{field}{{{event.container}}}" if event.container else ""
        source = {"component": KUBELET, "host": str(objects.spec(pod).get("nodeName") or "")}
        self._recorder.event(pod, event.type, event.reason, event.message, field_path=path, **source)
