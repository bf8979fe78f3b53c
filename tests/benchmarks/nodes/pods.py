"""Pods of the installed cluster and the Docker floor: ``python -m tests.benchmarks.nodes.pods [--trace]``, a minute.

The clock runs from the create request to the watch event that says Running. The floor makes the same pod (pause and
app container, veth, address) by raw calls on the same dockerd, in turn with ours, so that both meet the same load;
bars are on differences and ratios of such pairs. Pods are without their account's token, as the floor is, except where
a row says so (``--tokens`` for all): a token is a request, and the sections secrets and volumes, more. ``--trace``
prints when each stage was seen from outside: the API's answers and watch events, and Docker's own account of its
containers.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import tempfile
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from minik8s_modules.api.kinds import NAMESPACE, POD
from minik8s_modules.client.api import ApiClient
from minik8s_modules.module_utils.minik8s.core import labels
from minik8s_modules.module_utils.minik8s.core.docker import Docker
from tests.benchmarks.figures import Figure
from tests.benchmarks.nodes.docker_floor import THREADS, clean, floor
from tests.support.clusters.installed import IMAGE, KUBECONFIG
from tests.support.node import TestNode

BAR_LAND_MS, BAR_WANTED_MS, BAR_BURST = 200.0, 100.0, 1.4
SINGLES, BURST, BURSTS, IDLE_S = 25, 30, 5, 60.0
TIMEOUT_S = 60.0
WATCH_S = 3600
SETTLE_S = 0.1
"""After a removal, so that what it leaves to do (addresses, statuses, links) is not measured with what comes next."""
PREFIX = "bench-"
_NUMBERS = itertools.cycle(range(7, 250))
"""The floor's pods: never the number just used, whose link the kernel removes some milliseconds after its pod."""


class Bench:
    """A namespace of its own on a cluster, with a watch on its pods that notes when each was what."""

    def __init__(self, api: ApiClient, *, tokens: bool = False) -> None:
        self.tokens = tokens
        self.namespace = f"{PREFIX}{uuid.uuid4().hex[:8]}"
        self.api = api
        self._docker = Docker()
        self.seen: dict[str, dict[str, float]] = defaultdict(dict)
        self._changed = threading.Condition()
        self.api.create(NAMESPACE, {"metadata": {"name": self.namespace}})
        revision = self.api.list(POD, self.namespace).resource_version
        self._watch = self.api.watch(POD, self.namespace, resource_version=revision, timeout_s=WATCH_S)
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        for event in self._watch:
            now = time.time()
            pod = event.object
            with self._changed:
                for stage in _stages(event.type, pod):
                    self.seen[pod["metadata"].get("name", "")].setdefault(stage, now)
                self._changed.notify_all()

    def wait(self, names: list[str], stage: str) -> float:
        """Return the Unix second at which the last of ``names`` reached ``stage``."""
        with self._changed:
            done = self._changed.wait_for(lambda: all(stage in self.seen[name] for name in names), TIMEOUT_S)
            assert done, f"not {stage} within {TIMEOUT_S:g} s: {[one for one in names if stage not in self.seen[one]]}"
            return max((self.seen[name][stage] for name in names), default=0.0)

    def create(self, name: str) -> None:
        """Create a pod and note when it was asked for and answered."""
        container = {"name": "app", "image": IMAGE, "command": ["sleep", "3600"]}
        body = {
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"containers": [container], "automountServiceAccountToken": self.tokens},
        }
        began = time.time()
        self.api.create(POD, body)
        with self._changed:
            self.seen[name].update(asked=began, answered=time.time())

    def run(self, count: int) -> tuple[float, list[str]]:
        """Create ``count`` pods, 8 requests at a time; return the milliseconds until all were seen Running."""
        names = [f"pod-{uuid.uuid4().hex[:8]}" for _ in range(count)]
        began = time.time()
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(self.create, names))
        return (self.wait(names, "running") - began) * 1e3, names

    def remove(self, names: list[str]) -> None:
        """Delete the pods at once and wait until nothing of them is on the node."""
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(lambda name: self.api.delete(POD, name, self.namespace, grace_s=0), names))
        self.wait(names, "deleted")
        deadline = time.monotonic() + TIMEOUT_S
        while left := self._on_node().intersection(names):
            assert time.monotonic() < deadline, f"containers of {sorted(left)} are still there"
            time.sleep(0.05)
        time.sleep(SETTLE_S)

    def _on_node(self) -> set[str]:
        """Return the pods that Docker has containers of."""
        found = self._docker.containers({labels.POD_NAMESPACE: self.namespace})
        return {one["Labels"][labels.POD_NAME] for one in found}

    def close(self) -> None:
        """Remove what is left in the namespace, and the namespace."""
        self.remove([one["metadata"]["name"] for one in self.api.list(POD, self.namespace).items])
        self.api.delete(NAMESPACE, self.namespace)
        self._watch.close()
        self._thread.join(5)
        self._docker.close()
        self.api.close()


