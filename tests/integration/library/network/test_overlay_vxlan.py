"""Driver vxlan: two nodes in network namespaces of their own, pods that reach each other, and nothing left behind."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.node import command
from tests.support.overlaid import Machine, machines_on_a_switch

TAKE = """
import socket
with socket.create_server(("", 9000)) as server:
    print("ready", flush=True)
    connection, size = server.accept()[0], 0
    while part := connection.recv(1 << 16):
        size += len(part)
    print(size)
"""
TABLE = "minik8s_tunnels_mk8t-vx"


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[list[Machine]]:
    with machines_on_a_switch(tmp_path) as (made, _switch):
        yield made


@pytest.fixture
def over_ipv6(tmp_path: Path) -> Iterator[list[Machine]]:
    with machines_on_a_switch(tmp_path, ipv6=True, count=3) as (made, _switch):
        yield made


def test_pods_of_two_nodes_reach_each_other_and_an_empty_set_leaves_nothing(machines: list[Machine]) -> None:
    one, two = machines
    before = one.traces()
    for machine, peer in ((one, two), (two, one)):
        planned = machine.run(machine.entries(peer), check=True)
        result = machine.run(machine.entries(peer))
        assert not result["errors"], result["errors"]
        assert (result["steps"], result["status"]) == (planned["steps"], {"pod-network": {"state": "present"}})
        assert not machine.run(machine.entries(peer))["changed"]
        machine.start_pod()
    assert one.reaches("10.77.2.7") == "yes"
    assert two.reaches("10.77.1.7") == "yes"
    assert one.reaches("10.77.2.7", from_pod=False) == "yes"
    assert "10.77.2.0/24 via 10.77.2.0 dev mk8t-vx" in one.inside("ip", "route")
    # what is masqueraded into the tunnel leaves from an address that the other side routes back into it
    assert "inet 10.77.1.1/32" in one.inside("ip", "addr", "show", "dev", "mk8t-vx")
    command("ip", "-n", one.netns, "link", "del", "pod")
    assert one.run({})["changed"]
    assert one.traces() == before
    assert "minik8s" not in one.inside("nft", "list", "ruleset")
    assert not one.run({})["changed"]


def test_neighbours_in_one_network_need_no_tunnel_and_the_way_can_change(machines: list[Machine]) -> None:
    one, two = machines
    for machine, peer in ((one, two), (two, one)):
        assert not machine.run(machine.entries(peer, direct=True))["errors"]
        machine.start_pod()
    assert one.reaches("10.77.2.7") == "yes"
    assert "10.77.2.0/24 via 192.0.2.2 dev eth0" in one.inside("ip", "route")
    assert one.inside("bridge", "fdb", "show", "dev", "mk8t-vx") == ""
    for machine, peer in ((one, two), (two, one)):
        assert not machine.run(machine.entries(peer))["errors"]
    assert one.reaches("10.77.2.7") == "yes"
    assert "via 192.0.2.2" not in one.inside("ip", "route")
    # a driver without an overlay takes everything of it away
    alone = one.entries(direct=True)["pod-network"]
    del alone["overlay"]
    one.run(one.entries(two, direct=True))
    assert not one.run({"pod-network": {**alone, "driver": "bridge"}})["errors"]
    assert "10.77.2.0" not in one.inside("ip", "route")
    assert "mk8t-vx" not in one.inside("ip", "-o", "link")


HARMS = {
    "ip link del mk8t-vx": "vxlan",
    "ip link set mk8t-vx down": "vxlan",
    "ip link set mk8t-vx mtu 1300": "vxlan",
    "bridge fdb del MAC dev mk8t-vx dst 192.0.2.2 self": "forwarding",
    "bridge fdb add 02:00:00:00:00:01 dev mk8t-vx dst 192.0.2.99 self": "forwarding",
    "ip neigh del 10.77.2.0 dev mk8t-vx": "neighbours",
    "ip addr flush dev mk8t-vx": "end",
    "ip addr add 10.99.0.1/32 dev mk8t-vx": "end",
    "ip route del 10.77.2.0/24": "routes",
    "ip route del unreachable 10.77.0.0/16": "routes",
    "ip addr flush dev mk8t-br": "address",
    f"nft delete table inet {TABLE}": "guard",
    f"nft flush chain inet {TABLE} input": "guard",
    f"nft add element inet {TABLE} peers {{ 192.0.2.99 }}": "guard",
}
OVER_IPV6 = {
    "bridge fdb del MAC dev mk8t-vx dst 2001:db8::2 self": "forwarding",
    "bridge fdb add 02:00:00:00:00:01 dev mk8t-vx dst 2001:db8::99 self": "forwarding",
    "ip link del mk8t-vx": "vxlan",
    f"nft flush set inet {TABLE} peers": "guard",
}


def test_drift_of_the_overlay_is_seen_and_healed(machines: list[Machine]) -> None:
    one, two = machines
    one.run(one.entries(two))
    mac = one.inside("bridge", "fdb", "show", "dev", "mk8t-vx").split()[0]
    for harm, aspect in HARMS.items():
        one.inside(*harm.replace("MAC", mac).split())
        healed = one.run(one.entries(two))
        assert healed["steps"][0]["detail"].startswith(f"{aspect}: "), harm
        assert (healed["errors"], healed["status"]) == ({}, {"pod-network": {"state": "present"}}), harm
    assert not one.run(one.entries(two))["changed"]


def test_pods_reach_each_other_where_machines_have_ipv6_alone(over_ipv6: list[Machine]) -> None:
    before = over_ipv6[0].traces()
    for machine in over_ipv6:
        entries = machine.entries(*(one for one in over_ipv6 if one is not machine))
        planned, result = machine.run(entries, check=True), machine.run(entries)
        assert not result["errors"], result["errors"]
        assert (result["steps"], result["status"]) == (planned["steps"], {"pod-network": {"state": "present"}})
        assert not machine.run(entries)["changed"]
        machine.start_pod()
    one, two, _three = over_ipv6
    for machine in over_ipv6:
        assert [machine.reaches(f"10.77.{number}.7") for number in (1, 2, 3)] == ["yes"] * 3
    assert "192.0.2" not in one.inside("ip", "addr")
    assert _carried(one, two, 200_000) == 200_000
    # what fits a tunnel over IPv4 does not fit this one
    large = one.run(one.entries(two, mtu=1450))["errors"]["pod-network"]
    assert "1450 bytes and 70 of VXLAN do not fit eth0" in large["message"]
    assert "declare an mtu of 1430 or less" in large["message"]
    command("ip", "-n", one.netns, "link", "del", "pod")
    assert one.run({})["changed"]
    assert one.traces() == before
    assert "minik8s" not in one.inside("nft", "list", "ruleset")


def _carried(one: Machine, other: Machine, size: int) -> int:
    """Return how many bytes of ``size`` come from one pod to the other over TCP."""
    serving = ["ip", "netns", "exec", other.pod, sys.executable, "-c", TAKE]
    with subprocess.Popen(serving, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        server.stdout.readline()
        send = f"import socket; socket.create_connection(('10.77.{other.number}.7', 9000), 60).sendall(bytes({size}))"
        one.inside(sys.executable, "-c", send, netns=one.pod)
        return int(server.communicate(timeout=60)[0])


def test_drift_of_tunnels_over_ipv6_is_seen_and_healed(over_ipv6: list[Machine]) -> None:
    one, two, _three = over_ipv6
    one.run(one.entries(two))
    two.run(two.entries(one))
    for machine in (one, two):
        machine.start_pod()
    mac = one.inside("bridge", "fdb", "show", "dev", "mk8t-vx").split()[0]
    for harm, aspect in OVER_IPV6.items():
        one.inside(*harm.replace("MAC", mac).split())
        healed = one.run(one.entries(two))
        assert healed["steps"][0]["detail"].startswith(f"{aspect}: "), harm
        assert (healed["errors"], healed["status"]) == ({}, {"pod-network": {"state": "present"}}), harm
        assert one.reaches("10.77.2.7") == "yes", harm
    assert not one.run(one.entries(two))["changed"]


def test_tunnels_change_from_one_family_to_the_other_and_back(machines: list[Machine]) -> None:
    one, two = machines
    for machine in machines:
        machine.inside("ip", "addr", "add", f"2001:db8::{machine.number}/64", "dev", "eth0", "nodad")
        other = two if machine is one else one
        machine.mtu = 1430
        machine.run(machine.entries(other))
        machine.start_pod()
    for ipv6 in (True, False):
        for machine, other in ((one, two), (two, one)):
            was = machine.address, other.address
            if ipv6:
                machine.address, other.address = f"2001:db8::{machine.number}", f"2001:db8::{other.number}"
            assert not machine.run(machine.entries(other))["errors"]
            assert not machine.run(machine.entries(other))["changed"]
            machine.address, other.address = was
        assert one.reaches("10.77.2.7") == "yes"
        assert ("2001:db8::2" in one.inside("bridge", "fdb", "show", "dev", "mk8t-vx")) is ipv6


def test_a_guard_goes_with_an_overlay_that_somebody_else_has_deleted(machines: list[Machine]) -> None:
    one, two = machines
    one.run(one.entries(two))
    one.inside("ip", "link", "del", "mk8t-vx")
    alone = {name: field for name, field in one.entries()["pod-network"].items() if name != "overlay"}
    steps = one.run({"pod-network": {**alone, "driver": "bridge"}})["steps"]
    assert {"action": "unguard", "key": "pod-network", "detail": "mk8t-vx"} in steps
    assert "minik8s_tunnels" not in one.inside("nft", "list", "ruleset")


def test_a_pod_that_leaves_takes_no_mac_along_that_others_send_to(machines: list[Machine]) -> None:
    one, _ = machines
    one.run(one.entries())
    one.inside("ip", "link", "add", "low", "address", "02:00:00:00:00:01", "type", "veth")
    one.inside("ip", "link", "set", "low", "master", "mk8t-br", "up")
    one.start_pod()
    assert one.reaches("10.77.1.1") == "yes"
    one.inside("ip", "link", "del", "low")
    assert one.reaches("10.77.1.1") == "yes"
    # one that has another MAC, as bridges of former releases have, gets its own, and pods hear of it
    one.inside("ip", "link", "set", "mk8t-br", "address", "02:00:00:00:00:02")
    one.inside("ip", "neigh", "flush", "dev", "eth0", netns=one.pod)
    assert one.reaches("10.77.1.1") == "yes"
    assert "02:00:00:00:00:02" in one.inside("ip", "neigh", netns=one.pod)
    assert one.run(one.entries())["steps"][0]["detail"].startswith("bridge: ")
    assert one.reaches("10.77.1.1") == "yes"
    assert "0a:58:0a:4d:01:01" in one.inside("ip", "neigh", netns=one.pod)


def test_an_address_that_is_no_peers_is_unreachable_where_nobody_routes_it(machines: list[Machine]) -> None:
    one, two = machines
    one.inside("ip", "route", "add", "default", "via", "192.0.2.2")
    one.run(one.entries(two))
    one.start_pod()
    assert "10.77.2.0 dev mk8t-vx" in one.inside("ip", "route", "get", "10.77.2.7")
    with pytest.raises(AssertionError, match="No route to host"):
        one.inside("ip", "route", "get", "10.77.9.7")
    assert "100% packet loss" in one.reaches("10.77.9.7")
    # a way that the machine's owner has made stays, and goes first
    one.inside("ip", "route", "add", "10.77.0.0/16", "via", "192.0.2.2")
    assert not one.run(one.entries(two))["changed"]
    assert "via 192.0.2.2 dev eth0" in one.inside("ip", "route", "get", "10.77.9.7")
    assert "10.77.2.0 dev mk8t-vx" in one.inside("ip", "route", "get", "10.77.2.7")


def test_what_does_not_fit_is_told(machines: list[Machine]) -> None:
    one, two = machines
    large = one.run(one.entries(two, mtu=1500))["errors"]["pod-network"]
    assert (large["reason"], "declare an mtu of 1450 or less" in large["message"]) == ("NetworkNotReady", True)
    astray = one.run(one.entries(two, address="192.0.2.77"))["errors"]["pod-network"]
    assert "no device of this machine has the address 192.0.2.77" in astray["message"]
    broken = one.run(one.entries(two, vni=0))["errors"]["pod-network"]
    assert (broken["reason"], "overlay.vni is 0" in broken["message"]) == ("InvalidEntry", True)
    one.run(one.entries())
    one.inside("ip", "route", "add", "10.77.2.0/24", "via", "192.0.2.2")
    taken = one.run(one.entries(two))["errors"]["pod-network"]
    assert "a route to 10.77.2.0/24 exists that minik8s did not make" in taken["message"]
