"""Services at addresses of IPv6 by IPVS on a lab node, whose kernel has it, with real packets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from minik8s_modules.api.objects import JsonObject
from tests.integration.services.machines import PODS, Machine, entry, on_lab
from tests.lab.lab import Lab

SECOND = {name: f"fd00:32::{ip.rpartition('.')[2]}" for name, ip in PODS.items()}
GATEWAY, SERVICE, BOTH = "fd00:32::1", "fd00:100::2", {"pod2", "pod3"}
CLIENT, OWN, ADDRESS = "2001:db8::9", "2001:db8::1", "2001:db8::50"
UPLINK, NODE_IP = "mk8t-up", "192.0.2.1"


class Dual(Machine):
    """A machine whose Services have addresses of both families."""

    @property
    def plane(self) -> JsonObject:
        """The entry ``dataplane``."""
        second = {"service_cidr": "fd00:100::/112", "cluster_cidr": "fd00:32::/48", "pod_cidr": "fd00:32::/64"}
        return {**super().plane, "ipv6": {**second, "gateway": GATEWAY, "node_ip": OWN}}


@contextmanager
def prepared(lab: Lab, kind: type[Machine]) -> Iterator[Machine]:
    """Give a lab node with Pods of both families, and somebody outside."""
    made = on_lab(lab, "node1", "ipvs", kind)
    made.node_ip = NODE_IP
    made.call("pods", bridge="mk8s-br0", gateway="10.32.0.1", pods=PODS, second={"gateway": GATEWAY, "pods": SECOND})
    made.call("pods", bridge=UPLINK, gateway=NODE_IP, pods={"outsider": "192.0.2.9"})
    made.shell(["ip", "-6", "addr", "add", f"{OWN}/64", "dev", UPLINK, "nodad"])
    pid = made.lines("cat", f"{made.folder}/pods/outsider")[0]
    outside = ["nsenter", f"--net=/proc/{pid}/ns/net", "ip", "-6"]
    made.shell([*outside, "addr", "add", f"{CLIENT}/64", "dev", "eth0", "nodad"])
    made.shell([*outside, "route", "add", "default", "via", OWN])
    # an address that no Service has would go there
    made.shell(["ip", "-6", "route", "add", "default", "via", CLIENT])
    try:
        yield made
    finally:
        made.pass_(entries={})
        made.call("down")


@pytest.fixture(scope="module")
def machine(lab: Lab) -> Iterator[Machine]:
    with prepared(lab, Dual) as made:
        yield made


def second(*pods: str, **more: object) -> JsonObject:
    """Return the entry of a Service at its address of IPv6."""
    return {**entry(SERVICE, **more), "endpoints": [[SECOND[name], 8080] for name in pods], **more}


def servers(machine: Machine) -> list[str]:
    """Return the virtual servers of IPv6."""
    return sorted(
        line.split()[1] for line in machine.lines("ipvsadm", "-ln") if "[" in line and not line.startswith("->")
    )


def test_a_service_is_reached_at_both_addresses(machine: Machine) -> None:
    declared = {"web:80": entry("100.0.0.2", "pod2", "pod3"), "web:80/IPv6": second("pod2", "pod3")}
    entries = {"dataplane": machine.plane, **{f"default/{name}": one for name, one in declared.items()}}
    foreseen = machine.pass_(entries=entries, check=True)
    done = machine.declare(**declared)
    assert foreseen["diff"] == done["diff"]
    assert not machine.pass_(entries=machine.entries)["changed"]
    for client in ("", *PODS):
        for address in ("100.0.0.2", SERVICE):
            assert set(machine.ask(address, 80, count=10, pod=client)) == BOTH, (client, address)
    assert machine.clients(SERVICE, 80, "pod4") == [SECOND["pod4"]]
    assert machine.ask(SERVICE, 81, pod="pod4") == {"refused": 1}
    assert machine.ask("fd00:100::99", 80) == {"refused": 1}
    # what goes leaves nothing, and IPv4 does not notice
    machine.declare(**{"web:80": declared["web:80"]})
    assert servers(machine) == []
    assert set(machine.ask("100.0.0.2", 80, count=10)) == BOTH


def test_addresses_spelled_otherwise_than_the_kernels_stay_as_they_are(machine: Machine) -> None:
    long = {**second("pod2"), "address": "fd00:100:0::2", "endpoints": [[SECOND["pod2"].replace("::", ":0::0:"), 8080]]}
    assert machine.declare(**{"web:80/IPv6": long})["changed"]
    assert not machine.pass_(entries=machine.entries)["changed"]
    assert not machine.declare(**{"web:80/IPv6": second("pod2")})["changed"], "it is the same Service"
    assert set(machine.ask(SERVICE, 80, count=3)) == {"pod2"}
    machine.declare()
    assert servers(machine) == []


def test_affinity_and_datagrams(machine: Machine) -> None:
    declared = {
        "sticky:80/IPv6": {**second("pod2", "pod3"), "affinity_s": 60},
        "udp:80/IPv6": {**second("pod2"), "address": "fd00:100::3", "protocol": "UDP"},
        "idle:80/IPv6": {**second(), "address": "fd00:100::4"},
    }
    machine.declare(**declared)
    assert len(machine.ask(SERVICE, 80, count=6, pod="pod4")) == 1
    assert machine.ask("fd00:100::3", 80, protocol="UDP", pod="pod4") == {"pod2": 1}
    assert machine.ask("fd00:100::4", 80, pod="pod4") == {"refused": 1}


def test_node_ports_are_open_at_the_machines_own_addresses(machine: Machine) -> None:
    declared = second("pod2", "pod3", node_port=30080)
    machine.declare(**{"web:80/IPv6": declared})
    assert servers(machine) == sorted([f"[{SERVICE}]:80", f"[{OWN}]:30080"])
    assert set(machine.ask(OWN, 30080, count=10, pod="outsider")) == BOTH
    assert CLIENT not in machine.clients(OWN, 30080, "outsider")
    local = {"node_endpoints": [[SECOND["pod2"], 8080]], "keep_source": True}
    machine.declare(**{"web:80/IPv6": {**declared, **local}})
    assert machine.ask(OWN, 30080, count=4, pod="outsider") == {"pod2": 4}
    assert machine.clients(OWN, 30080, "outsider") == [CLIENT]
    assert not machine.pass_(entries=machine.entries)["changed"]


def test_an_address_of_a_load_balancer_is_announced(machine: Machine) -> None:
    balanced = second("pod2", "pod3", outside=[ADDRESS], announced={ADDRESS: "n1"})
    machine.declare(**{"web:80/IPv6": balanced})
    assert f"{ADDRESS}/128" in " ".join(machine.lines("ip", "-6", "-oneline", "addr", "show", "dev", UPLINK))
    assert set(machine.ask(ADDRESS, 80, count=10, pod="outsider")) == BOTH
    assert machine.ask(ADDRESS, 81, pod="outsider") == {"refused": 1}
    machine.declare(**{"web:80/IPv6": {**balanced, "sources": ["2001:db8:9::/48"]}})
    assert machine.ask(ADDRESS, 80, pod="outsider") == {"silent": 1}


def test_a_service_is_reached_at_the_machines_own_address_and_at_one_that_others_route_here(machine: Machine) -> None:
    outside = "2001:db8:7::7"
    declared = {
        "web:80/IPv6": second("pod2", "pod3", at_nodes=True),
        "ext:80/IPv6": {**second("pod4"), "address": "fd00:100::3", "outside": [outside]},
    }
    machine.declare(**declared)
    assert set(machine.ask(OWN, 80, count=10, pod="outsider")) == BOTH
    for client in ("outsider", "", "pod2"):
        assert machine.ask(outside, 80, pod=client) == {"pod4": 1}, client
    assert not machine.pass_(entries=machine.entries)["changed"]
    machine.declare()
    assert machine.ask(OWN, 80, pod="outsider") == {"refused": 1}
    assert servers(machine) == []


def test_a_port_of_all_addresses_takes_nothing_of_a_service(machine: Machine) -> None:
    outside = {"outside": ["192.0.2.50"], "announced": {"192.0.2.50": "n1"}}
    outside_ipv6 = {"outside": [ADDRESS], "announced": {ADDRESS: "n1"}}
    first, both = entry("100.0.0.2", "pod2", **outside), second("pod2", node_port=30080, **outside_ipv6)
    machine.declare(**{"web:80": first, "web:80/IPv6": both})
    for ip, pod in (("ip", PODS["pod4"]), ("ip6", SECOND["pod4"])):  # as host ports do (pods/host_ports.py)
        lines = [f"add table {ip} mallory"]
        for chain, priority in (("prerouting", "dstnat + 10"), ("output", "-90")):
            lines.append(f"add chain {ip} mallory {chain} {{ type nat hook {chain} priority {priority}; }}")
            lines.append(f"add rule {ip} mallory {chain} fib daddr type local tcp dport 80-81 dnat to {pod}")
        machine.shell(["nft", "-f", "-"], "\n".join(lines) + "\n")
    try:
        for address in ("100.0.0.2", SERVICE, "192.0.2.50", ADDRESS):
            for client in ("", "pod3"):
                assert machine.ask(address, 80, pod=client) == {"pod2": 1}, (address, client)
        for address in ("192.0.2.50", ADDRESS):
            assert machine.ask(address, 80, pod="outsider") == {"pod2": 1}, address
    finally:
        for ip in ("ip", "ip6"):
            machine.shell(["nft", "delete", "table", ip, "mallory"])


def test_what_somebody_changes_by_hand_comes_back(machine: Machine) -> None:
    machine.declare(**{"web:80": entry("100.0.0.2", "pod2"), "web:80/IPv6": second("pod2", node_port=30080)})
    for damage in (
        f"ip -6 addr del {SERVICE}/128 dev minik8s-dummy",
        f"ipvsadm -D -t [{SERVICE}]:80",
        f"ipvsadm -d -t [{OWN}]:30080 -r [{SECOND['pod2']}]:8080",
        "nft delete table ip6 minik8s",
        "ipvsadm -C",
    ):
        machine.shell(damage.split())
        assert machine.pass_(entries=machine.entries, check=True)["changed"], damage
        assert machine.pass_(entries=machine.entries)["errors"] == {}, damage
        assert machine.ask(SERVICE, 80, pod="pod4") == {"pod2": 1}, damage
        assert not machine.pass_(entries=machine.entries)["changed"], damage
    machine.pass_(entries={})
    assert servers(machine) == []
    assert "minik8s" not in " ".join(machine.lines("nft", "list", "tables"))


@pytest.mark.nightly
def test_a_pass_that_is_killed_anywhere_is_finished_by_the_next(machine: Machine) -> None:
    declared = {"default/web:80": entry("100.0.0.2", "pod2"), "default/web:80/IPv6": second("pod2", node_port=30080)}
    entries = {"dataplane": machine.plane, **declared}
    assert machine.call("killed", folder=machine.folder, entries=entries)
    assert machine.ask(SERVICE, 80, pod="pod4") == {"pod2": 1}


def test_policies_hold_behind_a_service(machine: Machine) -> None:
    """IPVS sends what it forwards through the hook output, which rules for what is forwarded never see."""
    machine.declare(**{"web:80/IPv6": second("pod2", node_port=30080)})
    allowed: JsonObject = {"peers": {"groups": [], "blocks": [[f"{SECOND['pod4']}/128", []]]}, "ports": None}
    pod: JsonObject = {
        "address": PODS["pod2"],
        "address_ipv6": SECOND["pod2"],
        "groups": [],
        "ports": [],
        "egress": None,
    }
    rules: JsonObject = {
        "filter": {"table": "minik8s_policies", "bridge": "mk8s-br0", "driver": "bridge", "ipv6": True},
        "policy/default/web": {"ingress": [allowed], "egress": None},
        "pod/default/web": {**pod, "ingress": ["policy/default/web"]},
    }
    try:
        assert machine.ask(SERVICE, 80, pod="pod3") == {"pod2": 1}
        assert machine.pass_(section="policies", entries=rules)["errors"] == {}
        assert machine.ask(SERVICE, 80, pod="pod4") == {"pod2": 1}
        assert machine.ask(SERVICE, 80) == {"pod2": 1}, "a node reaches its Pods"
        assert machine.ask(SERVICE, 80, pod="pod3") != {"pod2": 1}
        assert machine.ask(OWN, 30080, pod="outsider") != {"pod2": 1}
    finally:
        machine.pass_(section="policies", entries={})


def test_a_delta_changes_its_keys_alone(machine: Machine) -> None:
    machine.declare(**{"web:80/IPv6": second("pod2", node_port=30080), "web:80": entry("100.0.0.2", "pod2")})
    digest = machine.pass_(entries=machine.entries)["digest"]
    upsert = {"default/web:80/IPv6": second("pod3", node_port=30080)}
    result = machine.pass_(mode="delta", base=digest, upsert=upsert, delete=[])
    assert (result["errors"], [step["key"] for step in result["steps"]]) == ({}, ["default/web:80/IPv6"])
    assert machine.ask(OWN, 30080, pod="outsider") == {"pod3": 1}
    again = machine.pass_(mode="delta", base=result["digest"], upsert=upsert, delete=[])
    assert not again["changed"]
    gone = machine.pass_(mode="delta", base=again["digest"], upsert={}, delete=["default/web:80/IPv6"])
    assert (gone["errors"], servers(machine)) == ({}, [])
    assert machine.ask("100.0.0.2", 80) == {"pod2": 1}


@pytest.mark.nightly
def test_a_node_gets_ipv6_and_loses_it_and_ipv4_does_not_notice(machine: Machine) -> None:
    services = {"default/web:80": entry("100.0.0.2", "pod2", node_port=30080)}
    alone = {name: value for name, value in machine.plane.items() if name != "ipv6"}
    before = {"dataplane": alone, **services}
    both = {"dataplane": machine.plane, **services, "default/web:80/IPv6": second("pod2", node_port=30080)}
    machine.pass_(entries={})
    assert machine.pass_(entries=before)["errors"] == {}
    comes = machine.pass_(entries=both)
    assert {step["key"] for step in comes["steps"]} == {"dataplane", "default/web:80/IPv6"}
    goes = machine.pass_(entries=before)
    assert (goes["errors"], servers(machine)) == ({}, [])
    assert "fd00:100" not in machine.shell(["ip", "-6", "addr"])
    assert machine.ask("100.0.0.2", 80) == {"pod2": 1}
    # another backend takes over, and gives back
    for mode in ("nftables", "ipvs"):
        moved = {**both, "dataplane": {**machine.plane, "mode": mode}}
        assert machine.pass_(entries=moved)["errors"] == {}
        assert bool(servers(machine)) is (mode == "ipvs")
        for address in (SERVICE, "100.0.0.2"):
            assert machine.ask(address, 80, pod="pod4") == {"pod2": 1}, (mode, address)
        assert not machine.pass_(entries=moved)["changed"]


def test_an_address_that_the_machine_gets_has_the_node_ports_and_one_that_it_loses_has_none(machine: Machine) -> None:
    machine.declare(**{"web:80/IPv6": second("pod2", node_port=30080)})
    for what, there in (("add", True), ("del", False)):
        machine.shell(["ip", "-6", "addr", what, "2001:db8::77/64", "dev", UPLINK, *(["nodad"] if there else [])])
        assert machine.pass_(entries=machine.entries)["errors"] == {}
        assert ("[2001:db8::77]:30080" in servers(machine)) is there
        assert not machine.pass_(entries=machine.entries)["changed"]
