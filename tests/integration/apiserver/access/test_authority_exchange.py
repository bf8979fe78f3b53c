"""The cluster's authority is exchanged under a running API server, and nobody who reads kubeconfigs notices."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.installation.test_authorities_module import run
from tests.support.apiserver import ApiServerProcess
from tests.support.etcd import EtcdServer
from tests.support.pki import Certificate

PHASES = ("prepare", "switch", "finish")
ENOUGH = 30


class Cluster:
    """An API server whose certificate and administrator come from the files that are exchanged."""

    def __init__(self, folder: Path, etcd: EtcdServer) -> None:
        self.kubeconfig = folder / "admin.kubeconfig"
        self.ca: dict[str, Any] = {"certificate": f"{folder}/ca.crt", "key": f"{folder}/ca.key"}
        pair = {"cert": f"{folder}/s.crt", "key": f"{folder}/s.key"}
        tls = {**pair, "client_ca": self.ca["certificate"]}
        self.server = ApiServerProcess(folder / "api", etcd.endpoint, tls=tls)
        self.server.authority.ca = Path(self.ca["certificate"])
        self.server.admin = Certificate(folder / "admin.crt", folder / "admin.key")
        self.declared: dict[str, Any] = {
            "authorities": [{"name": "c", "common_name": "cluster", **self.ca}],
            "certificates": [
                {
                    "certificate": pair["cert"],
                    "key": pair["key"],
                    "authority": "c",
                    "common_name": "api",
                    "names": ["127.0.0.1"],
                    "usages": ["server"],
                },
                {
                    "certificate": f"{folder}/admin.crt",
                    "key": f"{folder}/admin.key",
                    "authority": "c",
                    "common_name": "admin",
                    "organizations": ["system:masters"],
                    "usages": ["client"],
                },
            ],
            "kubeconfigs": [
                {
                    "path": str(self.kubeconfig),
                    "server": self.server.url,
                    "authority": "c",
                    "common_name": "admin",
                    "organizations": ["system:masters"],
                }
            ],
        }
        self.issue()
        self.server.start()

    def issue(self) -> None:
        """Have everything issued that must be."""
        run("minik8s_certificates", **self.declared)

    def go(self, phase: str) -> None:
        """Go one phase, as role pki does."""
        if phase == "prepare":
            waiting = {name: f"{place}.next" for name, place in self.ca.items()}
            run("minik8s_certificates", authorities=[{"name": "n", "common_name": "cluster", **waiting}])
        run("minik8s_authorities", **self.ca, phase=phase)
        self.issue()

    def connect(self) -> http.client.HTTPSConnection:
        """Return a connection by the kubeconfig as it is now."""
        config = yaml.safe_load(self.kubeconfig.read_text())
        user, cluster = config["users"][0]["user"], config["clusters"][0]["cluster"]
        trusted = base64.b64decode(cluster["certificate-authority-data"]).decode()
        context = ssl.create_default_context(cadata=trusted)
        pair = self.kubeconfig.with_name(f"{threading.get_ident()}.pem")
        pair.write_bytes(b"".join(base64.b64decode(user[f"client-{part}-data"]) for part in ("certificate", "key")))
        context.load_cert_chain(pair)
        return http.client.HTTPSConnection("127.0.0.1", self.server.port, context=context, timeout=60)


@pytest.fixture
def cluster(tmp_path: Path, etcd: EtcdServer) -> Iterator[Cluster]:
    made = Cluster(tmp_path, etcd)
    yield made
    made.server.stop()


class Asking:
    """A client that asks until it is stopped; ``again`` returns the connection of the next request."""

    def __init__(self, connect: Callable[[], http.client.HTTPSConnection], *, keep: bool) -> None:
        self._connect, self._keep = connect, keep
        self._stop = threading.Event()
        self.codes: list[int] = []
        self.failures: list[BaseException] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        kept = self._connect() if self._keep else None
        number = 0
        while not self._stop.is_set():
            number += 1
            connection = kept
            try:
                connection = connection or self._connect()
                body = json.dumps({"metadata": {"generateName": "c-"}})
                path = "/api/v1/namespaces/default/configmaps?limit=1"
                connection.request("POST" if number % 2 else "GET", path, body if number % 2 else None)
                answer = connection.getresponse()
                answer.read()
                self.codes.append(answer.status)
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(error)
            if connection is not None and connection is not kept:
                connection.close()
        if kept is not None:
            kept.close()

    def more(self) -> None:
        """Wait until it was answered a number of times more."""
        wanted = len(self.codes) + ENOUGH
        while len(self.codes) < wanted and not self.failures:
            self._stop.wait(0.01)

    def end(self) -> None:
        """Stop asking."""
        self._stop.set()
        self._thread.join(20)


def ask(connection: http.client.HTTPSConnection) -> http.client.HTTPResponse:
    """Return the answer to a list."""
    connection.request("GET", "/api/v1/namespaces?limit=1")
    answer = connection.getresponse()
    answer.read()
    return answer


def test_no_request_fails_while_the_authority_is_exchanged(cluster: Cluster):
    before, former = Path(cluster.ca["certificate"]).read_text(), cluster.connect()
    assert ask(former).status == 200
    former.close()
    clients = [Asking(cluster.connect, keep=False), Asking(cluster.connect, keep=True)]
    try:
        for phase in PHASES:
            cluster.go(phase)
            for client in clients:
                client.more()
    finally:
        for client in clients:
            client.end()
    assert [client.failures for client in clients] == [[], []]
    assert {code for client in clients for code in client.codes} == {200, 201}
    after = Path(cluster.ca["certificate"]).read_text()
    assert after.count("BEGIN CERTIFICATE") == 1
    assert after not in before
    with pytest.raises((OSError, http.client.HTTPException)):  # a certificate of the old authority is nobody's any more
        ask(former)
    former.close()
