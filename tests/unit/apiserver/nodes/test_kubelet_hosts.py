"""Which node a Host header means, and what a kubelet would ask of whoever reads a path."""

from __future__ import annotations

from typing import Any, cast

import pytest

from minik8s_modules.api.kinds import NODE
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.nodes.kubelet_hosts import KUBELET, KubeletHosts, needed, nodes_at
from minik8s_modules.store.cache import WatchCache


def node(name: str, *addresses: str) -> JsonObject:
    listed = [{"type": "InternalIP", "address": each} for each in addresses]
    return {"metadata": {"name": name}, "status": {"addresses": listed}}


def test_an_address_that_two_nodes_claim_is_nobodys() -> None:
    found = nodes_at(
        [node("a", "192.0.2.1", "A.example"), node("b", "192.0.2.2", "192.0.2.1"), node("c"), node("d", "d")]
    )
    assert found == {"a.example": "a", "192.0.2.2": "b", "d": "d"}


def test_a_virtual_node_takes_no_address_from_the_machine_that_carries_it() -> None:
    far = node("far", "192.0.2.1")
    far["metadata"]["labels"] = {"type": "virtual-kubelet"}
    assert nodes_at([node("a", "192.0.2.1"), far]) == {"192.0.2.1": "a"}


def test_a_node_may_name_an_address_twice() -> None:
    assert nodes_at([node("a", "192.0.2.1", "192.0.2.1")]) == {"192.0.2.1": "a"}


@pytest.mark.parametrize(
    ("path", "right"),
    [
        ("/metrics", "metrics"), ("/metrics/resource", "metrics"), ("/stats/summary", "stats"), ("/pods", "proxy"),
        ("/metricsx", "proxy"), ("/containerLogs/a/b/c", "proxy"), ("/", "proxy"), ("/logs/x", "log"),
    ],
)  # fmt: skip
def test_rights_are_a_kubelets(path: str, right: str) -> None:
    assert needed(path) == right


class _Listed:
    """A cache with one node, as far as it is asked here."""

    def changes(self, prefix: str) -> int:
        assert prefix == NODE.prefix
        return 1

    def list(self, _prefix: str) -> Any:
        item = type("Item", (), {"object": node("n1", "192.0.2.1", "fd00::21")})
        return type("Listing", (), {"items": [item]})


def asked(host: str, path: str, port: int = 10250) -> dict[str, Any]:
    seen: list[dict[str, Any]] = []
    app = KubeletHosts(lambda environ, _: seen.append(environ), cast("WatchCache", _Listed()), port)
    app({"HTTP_HOST": host, "PATH_INFO": path, "RAW_URI": f"{path}?a=b"}, lambda: None)
    return seen[0]


@pytest.mark.parametrize("path", ["/metrics/resource", "//metrics/resource"])
def test_a_nodes_host_leads_to_its_proxy(path: str) -> None:
    found = asked("192.0.2.1:10250", path)
    assert found["PATH_INFO"] == "/api/v1/nodes/n1/proxy/metrics/resource"
    assert found["RAW_URI"] == "/api/v1/nodes/n1/proxy/metrics/resource?a=b"
    assert found[KUBELET] == "metrics"


def test_a_nodes_host_may_be_its_ipv6_address() -> None:
    assert asked("[FD00::21]:10250", "/metrics")[KUBELET] == "metrics"


@pytest.mark.parametrize(
    ("host", "port"), [("192.0.2.1", 10250), ("192.0.2.1:6443", 10250), ("192.0.2.2:10250", 10250), ("192.0.2.1:0", 0)]
)
def test_every_other_host_is_the_api_servers(host: str, port: int) -> None:
    found = asked(host, "/metrics", port)
    assert found["PATH_INFO"] == "/metrics"
    assert KUBELET not in found
