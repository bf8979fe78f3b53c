"""Pods and Services with IPv6 addresses alone: claimed as they are, and nothing of IPv4 beside them."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest

from minik8s_modules.api.kinds import NODE, POD_ADDRESS, POD_CIDR
from minik8s_modules.api.network.dual_stack import DualStack, read_dual_stack, same_family
from minik8s_modules.api.nodes.pod_cidrs import NoCidrLeft, choose, claim_of
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.validation.meta import name_messages
from minik8s_modules.base.clock import SystemClock
from minik8s_modules.base.config import Configuration
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.controllers.network.endpoints_of_pods import address_of, families_of
from minik8s_modules.module_utils.minik8s.core.faults import KeyFault
from minik8s_modules.module_utils.minik8s.network.network import Network
from minik8s_modules.module_utils.minik8s.pods.sandboxes import Sandboxes, body_of
from minik8s_modules.module_utils.minik8s.policies import policy_entries
from minik8s_modules.module_utils.minik8s.services import services_entries
from minik8s_modules.reconcile.network.dataplane import dataplane_entry
from minik8s_modules.reconcile.network.network_settings import network_settings
from minik8s_modules.reconcile.network.networks import machines, network_entries
from minik8s_modules.reconcile.network.services import (
    API_PORT,
    OF_IPV6,
    kubernetes_address,
    service_ports,
)
from minik8s_modules.reconcile.nodes import nodes
from minik8s_modules.reconcile.nodes.registration import Registrar
from minik8s_modules.reconcile.pods.observed import ObservedPod
from minik8s_modules.reconcile.pods.sandboxes import sandbox_entry
from minik8s_modules.reconcile.status.status import Place, pod_status
from minik8s_modules.reconcile.values.addresses import AddressBook, usable
from minik8s_modules.reconcile.values.environment import field_value, service_variables
from minik8s_modules.reconcile.values.resources import host_ips
from minik8s_modules.reconcile.values.values import OverlaySettings, PodDecision, Settings
from tests.unit.reconcile.worlds import inputs

CLUSTER, SERVICES = "fd00:10:244::/48", "fd00:10:96::/112"
ALONE = DualStack("", CLUSTER)
SETTINGS = Settings(
    cluster_cidr=CLUSTER,
    service_cidr=SERVICES,
    service_cidr_ipv6=SERVICES,
    dual_stack=ALONE,
    overlay=OverlaySettings("mk8s-vx0", ipv6=True),
    mtu=1430,
)


def node(name: str, number: int) -> JsonObject:
    status = {"addresses": [{"type": "InternalIP", "address": f"2001:db8::{number}"}]}
    return {"metadata": {"name": name}, "spec": {"podCIDR": f"fd00:10:244:{number}::/64"}, "status": status}


def test_ranges_and_addresses_are_their_own() -> None:
    assert ALONE
    assert ALONE.alone
    assert not DualStack("10.244.0.0/16", CLUSTER).alone
    assert not DualStack().alone
    assert ALONE.ranges_of("fd00:10:244:3::/64") == ["fd00:10:244:3::/64"]
    assert ALONE.addresses_of("fd00:10:244:3::7") == ["fd00:10:244:3::7"]
    assert ALONE.gateway_of("fd00:10:244:3::/64") == "fd00:10:244:3::1"
    assert ALONE.range_of("fd01::/64") == ALONE.address_of("192.0.2.1") == ALONE.range_of("") == ""


def test_nodes_get_blocks_in_order_and_pods_addresses_behind_the_gateways() -> None:
    known: list[JsonObject] = []
    for number in range(3):
        found = choose(CLUSTER, f"n{number}", [], known)
        known.append(claim_of(found.cidr, f"n{number}"))
    assert [one["metadata"]["name"] for one in known] == [f"fd00:10:244{each}::-64" for each in ("", ":1", ":2")]
    assert not any(name_messages(POD_CIDR, one["metadata"]["name"]) for one in known)
    with pytest.raises(NoCidrLeft, match="no free /64"):
        choose("fd00::/64", "b", [], [claim_of("fd00::/64", "a")])
    found_addresses = [*usable("fd00:10:244:3::/64")]
    assert (found_addresses[0], found_addresses[-1], len(found_addresses)) == (
        "fd00:10:244:3::2",
        "fd00:10:244:3::fe",
        253,
    )
    api = FakeApi(SystemClock())
    book = AddressBook(api, SystemClock())
    for uid, ip in (("u1", "fd00:10:244:3::2"), ("u2", "fd00:10:244:3::3")):
        assert (
            book.claim({"metadata": {"uid": uid, "name": uid, "namespace": "default"}}, "n", "fd00:10:244:3::/64") == ip
        )
    assert {one["metadata"]["name"] for one in api.list(POD_ADDRESS).items} == {"fd00:10:244:3::2", "fd00:10:244:3::3"}
    assert not name_messages(POD_ADDRESS, "fd00:10:244:3::2")
    assert name_messages(POD_ADDRESS, "fd00:10:244:3:0::2")  # another spelling would be another claim


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"cluster": "fd00::/65"}, "too small: each node gets a /64"),
        ({"cluster": CLUSTER, "cluster_cidr_ipv6": "fd01::/48"}, "is of IPv6: Pods have no other addresses"),
        ({"cluster": CLUSTER, "service": "10.96.0.0/16"}, "must be of one family"),
        ({"cluster": "10.244.0.0/16", "service": SERVICES}, "must be of one family"),
        ({"cluster": CLUSTER, "network": {"driver": "weave"}}, "cluster_cidr of IPv6 is for the drivers"),
        (
            {"cluster": CLUSTER, "network": {"driver": "vxlan", "direct": True}},
            "network.direct has no next hop of IPv6",
        ),
    ],
)
def test_what_does_not_fit_ends_the_daemon_with_its_reason(given: dict[str, Any], words: str) -> None:
    configuration = Configuration(given, "test")

    def read() -> None:
        same_family(given["cluster"], given.get("service", ""))
        dual = read_dual_stack(configuration, given["cluster"])
        network_settings(configuration, Settings(dual_stack=dual))

    with pytest.raises(ConfigurationError, match=words):
        read()


def test_a_node_is_told_of_ipv6_alone() -> None:
    a, b = node("a", 1), node("b", 2)
    (entry,) = network_entries(a, SETTINGS, machines([a, b], ipv6=True)).values()
    Network().check_entry("pod-network", entry)
    assert not {"cidr", "gateway"} & set(entry)
    assert entry["cluster_cidr"] == ""
    assert entry["ipv6"] == {"cidr": "fd00:10:244:1::/64", "gateway": "fd00:10:244:1::1", "cluster_cidr": CLUSTER}
    assert entry["overlay"]["peers"] == {"b": {"cidr": "", "cidr_ipv6": "fd00:10:244:2::/64", "address": "2001:db8::2"}}
    plane = dataplane_entry(a, SETTINGS)
    assert plane is not None
    services_entries.check_entry("dataplane", plane)
    assert [plane[name] for name in ("service_cidr", "cluster_cidr", "pod_cidr", "gateway")] == [""] * 4
    assert plane["ipv6"]["service_cidr"] == SERVICES


@pytest.mark.parametrize("change", [{"cidr": "10.0.0.0/24"}, {"gateway": "10.0.0.1"}, {"cluster_cidr": "10.0.0.0/8"}])
def test_half_of_ipv4_is_refused(change: dict[str, Any]) -> None:
    (entry,) = network_entries(node("a", 1), SETTINGS, {}).values()
    with pytest.raises(KeyFault):
        Network().check_entry("pod-network", {**entry, **change})
    plane = dataplane_entry(node("a", 1), SETTINGS)
    with pytest.raises(KeyFault):
        services_entries.check_entry("dataplane", {**(plane or {}), "gateway": "10.0.0.1"})
    peers = {"b": {"cidr": "10.0.0.0/24", "cidr_ipv6": "fd00:10:244:2::/64", "address": "2001:db8::2"}}
    with pytest.raises(KeyFault, match="no addresses of"):
        Network().check_entry("pod-network", {**entry, "overlay": {**entry["overlay"], "peers": peers}})


def test_a_pod_has_one_address_everywhere() -> None:
    found, address = node("a", 1), "fd00:10:244:1::7"
    uid = "0c1ce2f0-0000-4000-8000-000000000000"
    pod = {
        "metadata": {"name": "web", "namespace": "default", "uid": uid},
        "spec": {"containers": [{"name": "app", "image": "a"}]},
    }
    given = inputs({"node": found})._replace(settings=SETTINGS, address=address)
    entry = sandbox_entry(pod, 0, ObservedPod(), given)
    Sandboxes().check_entry(uid, entry)
    assert (entry["ip"], entry["gateway"]) == ("", "")
    assert entry["ipv6"] == {"ip": address, "gateway": "fd00:10:244:1::1"}
    body = body_of("a", entry)
    assert body["Labels"]["minik8s.io/ip"] == address
    assert body["HostConfig"]["ExtraHosts"] == [f"web:{address}"]
    status = pod_status(pod, ObservedPod(), PodDecision({}), Place("2001:db8::1", address, ALONE), SystemClock().now())
    assert (status["podIP"], status["podIPs"]) == (address, [{"ip": address}])
    assert field_value(pod, "status.podIPs", given) == address
    assert (address_of({"status": status}, "IPv6"), address_of({"status": status}, "IPv4")) == (address, "")


def test_a_pod_of_a_policy_has_its_address_in_the_table_of_ipv6() -> None:
    entry: dict[str, Any] = {
        "address": "",
        "address_ipv6": "fd00::7",
        "groups": [],
        "ports": [],
        "ingress": [],
        "egress": None,
    }
    policy_entries.check_entry("pod/default/db", entry)
    for wrong in ({"address_ipv6": ""}, {"address": "fd00::7"}):
        with pytest.raises(KeyFault):
            policy_entries.check_entry("pod/default/db", {**entry, **wrong})


def test_programs_find_the_api_server_at_an_address_without_brackets() -> None:
    assert kubernetes_address(SERVICES) == "[fd00:10:96::1]:443"
    found = service_variables(kubernetes_address(SERVICES))
    assert found["KUBERNETES_SERVICE_HOST"] == found["KUBERNETES_PORT_443_TCP_ADDR"] == "fd00:10:96::1"
    assert found["KUBERNETES_PORT"] == "tcp://[fd00:10:96::1]:443"


def test_the_port_of_kubelets_leads_to_api_servers_of_ipv6() -> None:
    spec = {"clusterIP": "fd00:10:96::1", "ports": [{"name": "https", "port": 443}]}
    service = {"metadata": {"namespace": "default", "name": "kubernetes"}, "spec": spec}
    assert families_of(service) == ["IPv6"]
    ports = service_ports(service, [], (), 10250)
    assert ports[API_PORT + OF_IPV6].entry["node_port"] == 10250


def test_a_node_is_known_by_its_ipv6_address_first() -> None:
    api = FakeApi(SystemClock())
    registrar = Registrar(api, lambda _: None, lambda _: True, CLUSTER, SystemClock(), dual_stack=ALONE, ipv6=True)
    facts = {"cpus": 2, "memory_bytes": 1 << 30, "internal_ip": "192.0.2.10", "internal_ipv6": "2001:db8::10"}
    registrar.on_facts("n1", facts)
    registrar.write("n1")
    found = api.get(NODE, "n1")
    assert (found["spec"]["podCIDR"], found["spec"]["podCIDRs"]) == ("fd00:10:244::/64", ["fd00:10:244::/64"])
    assert host_ips(found) == ["2001:db8::10", "192.0.2.10"]
    said = [{"type": "InternalIP", "address": "198.51.100.7"}]
    told = nodes.addresses(found["status"]["addresses"], said, ipv6_first=True)
    assert [one["address"] for one in told] == ["2001:db8::10", "198.51.100.7", "n1"]


def test_another_spelling_of_a_range_is_the_same_range() -> None:
    a, b, liar = node("a", 1), node("b", 2), node("x", 3)
    liar["spec"]["podCIDR"] = "FD00:10:244:1::/64"
    known = machines([a, b, liar], ipv6=True, cluster=CLUSTER)
    assert list(known) == ["a", "b"]
    liar["spec"]["podCIDR"] = "FD00:10:244:0003::/64"
    known = machines([a, b, liar], ipv6=True, cluster=CLUSTER)
    assert known["x"]["cidr"] == "fd00:10:244:3::/64"
    (entry,) = network_entries(a, SETTINGS, known).values()
    Network().check_entry("pod-network", entry)


@pytest.mark.parametrize(
    ("cidr", "places"), [("fd00::/126", 2), ("fd00::/127", 0), ("fd00::/121", 126), ("fd00::/120", 253)]
)
def test_no_pod_has_an_address_beyond_the_range_of_its_node(cidr: str, places: int) -> None:
    found = [*usable(cidr)]
    assert len(found) == places
    assert all(ipaddress.ip_address(one) in ipaddress.ip_network(cidr) for one in found)
