"""Pods with an IPv6 address beside that of IPv4: computed from it, wherever it stands."""

from __future__ import annotations

import ipaddress
import random
from typing import Any

import pytest

from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import NODE
from minik8s_modules.api.network.dual_stack import DualStack, read_dual_stack
from minik8s_modules.api.network.network_policies import parse_policy, pod_of
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.sidecars import with_sidecar
from minik8s_modules.base.clock import SystemClock
from minik8s_modules.base.config import Configuration
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.module_utils.minik8s.core.faults import KeyFault
from minik8s_modules.module_utils.minik8s.network.network import Network
from minik8s_modules.reconcile.network.dataplane import dataplane_entry
from minik8s_modules.reconcile.network.network_settings import network_settings
from minik8s_modules.reconcile.network.networks import machines, network_entries
from minik8s_modules.reconcile.network.policies import PolicyBook, filter_entry
from minik8s_modules.reconcile.nodes import nodes
from minik8s_modules.reconcile.nodes.registration import Registrar
from minik8s_modules.reconcile.pods.observed import ObservedPod
from minik8s_modules.reconcile.pods.sandboxes import decide_sandbox, sandbox_entry
from minik8s_modules.reconcile.pods.sidecars import sidecar_entry
from minik8s_modules.reconcile.status.status import Place, pod_status
from minik8s_modules.reconcile.values.environment import field_value
from minik8s_modules.reconcile.values.resources import host_ip, host_ips
from minik8s_modules.reconcile.values.values import OverlaySettings, PodDecision, Settings
from tests.support.policies import SPACES, pods
from tests.unit.reconcile.worlds import inputs

DUAL = DualStack("10.244.0.0/16", "fd00:10:244::/48")
SETTINGS = Settings(dual_stack=DUAL, overlay=OverlaySettings("mk8s-vx0"), mtu=1450)


def node(name: str, cidr: str, address: str) -> dict[str, Any]:
    status = {"addresses": [{"type": "InternalIP", "address": address}]}
    return {"metadata": {"name": name}, "spec": {"podCIDR": cidr}, "status": status}


def test_rules_of_ipv6_let_the_node_pass_and_are_those_of_mutual_tls_alone() -> None:
    one = {"node": node("n1", "10.244.3.0/24", "192.0.2.1"), "settings": {"dual_stack": DUAL}}
    spec = with_sidecar({"containers": []}, mutual=True)
    for each, more in ((with_sidecar({"containers": []}), []), (spec, ["fd00:10:244:3::1"])):
        entry = sidecar_entry({"metadata": {}, "spec": each}, 0, inputs(one))
        assert entry is not None
        assert entry.get("node_addresses") == ["10.244.3.1", "192.0.2.1", *more]
    alone = sidecar_entry({"metadata": {}, "spec": spec}, 0, inputs({**one, "settings": {}}))
    assert alone == {"attempt": 0, "node_addresses": ["10.244.3.1", "192.0.2.1"], "mutual_tls": True}
    seen = node("n1", "10.244.3.0/24", "2001:DB8::1")
    entry = sidecar_entry({"metadata": {}, "spec": spec}, 0, inputs({**one, "node": seen}))
    assert entry is not None
    assert entry.get("node_addresses") == ["10.244.3.1", "2001:db8::1", "fd00:10:244:3::1"]


def test_an_address_has_the_same_place_in_the_block_of_the_same_number() -> None:
    assert DUAL.range_of("10.244.3.0/24") == "fd00:10:244:3::/64"
    assert DUAL.gateway_of("10.244.3.0/24") == "fd00:10:244:3::1"
    assert DUAL.addresses_of("10.244.3.7") == ["10.244.3.7", "fd00:10:244:3::7"]
    assert DUAL.ranges_of("192.0.2.0/24") == ["192.0.2.0/24"]  # of somebody else's
    assert DualStack().addresses_of("10.244.3.7") == ["10.244.3.7"]
    assert not DualStack()


