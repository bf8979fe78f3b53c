"""Attack: a node writes an address of somebody else into its status, and has API servers connect there as themselves.

A node may write its own status, so ``kubectl exec`` in one of its Pods would lead to whatever it names: programs of the
control plane that listen on the loopback, a cloud's metadata, the API server. Nobody is called at such addresses,
whoever asks; and a node writes the status of no other.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.attacks.people import editor_of
from tests.integration.apiserver.conftest import Namespace, pod
from tests.support.apiserver import ApiServerProcess, own_server

MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServerProcess]:
    """Yield an API server that has a certificate for kubelets: without one it would connect nowhere."""
    folder = tmp_path_factory.mktemp("kubelets")
    keys = folder / "api" / "pki"
    files = {"cert": str(keys / "admin.crt"), "key": str(keys / "admin.key"), "ca": str(keys / "cluster.crt")}
    with own_server(folder, reconciler_client=files) as server:
        yield server


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """Yield somebody who listens on the loopback, and must not be called."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.2)
        yield listening


def _lie(server: ApiServerProcess, name: str, address: str, port: int) -> None:
    own = server.identity(f"system:node:{name}", "system:nodes")
    node = {"metadata": {"name": name, "labels": {"type": "virtual-kubelet"}}}
    assert server.request("POST", "/api/v1/nodes", node, client=own).code in {201, 409}
    status = {
        "addresses": [{"type": "InternalIP", "address": address}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }
    answer = server.request("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, headers=MERGE, client=own)
    assert answer.code == 200, answer.body


@pytest.mark.parametrize("what", ["log", "exec?command=ls&stdout=true", "attach?stdout=true", "portforward?ports=80"])
def test_nobody_on_the_loopback_is_called(namespace: Namespace, listener: socket.socket, what: str) -> None:
    name = f"{namespace.name}-liar"
    _lie(namespace.server, name, "127.0.0.1", listener.getsockname()[1])
    assert namespace.server.request("POST", namespace.path("pods"), pod("p", nodeName=name)).code == 201
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
        "Sec-WebSocket-Protocol": "v4.channel.k8s.io",
    }
    headers = {} if what == "log" else upgrade
    answer = namespace.server.request("GET", f"{namespace.path('pods', 'p')}/{what}", headers=headers)
    assert answer.code == 503
    assert "127.0.0.1 may not be in the loopback range" in answer.json["message"]
    with pytest.raises(TimeoutError):
        listener.accept()


@pytest.mark.parametrize("path", ["stats/summary", "metrics/resource", "pods"])
def test_figures_are_asked_for_nowhere_else_either(namespace: Namespace, listener: socket.socket, path: str) -> None:
    name = f"{namespace.name}-liar"
    _lie(namespace.server, name, "127.0.0.1", listener.getsockname()[1])
    answer = namespace.server.request("GET", f"/api/v1/nodes/{name}/proxy/{path}")
    assert answer.code == 503, answer.body
    namespace.server.request("GET", "/apis/metrics.k8s.io/v1beta1/nodes")
    with pytest.raises(TimeoutError):
        listener.accept()


@pytest.mark.parametrize("address", ["169.254.169.254", "0.0.0.0", "224.0.0.1"])
def test_no_address_that_is_none_of_a_machine(namespace: Namespace, address: str) -> None:
    name = f"{namespace.name}-liar"
    _lie(namespace.server, name, address, 80)
    assert namespace.server.request("GET", f"/api/v1/nodes/{name}/proxy/stats/summary").code == 503


def test_the_api_server_does_not_call_itself(namespace: Namespace) -> None:
    name = f"{namespace.name}-liar"
    _lie(namespace.server, name, "127.0.0.1", namespace.server.port)
    assert namespace.server.request("GET", f"/api/v1/nodes/{name}/proxy/pods").code == 503


def test_nobody_says_where_another_node_is(namespace: Namespace) -> None:
    _lie(namespace.server, f"{namespace.name}-n1", "192.0.2.7", 10250)
    status = {"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.66"}]}}
    path = f"/api/v1/nodes/{namespace.name}-n1/status"
    for client in (namespace.server.identity("system:node:other", "system:nodes"), editor_of(namespace)):
        answer = namespace.server.request("PATCH", path, status, headers=MERGE, client=client)
        assert answer.code == 403, answer.body
