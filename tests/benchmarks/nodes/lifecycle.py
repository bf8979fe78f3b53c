"""A pod's life on the installed cluster: ``python -m tests.benchmarks.nodes.lifecycle``, half a minute.

Init containers are measured against the same pod without any, in turn, and beside what Docker takes for two containers
at the same load, one after the other, beyond their run time; readiness from the moment a server answers a
probe well to the watch event that says Ready; a deletion from its request to the watch event that says DELETED.
"""

from __future__ import annotations

import http.server
import statistics
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from minik8s_modules.api.kinds import NAMESPACE, POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.client.api import ApiClient
from minik8s_modules.module_utils.minik8s.core.docker import Docker
from tests.benchmarks.figures import Figure
from tests.benchmarks.nodes.pods import installed
from tests.support.clusters.installed import IMAGE
from tests.support.node import SOCKET

Happened = Callable[[str, JsonObject], bool]
ROUNDS, INIT_S, TIMEOUT_S = 7, 0.5, 60.0
BAR_INITS_MS, BAR_DELETE_MS, BAR_READY_MS = 100.0, 500.0, 1000.0
SLEEP = {"image": IMAGE, "command": ["sh", "-c", "trap exit TERM; while :; do sleep 0.02; done"]}


class Watching:
    """The pods of one namespace, and when each event about them came."""

    def __init__(self, api: ApiClient) -> None:
        self.api, self.namespace = api, f"bench-{uuid.uuid4().hex[:8]}"
        self._events: list[tuple[float, str, JsonObject]] = []
        self._news = threading.Condition()
        api.create(NAMESPACE, {"metadata": {"name": self.namespace}})
        revision = api.list(POD, self.namespace).resource_version
        self._watch = api.watch(POD, self.namespace, resource_version=revision, timeout_s=3600)
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        for event in self._watch:
            with self._news:
                self._events.append((time.time(), event.type, event.object))
                self._news.notify_all()

    def create(self, **spec: Any) -> tuple[str, float]:
        """Create a pod; return its name and when that was asked for."""
        name, began = f"pod-{uuid.uuid4().hex[:8]}", time.time()
        containers = [{"name": "app", **SLEEP}]
        spec = {"containers": containers, "automountServiceAccountToken": False, **spec}
        self.api.create(POD, {"metadata": {"name": name, "namespace": self.namespace}, "spec": spec})
        return name, began

    def when(self, name: str, happened: Happened) -> float:
        """Return when the first event about the pod came that ``happened`` takes."""

        def found() -> float:
            return next(
                (at for at, kind, pod in self._events if pod["metadata"].get("name") == name and happened(kind, pod)),
                0.0,
            )

        with self._news:
            assert self._news.wait_for(found, TIMEOUT_S), f"{name}: not within {TIMEOUT_S:g} s"
            return found()

    def remove(self, name: str) -> float:
        """Delete a pod; return the milliseconds until it was gone."""
        began = time.time()
        self.api.delete(POD, name, self.namespace)
        return (self.when(name, gone) - began) * 1e3

    def close(self) -> None:
        """Remove the namespace."""
        self.api.delete(NAMESPACE, self.namespace)
        self._watch.close()
        self._thread.join(5)


def running(_kind: str, pod: JsonObject) -> bool:
    """Return whether the pod is Running."""
    return bool(pod.get("status", {}).get("phase") == "Running")


def ready(_kind: str, pod: JsonObject) -> bool:
    """Return whether the pod is Ready."""
    conditions = pod.get("status", {}).get("conditions") or []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def gone(kind: str, _pod: JsonObject) -> bool:
    """Return whether the pod is no more."""
    return kind == "DELETED"


@contextmanager
def answering() -> Iterator[tuple[int, list[float], threading.Event]]:
    """Serve 503 until the event is set, then 200; the list gets the moments of those."""
    good, times = threading.Event(), list[float]()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            well = good.is_set()
            self.send_response(200 if well else 503)
            self.end_headers()
            if well:
                times.append(time.time())

        def log_message(self, *_: Any) -> None:
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1], times, good
    finally:
        server.shutdown()
        server.server_close()


