"""Figures of the API server: ``python -m tests.benchmarks.server.apiserver``, about 30 seconds.

A real server process on a real etcd, over TLS with client certificates and authorization. CPU is the server's worker's
(user and system), without etcd's and the clients'; it hardly depends on what else the machine does, latencies do.
"""

from __future__ import annotations

import http.client
import json
import selectors
import socket
import ssl
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.support.apiserver import ApiServerProcess
from tests.support.etcd import EtcdServer

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
BAR_GET_US, BAR_LIST_MS, BAR_DELIVERY_US, BAR_P99_MS, BAR_APPLY_US = 500.0, 40.0, 25.0, 60.0, 3_000.0
OBJECTS, WATCHERS = 5_000, 500
# 1.6 KB with the metadata the server adds
PAYLOAD = "x" * 1_330


class Figure(NamedTuple):
    """One measured value, and the bar it is held to where there is one."""

    name: str
    value: float
    unit: str
    bar: float | None = None


def measure() -> list[Figure]:
    """Start etcd and the server, measure, stop them."""
    with tempfile.TemporaryDirectory() as directory:
        etcd = EtcdServer(Path(directory) / "etcd").start()
        server = ApiServerProcess(Path(directory) / "api", etcd.endpoint)
        try:
            server.start()
            return [*watches(server), *writes(server), *gets(server), *lists(server), *applies(server)]
        finally:
            server.stop()
            etcd.stop()


def writes(server: ApiServerProcess) -> list[Figure]:
    """Return the cost of creates while the objects of ``lists`` are made."""
    worker = _worker(server)
    before, began = _cpu_s(worker), time.monotonic()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda part: _create_part(server, part), range(4)))
    return [
        Figure("create, CPU", (_cpu_s(worker) - before) / OBJECTS * 1e6, "us"),
        Figure("creates, 4 clients", OBJECTS / (time.monotonic() - began), "1/s"),
    ]


def _create_part(server: ApiServerProcess, part: int) -> None:
    connection = server.connection()
    for number in range(part, OBJECTS, 4):
        body = {"metadata": {"name": f"bench-{number:05}", "labels": {"app": "bench"}}, "data": {"k": PAYLOAD}}
        assert _ask(connection, "POST", CONFIG_MAPS, json.dumps(body).encode())
    connection.close()


def gets(server: ApiServerProcess, count: int = 2_000) -> list[Figure]:
    """Return the CPU of a GET on a kept connection."""
    cpu_s = _repeat(server, count, lambda connection: _ask(connection, "GET", f"{CONFIG_MAPS}/bench-00001"))
    return [Figure("GET, CPU", cpu_s * 1e6, "us", BAR_GET_US)]


def applies(server: ApiServerProcess, count: int = 300) -> list[Figure]:
    """Return the CPU of a server-side apply of a pod: new ones, and the same again with one change."""
    media = {"Content-Type": "application/apply-patch+yaml"}
    number = 0

    def apply(connection: http.client.HTTPSConnection) -> None:
        nonlocal number
        number += 1
        name, image = f"bench-{number % count:04}", f"minik8s/busybox:{number // count}"
        containers = [
            {"name": "c", "image": image, "env": [{"name": "A", "value": "b"}], "ports": [{"containerPort": 80}]}
        ]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "b"}},
               "spec": {"containers": containers}}  # fmt: skip
        path = f"/api/v1/namespaces/default/pods/{name}?fieldManager=bench&force=true"
        _ask(connection, "PATCH", path, json.dumps(pod).encode(), headers=media)

    created = _repeat(server, count, apply)
    changed = _repeat(server, count, apply)
    return [
        Figure("server-side apply of a new pod, CPU", created * 1e6, "us", BAR_APPLY_US),
        Figure("server-side apply of a changed pod, CPU", changed * 1e6, "us", BAR_APPLY_US),
    ]


def lists(server: ApiServerProcess, count: int = 20) -> list[Figure]:
    """Return the CPU of a LIST of all objects, and of the table that kubectl asks for, 500 at a time."""
    size = 0

    def whole(connection: http.client.HTTPSConnection) -> None:
        nonlocal size
        size = len(_ask(connection, "GET", f"{CONFIG_MAPS}?labelSelector=app"))

    cpu_s = _repeat(server, count, whole)
    table = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    table_s = _repeat(server, count, lambda it: _ask(it, "GET", f"{CONFIG_MAPS}?limit=500", headers=table))
    return [
        Figure(f"LIST of {OBJECTS} x {size / OBJECTS / 1e3:.1f} KB, CPU", cpu_s * 1e3, "ms", BAR_LIST_MS),
        Figure("first page of 500 as a table, CPU", table_s * 1e3, "ms"),
    ]


