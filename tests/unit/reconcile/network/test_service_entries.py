"""Entries of the section services: every file of tests/cases/service_ports is one Service and its slices."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path

import pytest
import yaml

from minik8s_modules.api.network.balancing import Balancing, Span
from minik8s_modules.api.network.dual_stack import DualStack
from minik8s_modules.api.network.surroundings import Machine, World
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.module_utils.minik8s.entries.services import DataplaneEntry
from minik8s_modules.reconcile.network.dataplane import dataplane_entry
from minik8s_modules.reconcile.network.services import (
    Balancers,
    ServiceBook,
    kubernetes_address,
    service_ports,
)
from minik8s_modules.reconcile.values.values import Settings

CASES = sorted((Path(__file__).parents[3] / "cases" / "service_ports").glob("*.yml"))
PLANE: DataplaneEntry = {
    "mode": "nftables",
    "table": "minik8s",
    "service_cidr": "100.0.0.0/24",
    "cluster_cidr": "10.244.0.0/16",
    "pod_cidr": "10.244.1.0/24",
    "bridge": "mk8s-br0",
    "gateway": "10.244.1.1",
    "node_ip": "192.0.2.1",
}


POOLS = (("203.0.113.10", "203.0.113.20"), ("2001:db8::10", "2001:db8::20"))
BALANCERS = Balancers(
    Balancing("pool", tuple(Span(*map(ip_address, each)) for each in POOLS), frozenset({22})),
    World(tuple(Machine(name, f"192.0.2.{name[1:]}", ready=True, silent=False) for name in ("n1", "n2"))),
)


def declared(told: JsonObject, status: JsonObject | None = None) -> JsonObject:
    """Return a Service from a case's short form (its spec, and the points of its load balancer)."""
    spec = {"type": "ClusterIP", "clusterIP": "100.0.0.9", **told}
    made = {"metadata": {"name": "web", "namespace": "default"}, "spec": spec}
    return made | ({"status": {"loadBalancer": {"ingress": status}}} if status else {})


def endpoint_slice(told: JsonObject) -> JsonObject:
    """Return a slice from a case's short form: ports {name: number}, endpoints [[address, node, state]]."""
    states = {
        "ready": {"ready": True, "serving": True, "terminating": False},
        "unready": {"ready": False, "serving": False, "terminating": False},
        "ending": {"ready": False, "serving": True, "terminating": True},
        "gone": {"ready": False, "serving": False, "terminating": True},
    }
    endpoints = [
        {"addresses": [address], "nodeName": node, "conditions": states[state]}
        for address, node, state in told["endpoints"]
    ]
    protocol = told.get("protocol", "TCP")
    ports = [{"name": name, "port": number, "protocol": protocol} for name, number in told["ports"].items()]
    family = {"addressType": told["family"]} if "family" in told else {}
    return {**family, "ports": ports, "endpoints": endpoints}


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_service_ports(path: Path) -> None:
    case = yaml.safe_load(path.read_text(encoding="utf-8"))
    slices = [endpoint_slice(each) for each in case["slices"]]
    ports = service_ports(declared(case["service"], case.get("ingress")), slices, balancers=BALANCERS)
    for node, wanted in case["entries"].items():
        assert {key: port.on(node) for key, port in ports.items()} == wanted


def test_a_pod_that_ends_leaves_before_its_slice_says_so() -> None:
    told = {"ports": {"": 8080}, "endpoints": [["10.1.0.2", "n1", "ready"], ["10.1.0.3", "n1", "ready"]]}
    made = endpoint_slice(told)
    for endpoint, uid in zip(made["endpoints"], ("stays", "leaves"), strict=True):
        endpoint["targetRef"] = {"kind": "Pod", "uid": uid}
    service = declared({"ports": [{"port": 80}]})

    def left(service: JsonObject, *leaving: str) -> list[str]:
        (port,) = service_ports(service, [made], set(leaving)).values()
        return [address for address, _ in port.entry["endpoints"]]

    assert left(service, "leaves", "another") == ["10.1.0.2"]
    # the last ones serve until they have gone
    assert left(service, "leaves", "stays") == ["10.1.0.2", "10.1.0.3"]
    assert left(declared({"ports": [{"port": 80}], "publishNotReadyAddresses": True}), "leaves") == [
        "10.1.0.2",
        "10.1.0.3",
    ]


def test_clients_have_the_endpoints_of_their_own_zone() -> None:
    ends = [["10.1.0.2", "n1", "ready"], ["10.2.0.2", "n2", "ready"]]
    made = endpoint_slice({"ports": {"": 8080}, "endpoints": ends})
    for endpoint, zone in zip(made["endpoints"], ("west", "east"), strict=True):
        endpoint["hints"] = {"forZones": [{"name": zone}]}

    def had(zone: str, **spec: str) -> object:
        (port,) = service_ports(declared({"ports": [{"port": 80}], **spec}), [made]).values()
        return port.on("n1", zone)["endpoints"]

    west, both = [["10.1.0.2", 8080]], [["10.1.0.2", 8080], ["10.2.0.2", 8080]]
    assert had("west") == west
    assert had("north") == had("") == both
    assert had("east", internalTrafficPolicy="Local") == west, "the policy of the node goes first"
    del made["endpoints"][1]["hints"]
    assert had("west") == both, "one that is meant for nobody in particular is for all"


