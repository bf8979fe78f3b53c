"""What kinds of one's own cost: ``python -m tests.benchmarks.server.custom_kinds``, about two minutes.

A real server process on a real etcd. A custom object and a ConfigMap of the same size are written and read in turn, so
the ratio holds whatever else the machine does. Then 300 definitions of 50 KB are made: what they take of memory, how
long discovery and the next start take. A webhook's own answer is measured beside a write that waits for it.
"""

from __future__ import annotations

import http.client
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from psutil import Process

from tests.benchmarks.figures import Figure
from tests.support.apiserver import ApiServerProcess
from tests.support.etcd import EtcdServer
from tests.support.waiting import until
from tests.support.webhook import WebhookServer

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
MAPS = "/api/v1/namespaces/default/configmaps"
OBJECTS, LARGE, LARGE_BYTES, ROUNDS = 400, 300, 50_000, 5
BAR_RATIO, BAR_ESTABLISHED_S, BAR_MEMORY_MB, BAR_START_S, BAR_DISCOVERY_MS, BAR_HOOK_MS = 1.25, 1.0, 150, 5, 20, 3
TEXT = "x" * 1_300


def definition(group: str, fields: dict[str, Any]) -> dict[str, Any]:
    """A definition of widgets whose spec has ``fields``."""
    spec = {"type": "object", "properties": fields}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


def established(server: ApiServerProcess, group: str) -> bool:
    """Return whether the widgets of a group are served."""
    found = server.request("GET", f"{DEFINITIONS}/widgets.{group}").json.get("status", {}).get("conditions") or []
    return any(each["type"] == "Established" and each["status"] == "True" for each in found)


def define(server: ApiServerProcess, group: str, fields: dict[str, Any]) -> float:
    """Create a definition; return the seconds until it is established."""
    began = time.monotonic()
    assert server.request("POST", DEFINITIONS, definition(group, fields)).code == 201
    until(lambda: established(server, group))
    return time.monotonic() - began


def measure() -> Iterator[Figure]:
    """Yield the figures of one server."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        etcd = EtcdServer(folder / "etcd").start()
        server = ApiServerProcess(folder / "api", etcd.endpoint)
        try:
            server.start()  # what a first start makes is made
            server.stop()
            bare_s = started_s(server)
            yield from ratios(server)
            yield from hooks(server, folder)
            yield from many(server, bare_s)
        finally:
            server.stop()
            etcd.stop()


def started_s(server: ApiServerProcess) -> float:
    """Start the server; return the seconds until it is ready."""
    began = time.monotonic()
    server.start()
    return time.monotonic() - began


# --- objects --------------------------------------------------------------------------------------


def ratios(server: ApiServerProcess) -> Iterator[Figure]:
    """Yield what a custom object costs of a ConfigMap's CPU, and how soon a kind is served."""
    latencies = [define(server, f"g{number}.example.com", {"k": {"type": "string"}}) for number in range(ROUNDS)]
    yield Figure("Established after the write, one server", median(latencies), "s", BAR_ESTABLISHED_S)
    path = "/apis/g0.example.com/v1/namespaces/default/widgets"
    named = {"apiVersion": "g0.example.com/v1", "kind": "Widget", "spec": {"k": TEXT}}
    plain = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": TEXT}}
    text = f"objects of 1.6 KB, {OBJECTS} of each kind in turn, {ROUNDS} rounds"
    creates, gets = [], []
    for turn in range(ROUNDS):
        spent = [created_s(server, where, body, turn) for where, body in ((path, named), (MAPS, plain))]
        creates.append(spent[0] / spent[1])
        read = [got_s(server, f"{where}/o-{turn}-1") for where in (path, MAPS)]
        gets.append(read[0] / read[1])
    yield Figure("create of a custom object, CPU of a ConfigMap's", median(creates), "times", BAR_RATIO, text)
    yield Figure("GET of a custom object, CPU of a ConfigMap's", median(gets), "times", BAR_RATIO, text)


def created_s(server: ApiServerProcess, path: str, body: dict[str, Any], turn: int) -> float:
    """Return the server's CPU for creating OBJECTS objects."""

    def create(connection: http.client.HTTPSConnection) -> None:
        for number in range(OBJECTS):
            ask(connection, "POST", path, {**body, "metadata": {"name": f"o-{turn}-{number}"}})

    return cpu_s(server, create)


def got_s(server: ApiServerProcess, path: str) -> float:
    """Return the server's CPU for reading an object OBJECTS times."""
    return cpu_s(server, lambda connection: [ask(connection, "GET", path) for _ in range(OBJECTS)])


def cpu_s(server: ApiServerProcess, work: Callable[[http.client.HTTPSConnection], object]) -> float:
    """Return the CPU that the server's worker spends on ``work``."""
    connection, process = server.connection(), worker(server)
    before = process.cpu_times()
    work(connection)
    after = process.cpu_times()
    connection.close()
    return after.user + after.system - before.user - before.system


