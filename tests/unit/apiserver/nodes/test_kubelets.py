"""Which nodes are asked at their own address, and which addresses are not believed."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest

from minik8s_modules.api.errors import ServiceUnavailable
from minik8s_modules.apiserver.nodes.kubelets import (
    Kubelet,
    KubeletPath,
    Own,
    check_names,
    command_wanted,
    forward_wanted,
    kubelet_of,
    log_wanted,
    request_bytes,
)

RANGES = (ipaddress.IPv4Network("100.0.0.0/24"), ipaddress.IPv6Network("fd00:10:96::/112"))
OWN = Own("192.0.2.1", 6443, 10250, RANGES)
POD = {"metadata": {"namespace": "ns", "name": "web"}}


def _node(address: str = "192.0.2.7", port: Any = 10250, type_: str = "virtual-kubelet") -> dict[str, Any]:
    return {
        "metadata": {"name": "far", "labels": {"type": type_}},
        "status": {
            "addresses": [{"type": "Hostname", "address": "far"}, {"type": "InternalIP", "address": address}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        },
    }


def test_a_node_is_asked_where_it_says() -> None:
    assert kubelet_of(_node(), OWN) == Kubelet("far", "192.0.2.7", 10250)
    external = _node()
    external["status"]["addresses"][1]["type"] = "ExternalIP"
    assert kubelet_of(external, OWN) == Kubelet("far", "192.0.2.7", 10250)


def test_a_node_of_ipv6_is_asked_where_it_says() -> None:
    assert kubelet_of(_node("fd00::21"), OWN) == Kubelet("far", "fd00::21", 10250)


@pytest.mark.parametrize("port", [0, -1, 65536, "10250", None, 1.5])
def test_what_is_no_port_is_nowhere(port: Any) -> None:
    assert kubelet_of(_node(port=port), OWN) is None


def test_a_node_without_an_address_of_its_own_is_nowhere() -> None:
    node = _node()
    node["status"]["addresses"].pop()
    assert kubelet_of(node, OWN) is None


def test_a_machine_whose_port_leads_to_api_servers_has_no_kubelet() -> None:
    assert kubelet_of(_node(type_="worker"), OWN) is None
    assert kubelet_of(_node(port=10350, type_="worker"), OWN) is not None


@pytest.mark.parametrize(
    ("address", "port"),
    [
        ("127.0.0.1", 10250),
        ("127.1.2.3", 10250),
        ("169.254.169.254", 80),
        ("0.0.0.0", 10250),
        ("224.0.0.1", 10250),
        ("239.1.2.3", 10250),
        ("255.255.255.255", 10250),
        ("192.0.2.1", 6443),
        ("100.0.0.1", 443),
        ("100.0.0.77", 10250),
        ("::1", 10250),
        ("localhost", 10250),
        ("metadata.google.internal", 80),
        ("0177.0.0.1", 10250),
        ("2130706433", 10250),
    ],
)
def test_an_address_that_leads_elsewhere_is_refused(address: str, port: int) -> None:
    with pytest.raises(ServiceUnavailable, match="node far says that its kubelet is at"):
        kubelet_of(_node(address, port), OWN)


@pytest.mark.parametrize(
    ("address", "port"),
    [
        ("::1", 10250),
        ("0:0::1", 10250),
        ("::", 10250),
        ("fe80::1", 10250),
        ("fd00::7%eth0", 10250),
        ("ff02::1", 10250),
        ("ff05::2", 10250),
        ("::ffff:127.0.0.1", 10250),
        ("::ffff:c000:0201", 6443),
        ("::127.0.0.1", 10250),
        ("FD00:0:0::21", 6443),
        ("fd00:10:96::1", 443),
        ("fd00:10:96:0:0:0:0:77", 10250),
        ("[fd00::7]", 10250),
    ],
)
def test_an_ipv6_address_that_leads_elsewhere_is_refused_however_it_is_written(address: str, port: int) -> None:
    own = Own("fd00::21", 6443, 10250, RANGES)
    with pytest.raises(ServiceUnavailable, match="node far says that its kubelet is at"):
        kubelet_of(_node(address, port), own)


@pytest.mark.parametrize("address", ["100.0.0.1", "fd00:10:96::1", "FD00:10:96:0::1"])
def test_an_address_of_services_of_either_family_is_refused_in_a_cluster_of_both(address: str) -> None:
    with pytest.raises(ServiceUnavailable, match="is an address of Services"):
        kubelet_of(_node(address, 443), OWN)


def test_a_certificate_is_for_an_ipv6_address_as_openssl_writes_it() -> None:
    node = Kubelet("far", "fd00::21", 10250)
    check_names({"subjectAltName": (("IP Address", "FD00:0:0:0:0:0:0:21"),)}, node)
    with pytest.raises(ConnectionAbortedError, match="it must be for"):
        check_names({"subjectAltName": (("IP Address", "FD00:0:0:0:0:0:0:22"),)}, node)


FAR = Kubelet("far", "192.0.2.7", 10250)


@pytest.mark.parametrize(
    "names",
    [
        (("IP Address", "192.0.2.7"),),
        (("DNS", "other"), ("DNS", "far")),
        (("DNS", "far.node.minik8s.internal"),),
    ],
)
def test_a_certificate_is_for_the_address_or_the_node(names: Any) -> None:
    check_names({"subjectAltName": names}, FAR)


@pytest.mark.parametrize(
    "certificate",
    [
        {},
        {"subject": ((("commonName", "far"),),)},
        {"subjectAltName": (("DNS", "192.0.2.7"), ("IP Address", "far"), ("DNS", "*"), ("DNS", "afar"))},
        {"subjectAltName": (("DNS", "near.node.minik8s.internal"), ("IP Address", "192.0.2.8"))},
    ],
)
def test_another_certificate_is_not_believed(certificate: Any) -> None:
    with pytest.raises(ConnectionAbortedError, match="it must be for"):
        check_names(certificate, FAR)


def _of(common_name: str, *names: tuple[str, str]) -> dict[str, Any]:
    return {"subject": ((("organizationName", "x"),), (("commonName", common_name),)), "subjectAltName": names}


@pytest.mark.parametrize("user", ["kube-apiserver", "minik8s-reconciler", "minik8s-gateway"])
def test_a_node_called_or_placed_like_the_control_plane_is_not_believed(user: str) -> None:
    names = (("DNS", "kubernetes"), ("DNS", "localhost"), ("DNS", "cp1"), ("IP Address", "192.0.2.1"))
    for node in ("kubernetes", "localhost", "cp1", "far"):
        with pytest.raises(ConnectionAbortedError, match=f"is of {user}, not of node"):
            check_names(_of(user, *names), Kubelet(node, "192.0.2.1", 6443))


def test_another_nodes_certificate_is_not_believed_for_its_address() -> None:
    with pytest.raises(ConnectionAbortedError, match="it must be for"):
        check_names(_of("system:node:near", ("IP Address", FAR.address), ("DNS", "near")), FAR)
    check_names(_of("system:node:near", ("DNS", "near"), ("DNS", "far")), FAR)


@pytest.mark.parametrize("user", ["system:node:far", "far", "virtual-kubelet", "system:minik8s:virtual"])
def test_a_nodes_own_certificate_and_one_that_people_made_are_believed(user: str) -> None:
    check_names(_of(user, ("IP Address", FAR.address)), FAR)


def test_what_is_asked() -> None:
    assert log_wanted(POD, "app", {"follow": "true", "tailLines": "3", "container": "app", "x": "y"}) == KubeletPath(
        "/containerLogs/ns/web/app", (("follow", "true"), ("tailLines", "3"))
    )
    options = (("container", "app"), ("stdin", "true"), ("stdout", "true"), ("tty", "true"), ("command", "a b"))
    wanted = command_wanted(POD, "exec", "app", options)
    assert wanted == KubeletPath(
        "/exec/ns/web/app", (("input", "1"), ("output", "1"), ("tty", "1"), ("command", "a b"))
    )
    assert forward_wanted(POD, (("ports", "80"), ("ports", "81"))).query == (("port", "80"), ("port", "81"))
    upgrade = {"Upgrade": "SPDY/3.1", "Connection": "Upgrade", "Authorization": "Bearer secret"}
    assert request_bytes("POST", FAR, wanted, upgrade) == (
        b"POST /exec/ns/web/app?input=1&output=1&tty=1&command=a+b HTTP/1.1\r\nHost: far\r\n"
        b"User-Agent: minik8s-apiserver\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
    )
    assert b"Connection: close" in request_bytes("GET", FAR, KubeletPath("/pods"), {})
