"""What a Service at an address of IPv6 is among the virtual servers of IPVS."""

from __future__ import annotations

import errno
import struct
from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.network import wire as netlink_wire
from minik8s_modules.module_utils.minik8s.network.sources import REDIRECTED_BIT
from minik8s_modules.module_utils.minik8s.network.wire import attribute, nested
from minik8s_modules.module_utils.minik8s.policies.policy_entries import DIRECTIONS
from minik8s_modules.module_utils.minik8s.policies.policy_rules import IPV4, IPV6, base_chains
from minik8s_modules.module_utils.minik8s.services import announcing, ipvs_rules, ipvs_wire
from minik8s_modules.module_utils.minik8s.services.ipvs import skeleton
from minik8s_modules.module_utils.minik8s.services.ipvs_wire import DESTINATIONS, SERVERS
from minik8s_modules.module_utils.minik8s.services.services_plan import SHARED, Rule

ENTRY: dict[str, Any] = {
    "protocol": "TCP", "address": "fd00:100::2", "port": 80, "endpoints": [["fd00:32::2", 8080]],
    "node_port": 30080, "outside": ["2001:db8::50"], "announced": {"2001:db8::50": "n1"},
}  # fmt: skip
OWN = ["2001:db8::1", "2001:db8::2"]


def servers(rules: list[Rule]) -> list[tuple[str, int]]:
    """Return where virtual servers are."""
    return sorted(rule.key[1:3] for rule in rules if rule.table == SERVERS)


def test_a_node_port_is_at_each_address_of_the_nodes_own() -> None:
    rules = ipvs_rules.rules_of(ENTRY, "", "n1", OWN)
    outside = [("2001:db8::1", 30080), ("2001:db8::2", 30080), ("2001:db8::50", 80)]
    assert servers(rules) == [*outside, ("fd00:100::2", 80)]
    masked = [ipvs_rules.read_key(rule.key)[1:] for rule in rules if rule.table == ipvs_rules.MASKED_PLACES]
    assert sorted(masked) == outside, "what is not in the range of Services is told as ours by the table"
    kept = ipvs_rules.rules_of({**ENTRY, "keep_source": True}, "", "n1", OWN)
    assert not [rule for rule in kept if rule.table == ipvs_rules.MASKED_PLACES]
    assert servers(ipvs_rules.rules_of(ENTRY, "", "n2", [])) == [("fd00:100::2", 80)], "another node announces it"


def test_an_address_is_the_kernels_however_it_is_spelled() -> None:
    """The kernel answers the short form, and what is spelled otherwise would be deleted and made by each pass."""
    outside = "2001:DB8:0::50"
    long = {
        **ENTRY, "address": "fd00:100:0::2", "outside": [outside], "announced": {outside: "n1"},
        "endpoints": [["FD00:32::0:2", 8080], ["fd00:32::2", 8080]],
    }  # fmt: skip
    assert ipvs_rules.rules_of(long, "", "n1", OWN) == ipvs_rules.rules_of(ENTRY, "", "n1", OWN)
    elsewhere = ipvs_rules.rules_of({**long, "announced": {}}, "", "n1", OWN)
    assert elsewhere == ipvs_rules.rules_of({**ENTRY, "announced": {}}, "", "n1", OWN)

    class Uplink(announcing.Uplink):
        """A device."""

        def device(self) -> str:
            return "eth0"

    with netlink_wire.Wire(0) as wire:
        here = [announcing.rules_here(each, "n1", Uplink(wire, "2001:DB8::1")) for each in (long, ENTRY)]
    assert here[0] == here[1]


