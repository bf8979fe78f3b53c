"""What an API server holds before, under and after a mixed load: ``python -m tests.benchmarks.server.holding``.

    ... --seconds 180 --rest 300                      # ten minutes, docs/explanation/idle-and-large-clusters.md
    ... --env LD_PRELOAD=/usr/lib/…/libjemalloc.so.2  # otherwise as daemons are installed
    ... --seconds 3600 --pause 1                      # an hour beside other work: 70 answers a second
    ... --inside                                      # also tell what of it is in use, by kind of allocation

As many ConfigMaps as Pods; then twelve clients read, patch, apply, list, delete and make them again, while sixteen
others watch. ``--inside`` has the worker itself tell Python's and the C library's account (holding_inside.py).
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import os
import random
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from tests.benchmarks.machine import daemon_environment
from tests.benchmarks.scale.watching import used
from tests.support.apiserver import ApiServerProcess
from tests.support.etcd import EtcdServer

SPACE = "/api/v1/namespaces/default"
KINDS = ("configmaps", "pods")
CLIENTS, WATCHERS, WARM, ALONE = 12, 16, 20, 1_000
SETTLED_S = 25.0  # an API server's start ends with its default roles
APPLY = {"Content-Type": "application/apply-patch+yaml"}
MERGE = {"Content-Type": "application/merge-patch+json"}


def made(kind: str, number: int, text: str = "x") -> dict[str, Any]:
    """Return an object of some 1.2 KB with what the server adds."""
    metadata = {"name": f"held-{number:05}", "labels": {"app": f"a-{number % 50}"}, "annotations": {"n": text * 300}}
    if kind == "configmaps":
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"k": text * 500}}
    containers = [{"name": "c", "image": "minik8s/busybox:1", "ports": [{"containerPort": 80}]}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}}


class Client:
    """One connection; an answer that says no is counted, since others delete what this one asks for."""

    def __init__(self, server: ApiServerProcess) -> None:
        self._connection = server.connection(timeout_s=60.0)
        self.answers = self.refused = 0

    def ask(self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None) -> bytes:
        """Return what is answered."""
        data = None if body is None else json.dumps(body).encode()
        self._connection.request(method, f"{SPACE}/{path}", data, headers or {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        told = answer.read()
        assert answer.status < http.client.INTERNAL_SERVER_ERROR, told[:300]
        self.answers += 1
        self.refused += answer.status >= http.client.BAD_REQUEST
        return told

    def close(self) -> None:
        """Let the connection go."""
        self._connection.close()

    def mixed(self, kind: str, number: int, text: str) -> None:
        """Send a request of each kind for one object."""
        path = f"{kind}/held-{number:05}"
        labels = {"metadata": {"labels": {"turn": text[:20]}}}
        applied = {name: value for name, value in made(kind, number).items() if name in {"apiVersion", "kind"}}
        self.ask("GET", path)
        self.ask("PATCH", path, labels, MERGE)
        applied["metadata"] = {"name": f"held-{number:05}", "labels": {"applied": text[:20]}}
        self.ask("PATCH", f"{path}?fieldManager=holding&force=true", applied, APPLY)
        self.ask("GET", f"{kind}?labelSelector=app%3Da-{number % 50}")
        self.ask("DELETE", f"{path}?gracePeriodSeconds=0")
        self.ask("POST", kind, made(kind, number, text[:1]))


class Load:
    """The clients, until they are stopped; one request in 200 lists everything."""

    def __init__(self, server: ApiServerProcess, objects: int, pause_s: float) -> None:
        self._server, self._objects, self._pause_s, self._stop = server, objects, pause_s, threading.Event()
        self.clients = [Client(server) for _ in range(CLIENTS)]
        self._threads = [threading.Thread(target=self._run, args=each) for each in enumerate(self.clients)]

    def run(self, seconds: float, look: Callable[[], float]) -> list[float]:
        """Ask for so long; return what ``look`` said each second."""
        for thread in self._threads:
            thread.start()
        seen, until = [], time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(1.0)
            seen.append(look())
        self._stop.set()
        for thread in self._threads:
            thread.join()
        return seen

    def _run(self, number: int, client: Client) -> None:
        chance = random.Random(number)
        for turn in itertools.count():
            if self._stop.wait(self._pause_s):
                client.close()
                return
            kind = chance.choice(KINDS)
            client.mixed(kind, chance.randrange(self._objects), f"t{turn}-{number}")
            if turn % 33 == number:
                client.ask("GET", kind)


@contextmanager
def watching(server: ApiServerProcess) -> Iterator[None]:
    """Have clients watch both kinds, and read what comes."""
    connections = [server.connection(timeout_s=3600.0) for _ in range(WATCHERS)]

    def read(number: int) -> None:
        connections[number].request("GET", f"{SPACE}/{KINDS[number % 2]}?watch=1&allowWatchBookmarks=true")
        answer = connections[number].getresponse()
        try:
            while answer.read1(1 << 16):
                pass
        except (OSError, ValueError, AttributeError, http.client.HTTPException):  # closed below
            return

    threads = [threading.Thread(target=read, args=(number,), daemon=True) for number in range(WATCHERS)]
    for thread in threads:
        thread.start()
    yield
    for connection in connections:
        if connection.sock is not None:
            connection.sock.close()


def each(server: ApiServerProcess, ask: Callable[[Client, str, int], object], objects: int) -> None:
    """Have ``ask`` called for each object of each kind, by all clients."""

    def part(first: int) -> None:
        client = Client(server)
        for number in range(first, objects, CLIENTS):
            for kind in KINDS:
                ask(client, kind, number)
        client.close()

    threads = [threading.Thread(target=part, args=(first,)) for first in range(min(CLIENTS, objects))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Bench:
    """One server, and what is told of it."""

    def __init__(self, server: ApiServerProcess, *, inside: bool) -> None:
        self.server, self._inside = server, inside

    def pss_mb(self) -> float:
        """Return what arbiter and worker hold."""
        return used({"": self.server.pid})[""].pss_mb

    def cpu_s(self) -> float:
        """Return what both have computed."""
        return used({"": self.server.pid})[""].cpu_s

    def tell(self, when: str, value: float | None = None, unit: str = "MB") -> None:
        """Print a figure, else the PSS, with the machine's load; what is inside with it."""
        shown = self.pss_mb() if value is None else value
        print(f"{when:<44} {shown:9.1f} {unit}   load {os.getloadavg()[0]:.1f}", flush=True)
        if self._inside and value is None:
            (worker,) = psutil.Process(self.server.pid).children()
            (self.server.directory / "ask").write_text(when)
            done = self.server.directory / f"told-{worker.pid}"
            while not done.exists():
                time.sleep(0.05)
            print(done.read_text(), flush=True)
            done.unlink()

    def alone(self, name: str, ask: Callable[[Client, int], object]) -> None:
        """Tell what a request of one client costs in CPU: median of five parts."""
        client, found = Client(self.server), []
        for part in range(5):
            before = self.cpu_s()
            for number in range(ALONE // 5):
                ask(client, part * ALONE + number)
            found.append((self.cpu_s() - before) / (ALONE // 5) * 1e6)
        client.close()
        self.tell(f"{name}, CPU (median of five)", statistics.median(found), "us")

    def measure(self, objects: int, seconds: float, pause_s: float, rest_s: float) -> None:
        """Take the steps of the table."""
        time.sleep(SETTLED_S)
        self.tell("the start")
        each(self.server, lambda client, kind, number: client.mixed(kind, number, "warm"), WARM)
        self.tell("each kind of request")
        self.alone(
            "create", lambda client, number: client.ask("POST", "configmaps", made("configmaps", 10_000 + number))
        )
        self.alone("GET", lambda client, _: client.ask("GET", "configmaps/held-00001"))
        with watching(self.server):
            each(self.server, lambda client, kind, number: client.ask("POST", kind, made(kind, number)), objects)
            self.tell("all objects")
            load, before, began = Load(self.server, objects, pause_s), self.cpu_s(), time.monotonic()
            seen = load.run(seconds, self.pss_mb)
            answers = sum(client.answers for client in load.clients)
            self.tell("under load, least", min(seen, default=0.0))
            self.tell("under load, most", max(seen, default=0.0))
            self.tell("answers a second", answers / (time.monotonic() - began), "")
            self.tell("CPU of an answer", (self.cpu_s() - before) / max(1, answers) * 1e6, "us")
            last = Client(self.server)
            for kind in KINDS:
                last.ask("DELETE", f"{kind}?gracePeriodSeconds=0")
            last.close()
        self.tell("all deleted")
        for _ in range(int(rest_s // 60)):
            time.sleep(60)
            self.tell("a minute later")


def main() -> int:
    """Measure once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, default=3_500, help="of each of two kinds (%(default)s)")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the load lasts (%(default)s)")
    parser.add_argument(
        "--pause", type=float, default=0.0, help="seconds a client rests after six requests (%(default)s)"
    )
    parser.add_argument("--rest", type=float, default=300.0, help="seconds afterwards (%(default)s)")
    parser.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="of the server, beside what roles have"
    )
    parser.add_argument("--inside", action="store_true", help="tell what is in use, too")
    said = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="holding-"))
    etcd = EtcdServer(folder / "etcd").start()
    server = ApiServerProcess(folder / "api", etcd.endpoint)
    if said.inside:
        server.program = ("-m", "tests.benchmarks.server.holding_inside")
    added = daemon_environment() | dict(each.split("=", 1) for each in said.env)
    try:
        os.environ.update(added)
        server.begin()
        for name in added:
            del os.environ[name]
        server.wait_for("/readyz")
        Bench(server, inside=said.inside).measure(said.objects, said.seconds, said.pause, said.rest)
    finally:
        server.stop()
        etcd.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
