"""Attack: read the metrics of controllers, scheduler or pilot without being anybody, or as somebody without rights.

They listened in plain HTTP: each user of the machine, and each pod with the node's network, could read how many objects
of which kinds a cluster has and how fast they change. Here the daemon runs as installed, in front of a real API server.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.control.conftest import Daemon
from tests.support.apiserver import ApiServerProcess
from tests.support.etcd import free_port
from tests.support.pki import write_kubeconfig
from tests.support.waiting import until

WHO = {
    "controllers": ("system:kube-controller-manager", "workqueue_"),
    "scheduler": ("system:kube-scheduler", "scheduler_pending_pods"),
    "mesh": ("system:minik8s:pilot", "minik8s_pilot_sidecars"),
}
"""By daemon (by its room), its user and one of its metrics."""


class Metrics:
    """A daemon's listener, and tokens of service accounts to ask it with."""

    def __init__(self, server: ApiServerProcess, port: int, daemon: str) -> None:
        self._server, self.port, self.daemon = server, port, daemon
        self.metric = WHO[daemon][1]

    def ask(self, token: str = "", path: str = "/metrics") -> tuple[int, str]:
        """Return status and text of an answer over TLS that names the daemon."""
        context = ssl.create_default_context(cafile=str(self._server.authority.ca))
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=60, context=context)
        with contextlib.closing(connection):
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def token(self, name: str) -> str:
        """Return a token of a new service account of that name."""
        accounts = "/api/v1/namespaces/default/serviceaccounts"
        name = f"{name}-{self.daemon}"
        assert self._server.request("POST", accounts, {"metadata": {"name": name}}).code == 201
        asked: dict[str, Any] = {"spec": {"expirationSeconds": 600}}
        return str(self._server.request("POST", f"{accounts}/{name}/token", asked).json["status"]["token"])

    def bind(self, name: str, account: str) -> str:
        """Let a service account read metrics; returns the binding's path."""
        bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:monitoring"}
        subject = {"kind": "ServiceAccount", "name": f"{account}-{self.daemon}", "namespace": "default"}
        name = f"{name}-{self.daemon}"
        binding = {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}
        assert self._server.request("POST", bindings, binding).code == 201
        return f"{bindings}/{name}"


def _answers(metrics: Metrics) -> bool:
    with contextlib.suppress(OSError):
        return metrics.ask(path="/healthz") == (200, "ok")
    return False


@pytest.fixture(scope="module", params=list(WHO))
def metrics(
    server: ApiServerProcess, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Metrics]:
    name = str(request.param)
    folder: Path = tmp_path_factory.mktemp(name)
    serving = server.authority.issue(f"{name}-serving", f"minik8s-{name}")
    identity = server.identity(WHO[name][0])
    made = Metrics(server, free_port(), name)
    configuration = {
        "kubeconfig": str(write_kubeconfig(folder / "kubeconfig", server.url, server.authority.ca, identity)),
        "metrics": {"listen": f"127.0.0.1:{made.port}", "cert": str(serving.cert), "key": str(serving.key)},
    }
    if name == "mesh":
        pilots = {"listen": f"127.0.0.1:{free_port()}", "tls": {"cert": str(serving.cert), "key": str(serving.key)}}
        configuration = {**configuration, **pilots}
    config = folder / f"{name}.yml"
    config.write_text(yaml.safe_dump(configuration))
    daemon = Daemon(name, config).start()
    until(lambda: _answers(made))
    yield made
    daemon.stop()


def test_whoever_is_nobody_gets_none(metrics: Metrics):
    for token in ("", "nonsense", "a.b.c"):
        status, text = metrics.ask(token)
        assert (status, metrics.metric in text) == (401, False)


def test_an_account_without_rights_gets_none(metrics: Metrics):
    status, text = metrics.ask(metrics.token("stranger"))
    assert (status, metrics.metric in text) == (403, False)


def test_monitoring_gets_them_until_its_right_ends(metrics: Metrics, server: ApiServerProcess):
    token = metrics.token("prometheus")
    binding = metrics.bind("prometheus-reads", "prometheus")
    status, text = metrics.ask(token)
    assert (status, metrics.metric in text) == (200, True)
    assert server.request("DELETE", binding).code == 200
    assert metrics.ask(token)[0] == 403


def test_nothing_is_told_without_tls(metrics: Metrics):
    with socket.create_connection(("127.0.0.1", metrics.port), timeout=60) as plain:
        plain.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        text = b"".join(iter(lambda: plain.recv(4096), b""))
    assert b"HTTP" not in text


def test_a_silent_peer_delays_nobody(metrics: Metrics):
    silent = http.client.HTTPConnection("127.0.0.1", metrics.port, timeout=30)
    silent.connect()
    with contextlib.closing(silent):
        assert metrics.ask(path="/healthz") == (200, "ok")