def worker(server: ApiServerProcess) -> Process:
    """Return the process that answers requests."""
    process = Process(server.pid)
    return (process.children() or [process])[0]


def ask(connection: http.client.HTTPSConnection, method: str, path: str, body: Any = None) -> bytes:
    """Return the body of an answer; it must be a success."""
    sent = None if body is None else json.dumps(body).encode()
    connection.request(method, path, sent, {"Content-Type": "application/json"} if body else {})
    answer = connection.getresponse()
    data = answer.read()
    assert answer.status < 300, data
    return data


# --- webhooks -------------------------------------------------------------------------------------


def hooks(server: ApiServerProcess, folder: Path) -> Iterator[Figure]:
    """Yield what a validating webhook adds to a write, over the time in which it answers by itself."""
    with WebhookServer(folder) as hook:
        hook.answers["/allow"] = lambda _: {"allowed": True}
        configuration = {
            "metadata": {"name": "bench"},
            "webhooks": [
                {
                    "name": "allow.example.com",
                    "clientConfig": {"url": hook.url("/allow"), "caBundle": hook.ca_bundle},
                    "rules": [
                        {"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"]}
                    ],
                    "sideEffects": "None",
                    "admissionReviewVersions": ["v1"],
                }
            ],
        }
        secrets = "/api/v1/namespaces/default/secrets"
        without = writes_ms(server, secrets, "without")
        assert server.request("POST", HOOKS, configuration).code == 201
        within = writes_ms(server, secrets, "with")
        assert server.request("DELETE", f"{HOOKS}/bench").code == 200
        own = answered_ms(hook)
    text = f"the write takes {within:.1f} ms, {without:.1f} ms without the webhook, which answers in {own:.1f} ms"
    yield Figure("a webhook adds to its own answer", within - without - own, "ms", BAR_HOOK_MS, text)


def writes_ms(server: ApiServerProcess, path: str, name: str) -> float:
    """Return the median of creating an object on a kept connection."""
    connection = server.connection()
    taken = []
    for number in range(100):
        began = time.monotonic()
        ask(connection, "POST", path, {"metadata": {"name": f"{name}-{number}"}})
        taken.append((time.monotonic() - began) * 1e3)
    connection.close()
    return median(taken)


def answered_ms(hook: WebhookServer) -> float:
    """Return the median of asking the webhook without the API server, on a kept connection."""
    connection = hook.connection()
    body = json.dumps(hook.reviews[-1]).encode()
    taken = []
    for _ in range(100):
        began = time.monotonic()
        connection.request("POST", "/allow", body, {"Content-Type": "application/json"})
        connection.getresponse().read()
        taken.append((time.monotonic() - began) * 1e3)
    connection.close()
    return median(taken)


# --- many definitions -----------------------------------------------------------------------------


def many(server: ApiServerProcess, bare_s: float) -> Iterator[Figure]:
    """Yield what 300 definitions of 50 KB take."""
    before = pss_mb(server)
    field = {"type": "string", "description": "d" * 400, "maxLength": 64}
    fields = {f"field{number}": field for number in range(LARGE_BYTES // 470)}
    size = len(json.dumps(definition("large.example.com", fields)))
    for number in range(LARGE):
        assert server.request("POST", DEFINITIONS, definition(f"large{number}.example.com", fields)).code == 201
    until(lambda: all(established(server, f"large{number}.example.com") for number in (0, LARGE // 2, LARGE - 1)))
    text = f"{LARGE} definitions of {size / 1e3:.0f} KB"
    yield Figure("memory for definitions, PSS", pss_mb(server) - before, "MB", BAR_MEMORY_MB, text)
    yield Figure("discovery", discovered_ms(server, ""), "ms", BAR_DISCOVERY_MS, f"/apis with {text}")
    aggregated = "application/json;v=v2;g=apidiscovery.k8s.io;as=APIGroupDiscoveryList"
    yield Figure("discovery, aggregated", discovered_ms(server, aggregated), "ms", BAR_DISCOVERY_MS, text)
    server.stop()
    yield Figure("start, more than without", started_s(server) - bare_s, "s", BAR_START_S, text)


def discovered_ms(server: ApiServerProcess, accept: str) -> float:
    """Return the median of reading ``/apis``."""
    connection = server.connection()
    taken = []
    for _ in range(21):
        began = time.monotonic()
        connection.request("GET", "/apis", headers={"Accept": accept} if accept else {})
        assert len(connection.getresponse().read()) > LARGE
        taken.append((time.monotonic() - began) * 1e3)
    connection.close()
    return median(taken)


def pss_mb(server: ApiServerProcess) -> float:
    """Return the memory of the server's processes, shared pages by their shares."""
    process = Process(server.pid)
    found: int = sum(each.memory_full_info().pss for each in (process, *process.children(recursive=True)))
    return found / 1e6


if __name__ == "__main__":
    for figure in measure():
        print(figure.line())