def test_a_change_of_one_service_leaves_the_other_entries_as_they_are() -> None:
    book = ServiceBook()
    for number in range(3):
        ports = service_ports(declared({"clusterIP": f"100.0.0.{number}", "ports": [{"port": 80}]}), [])
        book.put(f"default/s{number}", {f"default/s{number}:80": ports["default/web:80"]})
    before = book.entries("n1", PLANE)
    assert book.entries("n1", PLANE) is before
    changed = service_ports(declared({"clusterIP": "100.0.0.0", "ports": [{"port": 81}]}), [])
    assert book.put("default/s0", {"default/s0:80": changed["default/web:81"]})
    after = book.entries("n1", PLANE)
    assert {key for key in after if after[key] is not before[key]} == {"default/s0:80"}
    assert not book.put("default/s0", {"default/s0:80": changed["default/web:81"]})
    assert book.put("default/s0", {})
    assert "default/s0:80" not in book.entries("n1", PLANE)
    assert book.entries("n1", None) == {}


def test_the_kubelets_port_leads_to_api_servers() -> None:
    service = declared({"clusterIP": "100.0.0.1", "ports": [{"name": "https", "port": 443}]})
    service["metadata"] = {"name": "kubernetes", "namespace": "default"}
    slices = [endpoint_slice({"ports": {"https": 6443}, "endpoints": [["192.0.2.1", "", "ready"]]})]

    def entry(kubelet_port: int) -> Mapping[str, object]:
        return service_ports(service, slices, kubelet_port=kubelet_port)["default/kubernetes:https"].entry

    assert entry(10250) == {**entry(0), "node_port": 10250}
    assert entry(0)["endpoints"] == [["192.0.2.1", 6443]]
    other = service_ports(declared({"ports": [{"name": "https", "port": 443}]}), slices, kubelet_port=10250)
    assert all("node_port" not in port.entry for port in other.values())
    service["spec"] |= {"type": "NodePort", "ports": [{"name": "https", "port": 443, "nodePort": 30443}]}
    assert entry(10250)["node_port"] == 30443


def test_the_dataplane_of_a_node() -> None:
    node: JsonObject = {
        "metadata": {"name": "n1"},
        "spec": {"podCIDR": "10.244.3.0/24"},
        "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.4"}]},
    }
    entry = dataplane_entry(node, Settings())
    assert entry is not None
    assert (entry["mode"], entry["table"], entry["gateway"]) == ("nftables", "minik8s", "10.244.3.1")
    assert entry["node_ip"] == "192.0.2.4"
    assert "ipv6" not in entry
    dual = Settings(service_cidr_ipv6="fd00:96::/112", dual_stack=DualStack("10.244.0.0/16", "fd00:10:244::/48"))
    both = dataplane_entry(node, dual)
    assert both is not None
    assert both["ipv6"] == {
        "service_cidr": "fd00:96::/112",
        "cluster_cidr": "fd00:10:244::/48",
        "pod_cidr": "fd00:10:244:3::/64",
        "gateway": "fd00:10:244:3::1",
    }
    node["status"]["addresses"].append({"type": "InternalIP", "address": "2001:db8::4"})
    own = dataplane_entry(node, dual)
    assert own is not None
    assert (own["node_ip"], own["ipv6"]["node_ip"]) == ("192.0.2.4", "2001:db8::4")
    asked = dataplane_entry(node, Settings(proxy_mode="ipvs"))
    assert asked is not None
    assert asked["mode"] == "ipvs"
    assert dataplane_entry({"metadata": {"name": "n1"}, "spec": {}}, Settings()) is None


def test_a_node_whose_pods_have_no_ipv6_addresses_gets_no_services_of_it() -> None:
    slices = [
        endpoint_slice({"ports": {"": 8080}, "endpoints": [["10.0.1.2", "n1", "ready"]]}),
        endpoint_slice({"family": "IPv6", "ports": {"": 8080}, "endpoints": [["fd00::1", "n1", "ready"]]}),
    ]
    book = ServiceBook()
    service = declared({"ports": [{"port": 80}], "clusterIPs": ["100.0.0.9", "fd00:96::9"]})
    book.put("default/web", service_ports(service, slices))
    plane = dataplane_entry({"spec": {"podCIDR": "10.1.0.0/24"}, "metadata": {"name": "n1"}}, Settings())
    assert plane is not None
    assert set(book.entries("n1", plane)) == {"dataplane", "default/web:80"}
    plane = {**plane, "ipv6": {"service_cidr": "fd00:96::/112", "cluster_cidr": "", "pod_cidr": "", "gateway": ""}}
    assert set(book.entries("n1", plane)) == {"dataplane", "default/web:80", "default/web:80/IPv6"}


def test_the_address_of_the_api_server_is_the_first_of_the_range() -> None:
    assert kubernetes_address("100.64.8.0/24") == "100.64.8.1:443"