def _repeat(server: ApiServerProcess, count: int, call: Callable[[http.client.HTTPSConnection], object]) -> float:
    """Return the worker's seconds of CPU per call."""
    connection, worker = server.connection(), _worker(server)
    call(connection)
    before = _cpu_s(worker)
    for _ in range(count):
        call(connection)
    connection.close()
    return (_cpu_s(worker) - before) / count


def watches(server: ApiServerProcess, events: int = 40) -> list[Figure]:
    """Return CPU and latency of deliveries to many watchers, from the request that changes something."""
    worker = _worker(server)
    memory = worker.memory_info().rss
    socks = _open_watches(server)
    memory = worker.memory_info().rss - memory
    connection = server.connection()
    latencies: list[float] = []
    before = _cpu_s(worker)
    for number in range(events):
        body = json.dumps({"metadata": {"name": f"event-{number}"}, "data": {"k": PAYLOAD}}).encode()
        began = time.monotonic()
        _ask(connection, "POST", CONFIG_MAPS, body)
        latencies += _receive(socks, began)
    cpu_s = (_cpu_s(worker) - before) / (events * WATCHERS)
    connection.close()
    for sock in socks:
        sock.close()
    latencies.sort()
    return [
        Figure(f"watch delivery at {WATCHERS} watchers, CPU", cpu_s * 1e6, "us", BAR_DELIVERY_US),
        Figure("watch delivery, p50", latencies[len(latencies) // 2] * 1e3, "ms"),
        Figure("watch delivery, p99", latencies[int(len(latencies) * 0.99)] * 1e3, "ms", BAR_P99_MS),
        Figure("memory of a watch over TLS", memory / WATCHERS / 1024, "KB"),
    ]


def _open_watches(server: ApiServerProcess) -> list[ssl.SSLSocket]:
    revision = server.request("GET", CONFIG_MAPS).json["metadata"]["resourceVersion"]
    head = f"GET {CONFIG_MAPS}?watch=1&resourceVersion={revision} HTTP/1.1\r\nHost: bench\r\n\r\n".encode()
    context = server.context(server.admin)
    socks = []
    for _ in range(WATCHERS):
        plain = socket.create_connection(("127.0.0.1", server.port))
        sock = context.wrap_socket(plain, server_hostname="localhost")
        sock.sendall(head)
        assert b" 200 OK" in sock.recv(65536)
        sock.setblocking(False)  # noqa: FBT003 - the standard library's signature
        socks.append(sock)
    return socks


def _receive(socks: list[ssl.SSLSocket], began: float) -> list[float]:
    """Return when each watcher had its event, in seconds after ``began``."""
    latencies: list[float] = []
    with selectors.DefaultSelector() as selector:
        for sock in socks:
            selector.register(sock, selectors.EVENT_READ)
        while len(latencies) < len(socks):
            for key, _ in selector.select(10.0):
                try:
                    data = key.fileobj.recv(65536)  # type: ignore[union-attr]
                except ssl.SSLWantReadError:
                    continue
                if data.endswith(b"}\n\r\n"):
                    latencies.append(time.monotonic() - began)
    return latencies


def _ask(
    connection: http.client.HTTPSConnection,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> bytes:
    connection.request(method, path, body, {"Content-Type": "application/json", **(headers or {})})
    response = connection.getresponse()
    data = response.read()
    assert response.status < 300, data[:300]
    return data


def _worker(server: ApiServerProcess) -> psutil.Process:
    (worker,) = psutil.Process(server.pid).children()
    return worker


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def main() -> None:
    """Print the figures."""
    for figure in measure():
        bar = "" if figure.bar is None else f"   bar {figure.bar:g} {'met' if figure.value <= figure.bar else 'MISSED'}"
        print(f"{figure.name:48} {figure.value:10.1f} {figure.unit}{bar}")


if __name__ == "__main__":
    main()
