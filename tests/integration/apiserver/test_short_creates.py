"""Short creates, made in the API server's event loop: etcd killed under them, the server stopped, two workers."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.apiserver import ApiServerProcess
from tests.support.etcd import EtcdServer
from tests.support.waiting import until

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
CLIENTS = 16


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdServer]:
    server = EtcdServer(tmp_path / "etcd").start()
    yield server
    server.stop()


@pytest.fixture(params=[1, 2])
def api(tmp_path: Path, etcd: EtcdServer, request: pytest.FixtureRequest) -> Iterator[ApiServerProcess]:
    more = {"workers": request.param} if request.param > 1 else {}
    server = ApiServerProcess(tmp_path / "api", etcd.endpoint, **more).start()
    yield server
    server.stop()


class Clients:
    """Create ConfigMaps and read each back, without pause."""

    def __init__(self, api: ApiServerProcess) -> None:
        self._api = api
        self._stop = threading.Event()
        self.codes: Counter[int] = Counter()
        self.told: set[str] = set()
        self.lost: list[str] = []
        self.broken = 0
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(CLIENTS)]
        for each in self._threads:
            each.start()

    def _run(self, number: int) -> None:
        connection = self._api.connection(timeout_s=60)
        made = 0
        while not self._stop.is_set():
            made += 1
            try:
                self._round(connection, f"c-{number}-{made}")
            except TimeoutError:
                raise
            except (OSError, http.client.HTTPException):
                self.broken += 1
                connection.close()
                time.sleep(0.05)
        connection.close()

    def _round(self, connection: http.client.HTTPConnection, name: str) -> None:
        code, _ = ask(connection, "POST", CONFIG_MAPS, {"metadata": {"name": name}, "data": {"a": "b"}})
        self.codes[code] += 1
        if code == 201:
            self.told.add(name)
            if ask(connection, "GET", f"{CONFIG_MAPS}/{name}")[0] not in {200, 503}:
                self.lost.append(name)

    def has_told(self, enough: int) -> bool:
        """Return whether so many creates have been confirmed."""
        return len(self.told) >= enough

    def was_refused(self, before: int) -> bool:
        """Return whether more than ``before`` creates were answered 503."""
        return self.codes[503] > before

    def stop(self) -> None:
        """End them; none may hang."""
        self._stop.set()
        for each in self._threads:
            each.join(90)
        assert not [each for each in self._threads if each.is_alive()]


def ask(connection: http.client.HTTPConnection, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    headers = {"Content-Type": "application/json"} if body is not None else {}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def names(api: ApiServerProcess) -> set[str]:
    return {each["metadata"]["name"] for each in api.request("GET", CONFIG_MAPS).json["items"]}


def test_etcd_killed_under_creating_clients_loses_nothing_and_hangs_nobody(api: ApiServerProcess, etcd: EtcdServer):
    clients = Clients(api)
    try:
        for _ in range(2):
            enough = len(clients.told) + 200
            until(partial(clients.has_told, enough))
            etcd.kill9()
            refused = clients.codes[503]
            until(partial(clients.was_refused, refused))
            etcd.start()
        enough = len(clients.told) + 200
        until(lambda: len(clients.told) >= enough)
    finally:
        clients.stop()
    assert set(clients.codes) <= {201, 503}, clients.codes
    assert not clients.broken
    assert not clients.lost
    assert clients.told <= names(api)


def test_a_server_that_stops_under_creating_clients_loses_nothing_and_ends(api: ApiServerProcess):
    clients = Clients(api)
    try:
        until(lambda: len(clients.told) >= 200)
        assert api.stop() == 0
    finally:
        clients.stop()
    assert not set(clients.codes) - {201, 503}, clients.codes
    assert not clients.lost
    api.start()
    assert clients.told <= names(api)


def test_a_quota_is_kept_by_many_who_create_at_once(api: ApiServerProcess):
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"count/configmaps": "50"}}}
    path = "/api/v1/namespaces/default/resourcequotas"
    assert api.request("POST", path, quota).code == 201
    there = len(names(api))
    status = {"hard": quota["spec"]["hard"], "used": {"count/configmaps": str(there)}}  # type: ignore[index]
    found = {**api.request("GET", f"{path}/q").json, "status": status}
    assert api.request("PUT", f"{path}/q/status", found).code == 200
    clients = Clients(api)
    try:
        until(lambda: clients.codes[403] >= CLIENTS)
    finally:
        clients.stop()
    assert set(clients.codes) <= {201, 403, 409}, clients.codes
    assert len(clients.told) == 50 - there
    assert api.request("GET", f"{path}/q").json["status"]["used"] == {"count/configmaps": "50"}
