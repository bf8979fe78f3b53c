"""How a node reaches the pods of the others, and which overlays are refused."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.core.faults import KeyFault
from minik8s_modules.module_utils.minik8s.network.network import Network
from minik8s_modules.module_utils.minik8s.network.network_vxlan import (
    HEADERS,
    HEADERS_IPV6,
    Underlay,
    Way,
    mac_of,
    ways,
)

NEAR = {"cidr": "10.244.1.0/24", "address": "192.0.2.22"}
FAR = {"cidr": "10.244.2.0/24", "address": "198.51.100.1"}
UNDERLAY = Underlay(2, "eth0", 1500, ipaddress.IPv4Network("192.0.2.0/24"))


def entry(**overlay: Any) -> dict[str, Any]:
    made = {"device": "mk8s-vx0", "vni": 1, "port": 8472, "address": "192.0.2.21", "direct": True, "peers": {}}
    base = {"driver": "vxlan", "bridge": "mk8s-br0", "cidr": "10.244.0.0/24", "gateway": "10.244.0.1"}
    return {**base, "cluster_cidr": "10.244.0.0/16", "mtu": 1450, "overlay": {**made, **overlay}}


def test_only_neighbours_are_reached_without_a_tunnel_and_only_when_asked() -> None:
    peers = {"far": FAR, "near": NEAR}
    tunneled = Way("10.244.2.0/24", "10.244.2.0", "10.244.0.1", mac_of("far"), "198.51.100.1")
    assert ways(entry(peers=peers), UNDERLAY) == [tunneled, Way("10.244.1.0/24", "192.0.2.22", "10.244.0.1")]
    assert all(way.mac for way in ways(entry(peers=peers, direct=False), UNDERLAY))
    assert all(way.mac for way in ways(entry(peers=peers), Underlay()))


def test_macs_are_local_single_and_depend_on_the_name_alone() -> None:
    assert mac_of("a") == mac_of("a") != mac_of("b")
    assert mac_of("a").startswith("02:")
    assert len(mac_of("a")) == 17


@pytest.mark.parametrize(
    ("overlay", "words"),
    [
        ({"vni": 2**24}, "overlay.vni is 16777216"),
        ({"port": 0}, "overlay.port is 0"),
        ({"direct": 1}, "overlay.direct must be bool"),
        ({"device": "mk8s-br0"}, "is not a device name, or the bridge's"),
        ({"device": "a" * 16}, "is not a device name"),
        ({"address": "here"}, "overlay.address"),
        ({"address": "::192.0.2.7"}, "overlay.address: '::192.0.2.7' is not an address of one machine"),
        ({"address": "::c000:207"}, "overlay.address: '::c000:207' is not an address of one machine"),
        ({"peers": {"b": {**NEAR, "address": "2001:db8::1%x }\nflush ruleset"}}}, "overlay.peers.b.address"),
        ({"peers": []}, "overlay.peers must be dict"),
        ({"peers": {"b": {"cidr": "10.244.1.0/24"}}}, "overlay.peers.b.address is missing"),
        ({"peers": {"b": {**NEAR, "address": "nowhere"}}}, "overlay.peers.b.address"),
        ({"peers": {"b": {**NEAR, "cidr": "10.244.1.1/24"}}}, "overlay.peers.b.cidr"),
        ({"peers": {"b": {**NEAR, "cidr": "10.9.1.0/24"}}}, "is not in 10.244.0.0/16"),
        ({"peers": {"b": {**NEAR, "cidr": "10.244.0.0/25"}}}, "overlaps 10.244.0.0/24 of the node itself"),
        ({"peers": {"b": NEAR, "c": NEAR}}, "overlaps 10.244.1.0/24 of b"),
        ({"address": "2001:db8::21"}, "overlay.direct is for tunnels over IPv4"),
        ({"address": "2001:db8::21", "direct": False, "peers": {"b": NEAR}}, "peers.b.address is not of the family"),
        ({"peers": {"b": {**NEAR, "address": "2001:db8::22"}}}, "peers.b.address is not of the family"),
        ({"address": "2001:db8:0::21", "direct": False}, "in its shortest form"),
        ({"address": "fe80::21", "direct": False}, "is not an address of one machine"),
        ({"address": "ff02::1", "direct": False}, "is not an address of one machine"),
    ],
)
def test_overlays_that_cannot_be_are_refused(overlay: dict[str, Any], words: str) -> None:
    with pytest.raises(KeyFault, match=words):
        Network().check_entry("pod-network", entry(**overlay))


def test_a_tunnel_over_ipv6_takes_twenty_bytes_more() -> None:
    over = {"address": "2001:db8::21", "direct": False, "peers": {"b": {**NEAR, "address": "2001:db8::22"}}}
    Network().check_entry("pod-network", entry(**over))
    assert HEADERS_IPV6 - HEADERS == 20
    (way,) = ways(entry(**over), Underlay())
    assert (way.hop, way.machine) == ("10.244.1.0", "2001:db8::22")


def test_an_overlay_belongs_to_its_driver() -> None:
    Network().check_entry("pod-network", entry(peers={"b": NEAR, "c": FAR}))
    with pytest.raises(KeyFault, match="overlay is not for the driver bridge"):
        Network().check_entry("pod-network", {**entry(), "driver": "bridge"})
    missing = entry()
    del missing["overlay"]
    with pytest.raises(KeyFault, match="overlay must be an object"):
        Network().check_entry("pod-network", missing)