def start_ms(watching: Watching, **spec: Any) -> tuple[float, float]:
    """Return the milliseconds from a pod's creation to Running, and those from its deletion to its end."""
    name, began = watching.create(**spec)
    return (watching.when(name, running) - began) * 1e3, watching.remove(name)


@contextmanager
def docker_floor() -> Iterator[Callable[[], float]]:
    """Yield what returns the milliseconds Docker takes for two containers, one after the other, beyond their run time.

    It creates and starts each, and tells of its end.
    """
    docker = Docker(SOCKET)
    host = {"NetworkMode": "none"}
    joined = docker.create(
        "", {"Image": IMAGE, "Cmd": ["sleep", "600"], "HostConfig": {**host, "IpcMode": "shareable"}}
    )
    docker.start(joined)
    body = {"Image": IMAGE, "Cmd": ["sleep", str(INIT_S)], "HostConfig": {"NetworkMode": f"container:{joined}"}}

    def spent_ms() -> float:
        began = time.monotonic()
        made = []
        for _ in range(2):
            made.append(docker.create("", body))
            docker.start(made[-1])
            docker.call("POST", f"/containers/{made[-1]}/wait")
        spent = (time.monotonic() - began - 2 * INIT_S) * 1e3
        for one in made:
            docker.remove(one)
        return spent

    try:
        yield spent_ms
    finally:
        docker.remove(joined)
        docker.close()


def measure_inits(watching: Watching) -> Iterator[Figure]:
    """Yield what two init containers add beyond their own run time, and the time of a deletion."""
    inits = [{"name": f"init-{n}", "image": IMAGE, "command": ["sleep", str(INIT_S)]} for n in range(2)]
    start_ms(watching)
    with docker_floor() as floor:
        rounds = [(start_ms(watching), start_ms(watching, initContainers=inits), floor()) for _ in range(ROUNDS)]
    added = [with_inits[0] - plain[0] - 2 * INIT_S * 1e3 for plain, with_inits, _ in rounds]
    over = statistics.median(more - row[2] for more, row in zip(added, rounds, strict=True))
    raw = statistics.median(row[2] for row in rounds)
    text = f"n={ROUNDS}, of rounds; Docker alone {raw:.0f} ms for create, start and end"
    yield Figure("2 init containers, over their run time and Docker's own", over, "ms", BAR_INITS_MS, text)
    text = f"n={ROUNDS}, against none"
    yield Figure("2 init containers, over their run time", statistics.median(added), "ms", None, text)
    deleted = statistics.median(plain[1] for plain, _, _ in rounds)
    yield Figure("delete of a pod that exits on TERM → gone, p50", deleted, "ms", BAR_DELETE_MS, f"n={ROUNDS}")


def measure_readiness(watching: Watching) -> Iterator[Figure]:
    """Yield the time from a probe's success to the condition."""
    found = []
    for _ in range(ROUNDS):
        with answering() as (port, times, good):
            probe = {"httpGet": {"port": port, "host": "127.0.0.1", "path": "/"}, "periodSeconds": 1}
            name, _ = watching.create(hostNetwork=True, containers=[{"name": "app", **SLEEP, "readinessProbe": probe}])
            watching.when(name, running)
            good.set()
            at = watching.when(name, ready)
            found.append((at - times[0]) * 1e3)
            watching.remove(name)
    yield Figure("a probe's success → Ready, p50", statistics.median(found), "ms", BAR_READY_MS, f"n={ROUNDS}")


def measure(connect: Callable[[], ApiClient] = installed) -> Iterator[Figure]:
    """Yield all figures."""
    watching = Watching(connect())
    try:
        yield from measure_inits(watching)
        yield from measure_readiness(watching)
    finally:
        watching.close()


if __name__ == "__main__":
    for figure in measure():
        print(figure.line(), flush=True)
