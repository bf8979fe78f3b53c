"""What is somebody's already: whatever Nodes tell, and of whatever kind they are."""

from __future__ import annotations

import ipaddress
import random
from typing import Any

import pytest

from minik8s_modules.api.network.balancing import NO_BALANCING, Network, ranges_of_networks, read_balancing
from minik8s_modules.api.network.load_balancers import decide_addresses
from minik8s_modules.api.network.surroundings import World, world_of
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.config import Configuration


def node(name: str = "n1", *, internal: str = "", external: str = "", ranges: Any = (), **labels: str) -> JsonObject:
    told = [{"type": f"{kind}IP", "address": each} for kind, each in (("Internal", internal), ("External", external))]
    status = {"addresses": [each for each in told if each["address"]]}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"podCIDRs": [*ranges]}, "status": status}


def world(*nodes: JsonObject, own: tuple[str, ...] = ("10.244.0.0/16", "fd00:77::/48")) -> World:
    return world_of(nodes, (), read_balancing(Configuration({}, "test"), own))


@pytest.mark.parametrize(
    "one",
    [
        node(external="192.0.2.5", ranges=["10.9.0.0/24"]),
        node(internal="192.0.2.5", ranges=["10.9.0.0/24"], type="virtual-kubelet"),
        node(internal="192.0.2.1", external="192.0.2.5", ranges=["10.9.0.0/24"], type="kwok"),
    ],
)
def test_addresses_and_ranges_count_of_nodes_that_are_no_machines_too(one: JsonObject):
    found = world(one)
    assert found.machines == ()
    assert "192.0.2.5" in found.taken()
    assert found.has_range_of("10.9.0.77")
    assert not found.has_range_of("10.9.1.0")


@pytest.mark.parametrize(
    ("cidr", "inside", "outside"),
    [
        ("10.244.0.0/15", "10.245.3.1", "10.246.0.0"),
        ("10.244.0.0/8", "10.1.2.3", "11.0.0.0"),
        ("fd00:77::/47", "fd00:77:1::5", "fd00:78::"),
        ("10.244.3.0/24", "", "10.244.3.1"),
        ("fd00:77:0:3::/64", "", "fd00:77:0:3::1"),
        ("10.99.0.0/24", "10.99.0.255", "::a63:1"),
        ("::a63:0/120", "::a63:1", "10.99.0.1"),
    ],
)
def test_a_range_is_left_out_only_if_all_of_it_is_the_clusters(cidr: str, inside: str, outside: str):
    found = world(node(internal="192.0.2.1", ranges=[cidr, "no range"]))
    assert not inside or found.has_range_of(inside)
    assert not found.has_range_of(outside)


def test_an_address_is_found_in_whatever_ranges_there_are():
    chance = random.Random(1)
    for _ in range(200):
        networks: list[Network] = [
            ipaddress.ip_network((chance.randrange(1 << 8) << 24, chance.randrange(1, 33)), strict=False)
            for _ in range(chance.randrange(6))
        ]
        networks += [
            ipaddress.ip_network((chance.randrange(1 << 8) << 120, chance.randrange(33, 129)), strict=False)
            for _ in range(chance.randrange(6))
        ]
        found = ranges_of_networks(networks)
        edges = [each for one in networks for each in (one.network_address, one.broadcast_address)]
        for edge in [*edges, ipaddress.ip_address("0.0.0.0"), ipaddress.ip_address("::")]:
            for number in (int(edge) - 1, int(edge), int(edge) + 1):
                if 0 <= number < 1 << edge.max_prefixlen:
                    address = type(edge)(number)
                    assert found.holds(str(address)) == any(address in one for one in networks), (networks, address)


@pytest.mark.parametrize("held", [False, True])
def test_many_nodes_make_no_address_of_the_pool_dearer(monkeypatch: pytest.MonkeyPatch, *, held: bool):
    pool = "10.99.0.0/22" if not held else "198.51.100.0/24"
    told = {"default": "pool", "addresses": [pool]}
    balancing = read_balancing(Configuration({"load_balancer": told}, "test"), ())
    nodes = [node(f"n{at}", internal=f"192.0.2.{at}", ranges=[f"10.{at}.0.0/16"]) for at in range(100)]
    points = [{"ip": each} for each in balancing.pool[0].addresses()] if held else []

    def service(name: str, had: list[JsonObject]) -> JsonObject:
        spec = {"type": "LoadBalancer", "ports": [{"port": 80}]}
        meta = {"name": name, "namespace": "default"}
        return {"metadata": meta, "spec": spec, "status": {"loadBalancer": {"ingress": had}}}

    services = [service("all", points), service("next", [])]
    around = world_of(nodes, (), NO_BALANCING)
    read: list[str] = []

    def ip_address(text: str) -> ipaddress.IPv4Address:
        read.append(text)
        return ipaddress.IPv4Address(text)

    monkeypatch.setattr("minik8s_modules.api.network.balancing.ipaddress.ip_address", ip_address)
    monkeypatch.setattr("minik8s_modules.api.network.load_balancers.ip_address", ip_address)
    found = decide_addresses(services, around, lambda _: frozenset(), balancing)
    assert (found["default/next"].addresses, found["default/next"].reason) == ([], "AddressNotAvailable")
    assert len(read) <= 3000, "each address of the pool is read once or twice, whatever nodes there are"