@pytest.mark.parametrize(
    ("ipv4", "ipv6"), [("10.244.0.0/16", "fd00::/56"), ("10.0.0.0/8", "fd00::/40"), ("10.9.8.0/26", "fd00::/64")]
)
def test_whatever_the_ranges_addresses_are_in_that_of_their_node_and_nobody_elses(ipv4: str, ipv6: str) -> None:
    dual, dice = DualStack(ipv4, ipv6), random.Random(26)
    cluster, cluster_ipv6 = ipaddress.IPv4Network(ipv4), ipaddress.IPv6Network(ipv6)
    seen: dict[str, str] = {}
    for _ in range(300):
        length = dice.randrange(cluster.prefixlen, 31)
        address = cluster[dice.randrange(cluster.num_addresses)]
        cidr = ipaddress.IPv4Network(f"{address}/{length}", strict=False)
        ranged = ipaddress.IPv6Network(dual.range_of(str(cidr)))
        assert ranged.subnet_of(cluster_ipv6)
        found = ipaddress.IPv6Address(dual.address_of(str(address)))
        assert found in ranged
        other = cluster[dice.randrange(cluster.num_addresses)]
        assert (ipaddress.IPv6Address(dual.address_of(str(other))) in ranged) == (other in cidr)
        assert seen.setdefault(str(found), str(address)) == str(address)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"cluster_cidr_ipv6": "fd00::/57"}, "must be a /56 or larger"),
        ({"cluster_cidr_ipv6": "10.1.0.0/16"}, "must be an IPv6 network"),
        ({"cluster_cidr_ipv6": "fd00::/48", "cluster": ""}, "needs cluster_cidr"),
        ({"cluster_cidr_ipv6": "fd00::/48", "network": {"driver": "cni"}}, "is for the drivers bridge and vxlan"),
        ({"cluster_cidr_ipv6": "fd00::/48", "network": {"mtu": 1200}}, "must be 1280 or more"),
    ],
)
def test_what_does_not_fit_ends_the_daemon_with_its_reason(given: dict[str, Any], words: str) -> None:
    configuration = Configuration(given, "test")

    def read() -> None:
        dual = read_dual_stack(configuration, given.get("cluster", "10.244.0.0/16"))
        network_settings(configuration, Settings(dual_stack=dual))

    with pytest.raises(ConfigurationError, match=words):
        read()


def test_a_node_is_told_of_both_ranges_and_of_both_ways() -> None:
    a, b = node("a", "10.244.1.0/24", "192.0.2.1"), node("b", "10.244.2.0/24", "192.0.2.2")
    (entry,) = network_entries(a, SETTINGS, machines([a, b])).values()
    Network().check_entry("pod-network", entry)
    cluster = {"cluster_cidr": "fd00:10:244::/48"}
    assert entry["ipv6"] == {"cidr": "fd00:10:244:1::/64", "gateway": "fd00:10:244:1::1", **cluster}
    assert entry["overlay"]["peers"]["b"]["cidr_ipv6"] == "fd00:10:244:2::/64"
    single = network_entries(a, SETTINGS._replace(dual_stack=DualStack()), machines([a, b]))
    assert "ipv6" not in str(single)


