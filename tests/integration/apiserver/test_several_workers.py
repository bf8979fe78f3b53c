"""One API server of two workers: clients cannot tell it from one worker, also while a worker is killed."""

from __future__ import annotations

import contextlib
import functools
import http.client
import itertools
import json
import os
import re
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.integration.apiserver.test_new_configuration import configure
from tests.support import waiting
from tests.support.apiserver import ApiServerProcess, own_server
from tests.support.etcd import EtcdServer

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
ROUNDS = 60
NAMES = itertools.count()
# a worker imports and loads for seconds on an idle machine
until = functools.partial(waiting.until, timeout_s=240)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServerProcess]:
    """A server of two workers; a test that kills one waits for its successor."""
    folder = tmp_path_factory.mktemp("workers")
    etcd = EtcdServer(folder / "etcd").start()
    found = ApiServerProcess(folder / "api", etcd.endpoint, workers=2)
    try:
        found.start()
        until(lambda: len(leases(found)) == 2)
        yield found
    finally:
        found.stop()
        etcd.stop()


def workers(server: ApiServerProcess) -> list[psutil.Process]:
    return psutil.Process(server.pid).children()


def leases(server: ApiServerProcess) -> list[str]:
    found = server.request("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases").json
    return sorted(each["metadata"]["name"] for each in found["items"])


def ask(connection: http.client.HTTPConnection, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    headers = {"Content-Type": "application/json"} if body is not None else {}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def readyz(connection: http.client.HTTPConnection) -> tuple[int, str]:
    connection.request("GET", "/readyz")
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def config_map(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}}


def local_port(connection: http.client.HTTPConnection) -> int:
    return int(connection.sock.getsockname()[1])


@pytest.fixture
def both(server: ApiServerProcess) -> Iterator[list[http.client.HTTPConnection]]:
    """A connection to each of the workers."""
    opened: dict[int, http.client.HTTPConnection] = {}

    def of_each() -> list[http.client.HTTPConnection]:
        connection = server.connection()
        ask(connection, "GET", "/version")
        opened[int(connection.sock.getsockname()[1])] = connection
        ends = [
            {end.raddr.port for end in worker.net_connections("tcp") if end.status == psutil.CONN_ESTABLISHED}
            for worker in workers(server)
        ]
        return [found for taken in ends for found in [each for port, each in opened.items() if port in taken][:1]]

    yield until(lambda: found if len(found := of_each()) == 2 else None)
    for each in opened.values():
        each.close()


def test_a_write_is_read_on_every_connection(both: list[http.client.HTTPConnection]):
    for number, (writer, reader) in enumerate((both, both[::-1]) * (ROUNDS // 2)):
        name = f"read-{next(NAMES)}"
        code, made = ask(writer, "POST", CONFIG_MAPS, config_map(name))
        assert code == 201
        assert ask(reader, "GET", f"{CONFIG_MAPS}/{name}") == (200, made)
        assert name in {each["metadata"]["name"] for each in ask(reader, "GET", CONFIG_MAPS)[1]["items"]}
        if number % 2:
            assert ask(reader, "DELETE", f"{CONFIG_MAPS}/{name}")[0] == 200
            assert ask(writer, "GET", f"{CONFIG_MAPS}/{name}")[0] == 404


def test_rights_hold_for_all_workers_from_when_they_are_given_or_taken(
    server: ApiServerProcess, both: list[http.client.HTTPConnection]
):
    eve = server.identity("eve")
    answers: Counter[int] = Counter()
    role = {
        "metadata": {"name": "eve"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}],
    }
    binding = {
        "metadata": {"name": "eve"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "eve"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "eve"}],
    }
    space = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    assert ask(both[0], "POST", f"{space}/roles", role)[0] == 201
    for number in range(10):
        writer = both[number % 2]
        assert ask(writer, "POST", f"{space}/rolebindings", binding)[0] == 201
        assert {server.request("GET", CONFIG_MAPS, client=eve).code for _ in range(4)} == {200}
        assert ask(writer, "DELETE", f"{space}/rolebindings/eve")[0] == 200
        answers.update(server.request("GET", CONFIG_MAPS, client=eve).code for _ in range(4))
    assert set(answers) == {403}


def test_a_custom_kind_is_established_once_all_workers_serve_it(both: list[http.client.HTTPConnection]):
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                }
            ],
        },
    }
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert ask(both[0], "POST", path, definition)[0] == 201

    def established() -> bool:
        found = ask(both[0], "GET", f"{path}/things.example.com")[1]
        return any(
            each["type"] == "Established" and each["status"] == "True"
            for each in (found.get("status") or {}).get("conditions") or []
        )

    until(established)
    for each in both:
        assert ask(each, "GET", "/apis/example.com/v1/things")[0] == 200


def test_metrics_and_the_audit_log_are_those_of_all_workers(
    server: ApiServerProcess, both: list[http.client.HTTPConnection]
):
    told = [f"{CONFIG_MAPS}/audited-{number}" for number in range(20)]
    for path in told:
        for connection in both:
            assert ask(connection, "GET", path)[0] == 404
    for connection in both:
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
        for number in ("0", "1"):
            assert any(line.startswith("process_cpu") and f'worker="{number}"' in line for line in lines)
            assert any(
                line.startswith("apiserver_request_total") and 'code="404"' in line and f'worker="{number}"' in line
                for line in lines
            )

    def recorded() -> Counter[str]:
        events = [json.loads(line) for line in server.audit.read_bytes().splitlines()]
        return Counter(each["requestURI"] for each in events if each["requestURI"] in told)

    until(lambda: recorded() == Counter(dict.fromkeys(told, 2)))