def test_a_destination_that_was_about_to_go_has_its_weight_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """One with connections open stays with weight 0, and the kernel answers that it exists."""
    rules = [Rule(DESTINATIONS, (6, "fd00:100::2", 80, f"fd00:32::{number}", 8080), 1) for number in (2, 3)]
    going, asked = ipvs_wire.body_of(rules[0]), list[tuple[int, bytes]]()

    def answered(_wire: object, messages: list[bytes], sequences: list[int]) -> dict[int, netlink_wire.Message]:
        answers = {}
        for each, sequence in zip(messages, sequences, strict=True):
            body = each[16:]
            asked.append((body[0], body[4:]))
            there = body[0] == ipvs_wire.NEW_DEST and body[4:] == going
            code = struct.pack("=i", -errno.EEXIST if there else 0)
            answers[sequence] = netlink_wire.Message(netlink_wire.ERROR, 0, sequence, code)
        return answers

    monkeypatch.setattr(netlink_wire.Wire, "ask_each", answered)
    monkeypatch.setattr(ipvs_wire.IpvsWire, "_family", lambda _: 30)
    wire = ipvs_wire.IpvsWire()
    try:
        wire.make_destinations(rules)
    finally:
        wire.close()
    assert asked[2:] == [(ipvs_wire.SET_DEST, going)]
    assert [command for command, _ in asked[:2]] == [ipvs_wire.NEW_DEST] * 2


def test_places_are_told_as_people_write_them() -> None:
    told = {ipvs_rules.shown(rule)[0] for rule in ipvs_rules.rules_of(ENTRY, "", "n1", OWN[:1])}
    assert "[fd00:100::2]:80/TCP" in told
    assert "[fd00:100::2]:80/TCP [fd00:32::2]:8080" in told
    assert "[2001:db8::1]:30080/TCP clients" in told


@pytest.mark.parametrize(("address", "sticky_s"), [("100.0.0.2", 0), ("fd00:100::2", 0), ("fd00:100::2", 600)])
def test_what_the_kernel_tells_of_a_server_is_what_it_was_told(address: str, sticky_s: int) -> None:
    rule = Rule(SERVERS, (6, address, 80), ("rr", sticky_s))
    body = struct.pack("=BBH", 0, 1, 0) + ipvs_wire.body_of(rule)
    assert ipvs_wire.read_server(body) == (rule.key, rule.value)


def test_a_server_of_a_mark_is_nobodys() -> None:
    place = (attribute(1, struct.pack("=H", 10)), attribute(5, struct.pack("=I", 7)))
    assert ipvs_wire.read_server(struct.pack("=BBH", 0, 1, 0) + nested(1, *place)) is None


def test_addresses_are_shared_by_the_ports_of_a_service_of_either_family() -> None:
    assert {ipvs_rules.ADDRESSES, f"ipv6 {ipvs_rules.ADDRESSES}"} <= SHARED


@pytest.mark.parametrize("family", [IPV4, IPV6])
def test_policies_see_what_ipvs_forwards(family: Any) -> None:
    """It goes through the hook output."""
    for direction in DIRECTIONS:
        assert "hook output" in base_chains(direction, family)[f"ipvs_{direction}"][0]


def test_what_a_pod_answers_a_masqueraded_client_may_go_to_it_within_the_bridge() -> None:
    """By IPv6 nothing else passes from port to port (network/sources.py), and by IPv4 nothing is held back."""
    config = {"service_cidr": "fd00:100::/112", "cluster_cidr": "fd00:32::/48", "pod_cidr": "fd00:32::/64"}
    found = skeleton({**config, "bridge": "mk8s-br0", "node_ip": ""})
    (_, marks), (_, clears) = found["redirected"], found["leaving"]
    assert marks.startswith('iifname "mk8s-br0" ct direction reply ct status snat meta mark set')
    assert f"{REDIRECTED_BIT:#x}" in marks
    assert f"{REDIRECTED_BIT:#x}" in clears
    ipv4 = {"service_cidr": "100.0.0.0/24", "cluster_cidr": "10.32.0.0/16", "pod_cidr": "10.32.0.0/24"}
    assert not {"redirected", "leaving"} & skeleton({**ipv4, "bridge": "mk8s-br0", "node_ip": "192.0.2.1"}).keys()