@pytest.mark.parametrize("dual", [DUAL, DualStack(), DualStack("", "fd00:10:244::/48")])
def test_a_node_with_a_range_of_another_family_is_alone_with_it(dual: DualStack) -> None:
    """Its own reconciler, whoever holds its credentials, writes what the API server cannot know to be wrong."""
    settings = SETTINGS._replace(dual_stack=dual, cluster_cidr=dual.cluster_cidr if dual.alone else "10.244.0.0/16")
    own, others = (
        ("fd00:10:244:1::/64", ["10.9.0.0/24", "fd01::/64"]) if dual.alone else ("10.244.1.0/24", ["fd00:9::/64"])
    )
    for other in others:
        good, bad = node("a", own, "192.0.2.1"), node("b", other, "192.0.2.2")
        (entry,) = network_entries(good, settings, machines([good, bad])).values()  # even were it not left out
        assert entry["overlay"]["peers"]["b"]["cidr"] == other
        assert list(machines([good, bad], cluster=settings.cluster_cidr)) == ["a"]
        assert network_entries(bad, settings, {}) == {}
        assert dataplane_entry(bad, settings) is None
        assert dual.range_of(other) == dual.gateway_of(other) == ""
        given = inputs({"node": bad, "settings": {"dual_stack": dual}})
        pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "app", "image": "a"}]}}
        waiting = decide_sandbox(pod, ObservedPod(), given, SystemClock().now())
        assert not waiting.address_wanted
        assert waiting.message.startswith(f"node b has the podCIDR {other}, of which Pods can have no addresses")
        # one that it says runs there already is decided about, too
        assert sandbox_entry(pod, 0, ObservedPod(), given)["ip"] == ""


@pytest.mark.parametrize("dual", [DUAL, DualStack(), DualStack("", "fd00:10:244::/48")])
def test_a_claimed_address_that_no_pod_can_have_is_in_no_rule(dual: DualStack) -> None:
    book = PolicyBook(dual)
    for name, labels in SPACES.items():
        book.put_namespace(name, labels)
    found = pods()
    for one in found:
        other = pod_of(one, "10.9.0.5" if dual.alone else "fd00::5")
        assert other is not None
        book.put_pod(other.key, other)
    everybody: JsonObject = {"from": [{"namespaceSelector": {}}]}
    spec = {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [everybody]}
    namespace = found[0]["metadata"]["namespace"]
    policy = parse_policy({"metadata": {"namespace": namespace, "name": "p"}, "spec": spec})
    book.put_policy(policy.key, policy)
    entries = book.entries(found[0]["spec"]["nodeName"], {"table": "t", "bridge": "b", "driver": "bridge"})
    assert entries
    assert not [key for key in entries if key.startswith("pod/")]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cidr": "10.244.1.0/24"}, "in .10.244.1.0"),
        ({"gateway": "fd00:10:244:2::1"}, "must be in"),
        ({"cluster_cidr": "fd01::/48"}, "and that in"),
        ({"colour": "red"}, "unknown fields"),
    ],
)
def test_a_range_that_cannot_be_is_refused(change: dict[str, str], words: str) -> None:
    (entry,) = network_entries(node("a", "10.244.1.0/24", "192.0.2.1"), SETTINGS, {}).values()
    entry["ipv6"].update(change)  # type: ignore[typeddict-item]  # wrong on purpose
    with pytest.raises(KeyFault, match=words):
        Network().check_entry("pod-network", entry)


def test_a_policy_speaks_of_both_addresses_and_of_ranges_of_both() -> None:
    blocks = [{"ipBlock": {"cidr": "fd00::/8", "except": ["fd00:1::/32"]}}, {"ipBlock": {"cidr": "10.0.0.0/8"}}]
    book = PolicyBook(DualStack("10.32.0.0/16", "fd00:32::/48"))
    for name, labels in SPACES.items():
        book.put_namespace(name, labels)
    for one in pods():
        found = pod_of(one, one["status"]["podIP"])
        assert found is not None
        book.put_pod(found.key, found)
    spec = {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{"from": blocks}]}
    parsed = parse_policy({"metadata": {"namespace": "x", "name": "wall"}, "spec": spec})
    book.put_policy(parsed.key, parsed)
    made = filter_entry(node("n1", "10.32.0.0/24", "192.0.2.1"), SETTINGS)
    entries = book.entries("n1", made)
    assert entries["filter"]["ipv6"] is True
    (rule,) = entries[f"policy/{parsed.key}"]["ingress"]
    assert rule["peers"]["blocks"] == [["fd00::/8", ["fd00:1::/32"]], ["10.0.0.0/8", []]]
    told = [entry for key, entry in entries.items() if key.startswith("pod/")]
    assert told
    assert all(entry["address_ipv6"] == f"fd00:32::{int(entry['address'].split('.')[3]):x}" for entry in told)