def _stages(kind: str, pod: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a watch event says of the pod."""
    if kind == "DELETED":
        yield "deleted"
        return
    yield "added"
    if pod.get("spec", {}).get("nodeName"):
        yield "bound"
    status = pod.get("status", {})
    if status.get("podIP"):
        yield "podIP"
    if status.get("phase") == "Running":
        yield "running"


def installed() -> ApiClient:
    """Return the installed cluster's API."""
    return ApiClient.from_kubeconfig(KUBECONFIG, user_agent="bench")


@contextmanager
def place(connect: Callable[[], ApiClient] = installed, *, tokens: bool = False) -> Iterator[tuple[Bench, TestNode]]:
    """Yield our side and the floor's; both are gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        node = TestNode(Path(folder))
        try:
            node.run("network", node.network())
            bench = Bench(connect(), tokens=tokens)
            try:
                yield bench, node
            finally:
                bench.close()
        finally:
            node.close()


def ours_once(bench: Bench, count: int) -> float:
    """Return the milliseconds ``count`` pods took; they are gone afterwards."""
    spent_ms, names = bench.run(count)
    bench.remove(names)
    return spent_ms


def floor_once(node: TestNode, count: int) -> float:
    """Return the milliseconds ``count`` raw pods took; they are gone afterwards."""
    numbers = list(itertools.islice(_NUMBERS, count))
    began = time.perf_counter()
    floor(node, numbers)
    spent_ms = (time.perf_counter() - began) * 1e3
    clean(node)
    time.sleep(SETTLE_S)
    return spent_ms


def pairs(bench: Bench, node: TestNode, count: int, rounds: int) -> tuple[list[float], list[float]]:
    """Return the milliseconds of floor and of ours in ``rounds`` pairs whose order alternates; one more warms up."""
    calls: tuple[Callable[[], float], ...] = (lambda: floor_once(node, count), lambda: ours_once(bench, count))
    found: list[tuple[float, float]] = []
    for turn in range(rounds + 1):
        order = (0, 1) if turn % 2 else (1, 0)
        spent = {at: calls[at]() for at in order}
        found.append((spent[0], spent[1]))
    return [pair[0] for pair in found[1:]], [pair[1] for pair in found[1:]]


def singles(bench: Bench, node: TestNode, rounds: int = SINGLES) -> list[Figure]:
    """Measure one pod at a time."""
    low, high = pairs(bench, node, 1, rounds)
    more = statistics.median(ours - raw for raw, ours in zip(low, high, strict=True))
    text = f"n={rounds}"
    if bench.tokens:
        return [
            Figure("pod with a token, create → Running, p50", statistics.median(high), "ms", None, text),
            Figure("pod with a token, create → Running over the floor, p50", more, "ms", BAR_LAND_MS, text),
        ]
    return [
        Figure("pod create → Running, p50", statistics.median(high), "ms", None, text),
        Figure("pod create → Running, minimum", min(high), "ms", None, text),
        Figure("the Docker floor, p50", statistics.median(low), "ms", None, text),
        Figure("the Docker floor, minimum", min(low), "ms", None, text),
        Figure("minimum over the floor's minimum", min(high) - min(low), "ms", None, text),
        Figure("pod create → Running over the floor, p50: limit", more, "ms", BAR_LAND_MS, text),
        Figure("pod create → Running over the floor, p50: goal", more, "ms", BAR_WANTED_MS, text),
    ]


def bursts(bench: Bench, node: TestNode, rounds: int = BURSTS) -> list[Figure]:
    """Measure thirty pods at once."""
    low, high = pairs(bench, node, BURST, rounds)
    ratio = statistics.median(ours / raw for raw, ours in zip(low, high, strict=True))
    text = f"n={rounds}"
    return [
        Figure(f"{BURST} pods at once, p50", statistics.median(high), "ms", None, text),
        Figure(f"the Docker floor of {BURST}, {THREADS} threads, p50", statistics.median(low), "ms", None, text),
        Figure(f"{BURST} pods at once over the floor, p50 of ratios", ratio, "x", BAR_BURST, text),
    ]


def after_idle(bench: Bench, node: TestNode, idled_s: float = 0.0) -> list[Figure]:
    """Measure the first pod after nothing has happened for a minute (``idled_s`` of it are over): all is cold."""
    time.sleep(max(0.0, IDLE_S - idled_s))
    first = ours_once(bench, 1)
    raw = floor_once(node, 1)
    return [
        Figure(f"first pod after {IDLE_S:g} s of idleness", first, "ms", None, "n=1"),
        Figure(f"first pod after {IDLE_S:g} s of idleness, over the floor", first - raw, "ms", None, "n=1"),
    ]


def measure() -> list[Figure]:
    """Measure all rows on the installed cluster."""
    with place() as (bench, node):
        found = [*singles(bench, node), *bursts(bench, node), *after_idle(bench, node)]
        bench.tokens = True
        return [*found, *singles(bench, node)]


@contextmanager
def docker_times(namespace: str) -> Iterator[dict[str, dict[str, float]]]:
    """Yield when Docker created and started each container of our pods, by its own clock; complete at the end."""
    seen: dict[str, dict[str, float]] = defaultdict(dict)
    argv = ["docker", "events", "--format", "{{json .}}", "--filter", "type=container"]
    argv += ["--filter", f"label={labels.POD_NAMESPACE}={namespace}"]

    def read(lines: Iterable[str]) -> None:
        for line in lines:
            raw = json.loads(line)
            marks = raw["Actor"]["Attributes"]
            stage = f"{raw['Action']} {marks.get(labels.TYPE, '')}"
            seen[marks[labels.POD_NAME]].setdefault(stage, raw["timeNano"] / 1e9)

    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        reader = threading.Thread(target=read, args=(process.stdout,))
        reader.start()
        time.sleep(SETTLE_S)
        try:
            yield seen
        finally:
            time.sleep(SETTLE_S)
            process.terminate()
            reader.join()


def trace(rounds: int, *, tokens: bool) -> None:
    """Print, per stage in order, how long after the request it was reached, and how long after the stage before."""
    with place(tokens=tokens) as (bench, node), docker_times(bench.namespace) as docker:
        names: list[str] = []
        for _ in range(rounds + 1):
            _, made = bench.run(1)
            bench.remove(made)
            floor_once(node, 1)
            names += made[:1]
        rows = [{**bench.seen[name], **docker[name]} for name in names[1:]]
    stages = sorted(set(rows[0]) - {"asked"}, key=lambda stage: _after(rows, stage))
    before = 0.0
    for stage in stages:
        after = _after(rows, stage)
        print(f"{stage:20} {after:8.1f} ms  {after - before:+8.1f}")
        before = after
    print(f"load {os.getloadavg()[0]:.1f}, n={rounds}")


def _after(rows: list[dict[str, float]], stage: str) -> float:
    return statistics.median((row[stage] - row["asked"]) * 1e3 for row in rows if stage in row)


def main() -> None:
    """Measure or trace, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", type=int, default=0, metavar="N", help="stages of N pods instead")
    parser.add_argument("--singles", type=int, default=0, metavar="N", help="only N single pods")
    parser.add_argument("--bursts", type=int, default=0, metavar="N", help="only N bursts")
    parser.add_argument("--tokens", action="store_true", help="pods with their account's token")
    given = parser.parse_args()
    if given.trace:
        trace(given.trace, tokens=given.tokens)
        return
    if given.singles or given.bursts:
        with place(tokens=given.tokens) as (bench, node):
            figures = [
                *(singles(bench, node, given.singles) if given.singles else ()),
                *(bursts(bench, node, given.bursts) if given.bursts else ()),
            ]
    else:
        figures = measure()
    for figure in figures:
        print(figure.line())


if __name__ == "__main__":
    main()
