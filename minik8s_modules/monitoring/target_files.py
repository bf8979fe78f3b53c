"""Keeps the directories ``nodes``, ``pods`` and ``envoys`` of target files as the cluster is: one file an object.

The directories are ours: what no object is behind is removed. A file is replaced whole, so that Prometheus, which reads
whenever something changes, never sees half of one. Every minute all of it is compared, for what others changed.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import NODE, POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import Clock, SystemClock
from minik8s_modules.base.files import replace_file
from minik8s_modules.base.metrics import Registry
from minik8s_modules.client.informer import Informer
from minik8s_modules.monitoring.targets import Decision, decide_envoy, decide_node, decide_pod
from minik8s_modules.runtime.informers import Informers, wait_synced
from minik8s_modules.runtime.queue import WorkQueue
from minik8s_modules.runtime.queue_metrics import QueueMetrics
from minik8s_modules.runtime.workers import Workers

log = logging.getLogger(__name__)
COMPARE_S = 60.0
_SUFFIX = ".yml"
_MODE = 0o640


class TargetKey(NamedTuple):
    """A file and the object it is about; ``name`` is "" for a file that nothing is known to be behind."""

    directory: str
    file: str
    namespace: str
    name: str


class Kept(NamedTuple):
    """What is kept in one directory."""

    informer: Informer
    file_of: Callable[[JsonObject], str]
    decide: Callable[[JsonObject], Decision]


class TargetFiles:
    """Writes target files below ``directory`` from ``start`` on."""

    def __init__(self, informers: Informers, directory: Path, registry: Registry, clock: Clock | None = None) -> None:
        self._directory = directory
        self._clock = clock or SystemClock()
        self._kept: Mapping[str, Kept] = {
            "nodes": Kept(informers.of(NODE), objects.name, decide_node),
            "pods": Kept(informers.of(POD), objects.uid, decide_pod),
            "envoys": Kept(informers.of(POD), objects.uid, decide_envoy),
        }
        self._problems: dict[TargetKey, str] = {}
        self._queue: WorkQueue[TargetKey] = WorkQueue(self._clock, counts=QueueMetrics(registry).queue("targets"))
        self._workers = Workers(self._queue, self.sync, "targets", 1)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._compare, name="targets-compare", daemon=True)
        help_text = "Target files, by directory."
        registry.gauge("monitoring_target_files", help_text, ("directory",), self._counted)
        help_text = "Pods whose annotations for scraping cannot be used."
        registry.gauge("monitoring_refused_targets", help_text, (), lambda: {(): float(len(self._problems))})

    def start(self) -> None:
        """Begin once all objects are known; returns at once."""
        for name in self._kept:
            (self._directory / name).mkdir(mode=0o750, exist_ok=True)
        self._thread.start()

    def stop(self) -> None:
        """End; the files stay, and Prometheus goes on with them."""
        self._stop.set()
        self._workers.stop()

    def sync(self, key: TargetKey) -> None:
        """Write, replace or remove one file."""
        kept = self._kept[key.directory]
        obj = kept.informer.get(key.namespace, key.name) if key.name else None
        mine = obj if obj is not None and kept.file_of(obj) == key.file else None
        decision = kept.decide(mine) if mine is not None else Decision("")
        self._tell(key, decision.problem)
        path = self._directory / key.directory / f"{key.file}{_SUFFIX}"
        if not decision.content:
            path.unlink(missing_ok=True)
        elif _content(path) != decision.content:
            replace_file(path, decision.content.encode(), _MODE)

    def _tell(self, key: TargetKey, problem: str) -> None:
        if problem and self._problems.get(key) != problem:
            log.warning("%s %s/%s: %s", key.directory, key.namespace, key.name, problem)
        if problem:
            self._problems[key] = problem
        else:
            self._problems.pop(key, None)

    def _compare(self) -> None:
        if not wait_synced([kept.informer for kept in self._kept.values()], self._stop):
            return
        self._workers.start()
        for directory, kept in self._kept.items():
            kept.informer.add_handler(self._handler(directory))
        while not self._stop.is_set():
            try:
                self._queue_all()
            except OSError as error:
                log.warning("the target files cannot be compared: %s", error)
            self._clock.wait(self._stop, COMPARE_S)

    def _handler(self, directory: str) -> Callable[[JsonObject | None, JsonObject | None], None]:
        def handler(old: JsonObject | None, new: JsonObject | None) -> None:
            for obj in (old, new):
                if obj is not None:
                    self._queue.add(self._key(directory, obj))

        return handler

    def _key(self, directory: str, obj: JsonObject) -> TargetKey:
        file = self._kept[directory].file_of(obj)
        return TargetKey(directory, file, objects.namespace(obj), objects.name(obj))

    def _queue_all(self) -> None:
        for directory, kept in self._kept.items():
            wanted = {key.file: key for key in (self._key(directory, obj) for obj in kept.informer.list())}
            there = {path.name.removesuffix(_SUFFIX) for path in (self._directory / directory).glob(f"*{_SUFFIX}")}
            for file in there - wanted.keys():
                self._queue.add(TargetKey(directory, file, "", ""))
            for key in wanted.values():
                self._queue.add(key)

    def _counted(self) -> Mapping[tuple[str, ...], float]:
        return {(name,): float(sum(1 for _ in (self._directory / name).glob(f"*{_SUFFIX}"))) for name in self._kept}


def _content(path: Path) -> str | None:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return path.read_text(encoding="utf-8")
    return None
