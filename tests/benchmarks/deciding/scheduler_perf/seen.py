"""What a watch sees of pods: who has a node, who was tried, and from that the samples of throughput.

Source: ``throughputCollector`` in util.go, ``getScheduledPods`` and ``isAttempted`` in scheduler_perf.go.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.client.informer import Informer
from minik8s_modules.client.interface import Source

SAMPLE_S, PATIENCE_S = 1.0, 600.0
Labels = Mapping[str, str]


class _Pod(NamedTuple):
    namespace: str
    labels: Labels
    scheduled: bool
    attempted: bool


class SeenPods:
    """The pods of a cluster, by a watch of its own."""

    def __init__(self, client: Source) -> None:
        self._lock = threading.Lock()
        self._pods: dict[str, _Pod] = {}
        self._samplers: list[Sampler] = []
        self._informer = Informer(client, POD, transform=_short)
        self._informer.add_handler(self._on_pod)

    def start(self) -> None:
        """Begin; returns when all pods there are were seen."""
        self._informer.start()
        if not self._informer.wait_synced(PATIENCE_S):
            raise TimeoutError("the API server does not list pods")

    def stop(self) -> None:
        """End."""
        self._informer.stop()

    def _on_pod(self, old: JsonObject | None, new: JsonObject | None) -> None:
        with self._lock:
            if new is None:
                self._pods.pop(objects.uid(old or {}), None)
                return
            was, pod = self._pods.get(objects.uid(new)), _pod(new)
            self._pods[objects.uid(new)] = pod
            if pod.scheduled and not (was is not None and was.scheduled):
                for sampler in self._samplers:
                    sampler.scheduled(pod)

    def count(self, namespace: str, labels: Labels = {}, *, attempted: bool = False) -> int:  # noqa: B006 - read
        """Return how many pods have a node, or with ``attempted`` have one or were tried."""
        with self._lock:
            return sum(
                pod.scheduled or (attempted and pod.attempted)
                for pod in self._pods.values()
                if pod.namespace == namespace and _match(pod.labels, labels)
            )

    def sampled(self, sampler: Sampler) -> Sampler:
        """Have a sampler told of each pod that gets a node from now on."""
        with self._lock:
            self._samplers.append(sampler)
        return sampler


class Sampler:
    """Pods that get a node, in samples of a second; the first one begins when the first pod has been seen."""

    def __init__(self, namespaces: Collection[str], labels: Labels) -> None:
        self._namespaces, self._labels = frozenset(namespaces), labels
        self._scheduled, self._ended = 0, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.samples: list[float] = []
        self._first_s: float | None = None
        self._began_s = self._last_s = 0.0

    def start(self) -> None:
        """Begin."""
        self._began_s = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._ended.set()
        self._thread.join(PATIENCE_S)

    @property
    def average(self) -> float:
        """Return pods per second: the mean of the samples, or of the whole time where that was too short for one."""
        if self.samples:
            return sum(self.samples) / len(self.samples)
        spent_s = self._last_s - (self._first_s or 0.0)
        return (self._scheduled - 1) / spent_s if self._scheduled > 1 and spent_s else 0.0

    @property
    def overall(self) -> float:
        """Return pods per second from the beginning to the last pod that got its node; 0 where none did.

        Upstream's samples begin with the first such pod: they leave out what was waited for it, such as preemption.
        """
        return self._scheduled / (self._last_s - self._began_s) if self._scheduled else 0.0

    def scheduled(self, pod: _Pod) -> None:
        """Count a pod that got its node; the lock of what is seen is held."""
        if pod.namespace in self._namespaces and _match(pod.labels, self._labels):
            self._scheduled, self._last_s = self._scheduled + 1, time.monotonic()
            self._first_s = self._last_s if self._first_s is None else self._first_s

    def _run(self) -> None:
        before, at, skipped = 0, 0.0, 0
        while not self._ended.wait(SAMPLE_S):
            now, scheduled = time.monotonic(), self._scheduled
            if not scheduled:
                continue
            if at and scheduled == before:
                skipped += 1
                continue
            if at:
                self.samples += [(scheduled - before) / (now - at)] * (skipped + 1)
            before, at, skipped = scheduled, now, 0


def _pod(pod: JsonObject) -> _Pod:
    attempted = objects.condition(pod, "PodScheduled") is not None
    return _Pod(objects.namespace(pod), objects.labels(pod), bool(objects.spec(pod).get("nodeName")), attempted)


def _match(labels: Labels, wanted: Labels) -> bool:
    return wanted.items() <= labels.items()


def _short(pod: JsonObject) -> JsonObject:
    """Return of a pod what is looked at: 10,000 of them are kept."""
    kept = {name: pod["metadata"].get(name) for name in ("name", "namespace", "uid", "labels", "resourceVersion")}
    spec = {"nodeName": objects.spec(pod).get("nodeName")}
    return {"metadata": kept, "spec": spec, "status": {"conditions": objects.status(pod).get("conditions") or []}}
