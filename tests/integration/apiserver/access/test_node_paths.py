"""nodes/proxy: a kubelet's paths, as far as an API server can answer them without a gateway."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.integration.apiserver.conftest import Namespace, pod
from tests.support.apiserver import ApiServerProcess


@pytest.fixture
def node(server: ApiServerProcess) -> Iterator[str]:
    """A node that nobody attends."""
    name = f"n-{uuid.uuid4().hex[:8]}"
    assert server.request("POST", "/api/v1/nodes", {"metadata": {"name": name}}).code == 201
    yield name
    server.request("DELETE", f"/api/v1/nodes/{name}")


def test_a_nodes_pods_are_those_that_are_bound_to_it(namespace: Namespace, node: str) -> None:
    server = namespace.server
    assert server.request("POST", namespace.path("pods"), pod("here", nodeName=node)).code == 201
    assert server.request("POST", namespace.path("pods"), pod("nowhere")).code == 201
    done = server.kubectl("get", "--raw", f"/api/v1/nodes/{node}/proxy/pods").stdout
    assert '"name":"here"' in done
    assert "nowhere" not in done
    assert server.request("GET", f"/api/v1/nodes/{node}:10250/proxy/pods/").json["kind"] == "PodList"


def test_a_node_without_a_gateway_has_no_figures(server: ApiServerProcess, node: str) -> None:
    answer = server.request("GET", f"/api/v1/nodes/{node}/proxy/metrics/resource")
    assert (answer.code, "no gateway serves streams of node" in answer.json["message"]) == (503, True)
    healthy = server.request("GET", f"/api/v1/nodes/{node}/proxy/healthz")
    text = f"node {node} is not ready: no node agent reports its status"
    assert (healthy.code, healthy.json["message"]) == (503, text)


@pytest.mark.parametrize("path", ["proxy", "proxy/run/default/web/c", "proxy/runningpods", "proxy/../../../secrets"])
def test_what_is_not_answered_says_what_is(server: ApiServerProcess, node: str, path: str) -> None:
    answer = server.request("GET", f"/api/v1/nodes/{node}/{path}")
    assert (answer.code, "/metrics/resource, /pods" in answer.json["message"]) == (404, True)


def test_other_ports_and_writes_are_refused(server: ApiServerProcess, node: str) -> None:
    assert server.request("GET", f"/api/v1/nodes/{node}:22/proxy/pods").code == 404
    assert server.request("POST", f"/api/v1/nodes/{node}/proxy/pods", {}).code == 405
    assert server.request("GET", "/api/v1/nodes/none/proxy/pods").code == 404


def test_a_nodes_paths_need_the_right_to_them(server: ApiServerProcess, node: str) -> None:
    refused = server.request("GET", f"/api/v1/nodes/{node}/proxy/pods", client=server.identity("jane"))
    assert refused.code == 403
    assert 'cannot get resource "nodes/proxy" in API group ""' in refused.json["message"]