def test_a_server_is_not_ready_while_one_of_its_workers_is_not(
    server: ApiServerProcess, both: list[http.client.HTTPConnection]
):
    frozen, _ = workers(server)
    until(lambda: [readyz(each) for each in both] == [(200, "ok")] * 2)
    frozen.suspend()
    try:
        code, text = until(lambda: found if (found := readyz(both[1]))[0] != 200 else None)
    finally:
        frozen.resume()
    assert code == 503
    assert re.search(r"^\[-\]workers failed: worker [01] does not answer$", text, re.MULTILINE)
    until(lambda: [readyz(each) for each in both] == [(200, "ok")] * 2)


def test_a_worker_that_is_killed_does_not_keep_the_others_from_being_ready(
    server: ApiServerProcess, both: list[http.client.HTTPConnection]
):
    before = {each.pid for each in workers(server)}
    workers(server)[0].kill()
    until(lambda: readyz(both[1])[0] == 200)
    _successor(server, before)
    until(lambda: len(leases(server)) == 2)
    until(lambda: {server.request("GET", "/readyz").code for _ in range(16)} == {200})


def test_a_start_is_over_once_all_workers_are_ready(tmp_path: Path):
    etcd = EtcdServer(tmp_path / "etcd").start()
    server = ApiServerProcess(tmp_path / "api", etcd.endpoint, workers=2)
    try:
        server.begin()
        late = until(lambda: found[0] if len(found := workers(server)) == 2 else None)
        late.suspend()  # it imports for a second
        try:
            text = until(lambda: _text(server, "/readyz?verbose", "startup-objects ok"))
        finally:
            late.resume()
        assert "[-]workers failed: 1 of 2 take connections yet" in text
        server.wait_for("/readyz")
        assert {server.request("GET", "/readyz").code for _ in range(32)} == {200}
    finally:
        server.stop()
        etcd.stop()


def _text(server: ApiServerProcess, path: str, wanted: str) -> str:
    """Return what ``path`` answers, nothing while that has no ``wanted``, or nobody answers yet."""
    try:
        text = server.request("GET", path).body.decode()
    except OSError:
        return ""
    return text if wanted in text else ""


# Python leaves a socket open that is reset before its handshake (SSLSocket._create)
@pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning")
def test_nothing_that_was_told_is_lost_when_a_worker_is_killed(server: ApiServerProcess):
    stop = threading.Event()
    written: list[str] = []
    codes: set[int] = set()

    def write() -> None:
        while not stop.is_set():
            name = f"kept-{next(NAMES)}"
            with contextlib.suppress(OSError, http.client.HTTPException):  # those of the worker that is killed
                code = server.request("POST", CONFIG_MAPS, config_map(name)).code
                codes.add(code)
                if code == 201:
                    written.append(name)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for each in threads:
        each.start()
    try:
        for _ in range(2):
            _written_more(written)
            before = {each.pid for each in workers(server)}
            os.kill(min(before), signal.SIGKILL)
            _written_more(written)
            _successor(server, before)
    finally:
        stop.set()
        for each in threads:
            each.join(60)
    assert codes <= {201, 503, 504}  # the latter tell clients to try again
    kept = {each["metadata"]["name"] for each in server.request("GET", CONFIG_MAPS).json["items"]}
    assert set(written) <= kept
    until(lambda: leases(server) == ["apiserver-127.0.0.1-0", "apiserver-127.0.0.1-1"])


def _written_more(written: list[str]) -> None:
    before = len(written)
    until(lambda: len(written) > before + 10)


def _successor(server: ApiServerProcess, before: set[int]) -> None:
    until(lambda: len(now := {each.pid for each in workers(server)}) == 2 and len(now & before) == 1)


def test_new_workers_take_over_when_the_configuration_is_read_again(server: ApiServerProcess):
    before = {each.pid for each in workers(server)}
    os.kill(server.pid, signal.SIGHUP)
    until(lambda: len(now := {each.pid for each in workers(server)}) == 2 and not now & before)
    until(lambda: len(leases(server)) == 2)
    name = f"again-{next(NAMES)}"
    assert server.request("POST", CONFIG_MAPS, config_map(name)).code == 201
    assert {server.request("GET", f"{CONFIG_MAPS}/{name}").code for _ in range(8)} == {200}


def test_the_number_of_workers_changes_while_it_serves(tmp_path: Path):
    with own_server(tmp_path) as server:
        for wanted in (2, 1):
            before = {each.pid for each in workers(server)}
            configure(server, workers=wanted)
            until(lambda: {server.request("GET", CONFIG_MAPS).code for _ in range(4)} == {200})
            until(functools.partial(_replaced, server, before, wanted))
            assert {server.request("GET", CONFIG_MAPS).code for _ in range(4)} == {200}


def _replaced(server: ApiServerProcess, before: set[int], wanted: int) -> bool:
    now = {each.pid for each in workers(server)}
    return len(now) == wanted and not now & before
