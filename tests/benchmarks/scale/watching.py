"""What the run sees: when each Pod came, was bound and ran; what processes used; how long requests took.

The Pods are watched as any controller would watch them, so times are those at which a client learns of them.
"""

from __future__ import annotations

import contextlib
import math
import re
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import psutil

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.client.api import ApiClient
from minik8s_modules.client.informer import Informer

_BUCKET = re.compile(r"apiserver_request_duration_seconds_bucket\{(.*)\} (\S+)")
_LABEL = re.compile(r'(\w+)="([^"]*)"')
CREATED, BOUND, RUNNING = "created", "bound", "running"


class Times:
    """When Pods were first seen in each state, in seconds of the monotonic clock, by UID."""

    def __init__(self, client: ApiClient) -> None:
        self._lock = threading.Lock()
        self._seen: dict[str, dict[str, float]] = {CREATED: {}, BOUND: {}, RUNNING: {}}
        self._there: Counter[str] = Counter()
        self._of: dict[str, str] = {}
        self._informer = Informer(client, POD, transform=_slim)
        self._informer.add_handler(self._take)
        self._informer.start()

    def _take(self, old: JsonObject | None, new: JsonObject | None) -> None:
        now_s = time.monotonic()
        with self._lock:
            uid = objects.uid(new or old or {})
            before = self._of.pop(uid, "")
            if before:
                self._there[before] -= 1
            if new is None:
                return
            state = RUNNING if new["phase"] == "Running" else BOUND if new["node"] else CREATED
            self._of[uid] = state
            self._there[state] += 1
            for name in (CREATED, BOUND, RUNNING)[: (CREATED, BOUND, RUNNING).index(state) + 1]:
                self._seen[name].setdefault(uid, now_s)

    def there(self) -> int:
        """Return how many Pods there are."""
        with self._lock:
            return sum(self._there.values())

    def running(self) -> int:
        """Return how many Pods run."""
        with self._lock:
            return self._there[RUNNING]

    def forget(self) -> None:
        """Begin anew: Pods that are there count no more."""
        with self._lock:
            for seen in self._seen.values():
                seen.clear()

    def spans(self, begin: str, end: str) -> list[float]:
        """Return how long Pods took from one state to another."""
        with self._lock:
            return sorted(
                at - self._seen[begin][uid] for uid, at in self._seen[end].items() if uid in self._seen[begin]
            )

    def stop(self) -> None:
        """Watch no longer."""
        self._informer.stop()


def _slim(pod: JsonObject) -> JsonObject:
    metadata = pod["metadata"]
    kept = {name: metadata[name] for name in ("name", "namespace", "uid", "resourceVersion")}
    return {"metadata": kept, "phase": objects.status(pod).get("phase"), "node": objects.spec(pod).get("nodeName")}


def quantile(values: list[float], share: float) -> float:
    """Return the value below which ``share`` of the sorted values are; NaN of none."""
    return values[min(len(values) - 1, int(len(values) * share))] if values else math.nan


class Used(NamedTuple):
    """CPU since the process began, in seconds, and PSS now, in MB."""

    cpu_s: float
    pss_mb: float


def used(roots: Mapping[str, int]) -> dict[str, Used]:
    """Return what each part uses, with all its children; ``roots`` are process ids by part."""
    return {part: _of_tree(pid) for part, pid in roots.items()}


def _of_tree(pid: int) -> Used:
    cpu_s = pss_mb = 0.0
    with contextlib.suppress(psutil.Error, OSError):
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            times = process.cpu_times()
            cpu_s += times.user + times.system
            lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
            pss_mb += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
    return Used(cpu_s, pss_mb)


Buckets = dict[tuple[str, float], float]


def buckets(text: str) -> Buckets:
    """Return how many requests of each verb took at most so many seconds, of all resources together."""
    found: Buckets = {}
    for told, count in _BUCKET.findall(text):
        labels = dict(_LABEL.findall(told))
        key = (labels["verb"], float(labels["le"]))
        found[key] = found.get(key, 0.0) + float(count)
    return found


def latencies(before: Buckets, after: Buckets, share: float) -> dict[str, float]:
    """Return by verb the bucket's limit in seconds below which ``share`` of the requests between two looks are."""
    grown = {key: count - before.get(key, 0.0) for key, count in after.items()}
    return {verb: _limit(verb, grown, share) for verb in sorted({verb for verb, _ in grown}) if grown[verb, math.inf]}


def _limit(verb: str, grown: Mapping[tuple[str, float], float], share: float) -> float:
    limits: Iterable[float] = sorted(limit for told, limit in grown if told == verb)
    return next(limit for limit in limits if grown[verb, limit] >= share * grown[verb, math.inf])