def test_a_node_gets_its_range_of_ipv6_when_the_cluster_does() -> None:
    api = FakeApi(SystemClock())
    api.create(NODE, {"metadata": {"name": "old"}, "spec": {"podCIDR": "10.244.4.0/24", "podCIDRs": ["10.244.4.0/24"]}})
    registrar = Registrar(
        api, lambda name: _there(api, name), lambda _: True, DUAL.ipv4, SystemClock(), dual_stack=DUAL
    )
    for name in ("old", "new"):
        registrar.on_facts(name, {"cpus": 2, "memory_bytes": 1 << 30, "internal_ip": "192.0.2.10"})
        registrar.write(name)
    ranges = {name: api.get(NODE, name)["spec"]["podCIDRs"] for name in ("old", "new")}
    assert ranges["old"] == ["10.244.4.0/24", "fd00:10:244:4::/64"]
    assert ranges["new"] == ["10.244.0.0/24", "fd00:10:244::/64"]


@pytest.mark.parametrize("ipv6", [True, False])
def test_a_node_tells_its_addresses_of_both_families_where_the_cluster_goes_by_both(*, ipv6: bool) -> None:
    api = FakeApi(SystemClock())
    registrar = Registrar(
        api, lambda name: _there(api, name), lambda _: True, DUAL.ipv4, SystemClock(), dual_stack=DUAL, ipv6=ipv6
    )
    facts = {"cpus": 2, "memory_bytes": 1 << 30, "internal_ip": "192.0.2.10", "internal_ipv6": "2001:db8::10"}
    registrar.on_facts("n1", facts)
    registrar.write("n1")
    found = api.get(NODE, "n1")
    told = ["192.0.2.10", "2001:db8::10"] if ipv6 else ["192.0.2.10"]
    assert [one["address"] for one in found["status"]["addresses"] if one["type"] == "InternalIP"] == told
    assert (host_ip(found), host_ips(found)) == ("192.0.2.10", told)
    place = Place(host_ip(found), "10.244.0.7", DUAL, tuple(host_ips(found)))
    pod = {"metadata": {"name": "a"}, "spec": {"containers": []}}
    status = pod_status(pod, ObservedPod(), PodDecision({}), place, SystemClock().now())
    assert (status["hostIP"], status["hostIPs"]) == ("192.0.2.10", [{"ip": one} for one in told])
    assert field_value(pod, "status.hostIPs", inputs({"node": found})) == ",".join(told)
    # an address that is not there for a moment stays, another one takes its place
    for address, stays in (("", told[-1]), ("2001:db8::11", "2001:db8::11" if ipv6 else "192.0.2.10")):
        registrar.on_facts("n1", {**facts, "internal_ipv6": address})
        registrar.write("n1")
        assert host_ips(api.get(NODE, "n1"))[-1] == stays


def test_a_declared_address_takes_the_place_of_what_the_machine_tells_of_its_family() -> None:
    known = [{"type": "InternalIP", "address": one} for one in ("192.0.2.10", "2001:db8::10")]
    known.append({"type": "Hostname", "address": "n1"})
    said = [{"type": "InternalIP", "address": "fd00::7"}]
    told = [one["address"] for one in nodes.addresses(known, said)]
    assert told == ["192.0.2.10", "fd00::7", "n1"]
    both = [*said, {"type": "InternalIP", "address": "198.51.100.7"}]
    assert [one["address"] for one in nodes.addresses(known, both)] == ["198.51.100.7", "fd00::7", "n1"]


def _there(api: FakeApi, name: str) -> dict[str, Any] | None:
    try:
        return api.get(NODE, name)
    except NotFound:
        return None
