"""What a machine must have before anything on it is changed."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.install.ipv6_ranges import standing_services
from minik8s_modules.module_utils.minik8s.install.ranges import (
    Ranges,
    Underlay,
    connected_networks,
    has_default_route,
    has_machine_address,
    range_problems,
)
from minik8s_modules.module_utils.minik8s.install.requirements import (
    Machine,
    Needed,
    System,
    observe_machine,
    problems,
)

NOW_S = 1_800_000_000.0
SYSTEMS = (System("debian", 13), System("debian", 12), System("ubuntu", 24, tried=False))
NEEDED = Needed((6443, 2379), 900, (3, 11), SYSTEMS, disk_mb=500, time_s=NOW_S, host_key=True)
GOOD = Machine(0, "debian", "12", (3, 11), 2000, {}, (), free_mb=500, time_s=NOW_S + 119, host_key=True)


@pytest.mark.parametrize(
    "machine",
    [GOOD, GOOD._replace(version="13"), GOOD._replace(listeners={2379: "/usr/bin/etcd -c /etc/minik8s/etcd.yml"})],
)
def test_a_machine_that_will_do(machine: Machine) -> None:
    assert problems(machine, NEEDED) == []


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (GOOD._replace(user_id=1000), "as root"),
        (GOOD._replace(distribution="ubuntu", version="24.04"), "ubuntu 24.04, which has not been tried"),
        (GOOD._replace(distribution="ubuntu", version="22.04"), "ubuntu 22.04: install on Debian 12 or newer"),
        (GOOD._replace(version="11"), "debian 11"),
        (GOOD._replace(distribution="debian", version=""), "Debian 12"),
        (GOOD._replace(python=(3, 9)), "3.9"),
        (GOOD._replace(memory_mb=512), "512 MB"),
        (GOOD._replace(listeners={6443: "/usr/bin/k3s server"}), "port 6443 is in use by /usr/bin/k3s server"),
        (GOOD._replace(listeners={6443: ""}), "another process"),
        (GOOD._replace(missing=("veth devices",)), "has no veth devices"),
        (GOOD._replace(free_mb=499), "/var/lib has 499 MB left: 500 MB are needed"),
        (GOOD._replace(time_s=NEEDED.time_s + 3600), "3600 s ahead of"),
        (GOOD._replace(time_s=NEEDED.time_s - 121), "121 s behind"),
        (GOOD._replace(host_key=False), "ssh-keygen -A"),
    ],
)
def test_each_gap_is_told(machine: Machine, words: str) -> None:
    found = problems(machine, NEEDED)
    assert len(found) == 1
    assert words in found[0]


def test_a_system_that_nobody_has_tried_will_do_for_who_says_so() -> None:
    machine = GOOD._replace(distribution="ubuntu", version="24.04")
    assert problems(machine, NEEDED._replace(untried=True)) == []
    assert problems(machine._replace(version="22.04"), NEEDED._replace(untried=True)) != []


def test_all_gaps_are_told_at_once() -> None:
    worst = Machine(1, "", "", (3, 8), 1, {6443: "x", 2379: "y"}, ("nftables",), host_key=False)
    assert len(problems(worst, NEEDED)) == 10


def test_a_clock_that_nobody_asked_for_is_not_compared() -> None:
    assert problems(GOOD._replace(time_s=1.0), NEEDED._replace(time_s=0.0)) == []


RANGES = Ranges("10.244.0.0/16", "100.0.0.0/24", 3, "node1")
CONNECTED = [("eth0", "192.0.2.0/24"), ("docker0", "172.17.0.0/16")]


@pytest.mark.parametrize("name", ["node1", "a.b-c.example", "", "7"])
def test_ranges_and_names_that_will_do(name: str) -> None:
    assert range_problems(RANGES._replace(node_name=name), CONNECTED) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"node_name": "N_1"}, "'N_1' is not a valid node name"),
        ({"node_name": "n" * 64}, "at most 63"),
        ({"node_name": "n\n"}, "is not a valid node name"),
        ({"cluster_cidr": "10.244.0.1/16"}, "minik8s_cluster_cidr: 10.244.0.1/16 is not an IPv4 network"),
        ({"cluster_cidr": "10.244.0.0"}, "is not an IPv4 network"),
        ({"cluster_cidr": "fd00::/48"}, "are of two families"),
        (
            {"standing": "fd00:96::/112"},
            "is of another family than fd00:96::/112, which the cluster on this machine has",
        ),
        ({"service_cidr": "nonsense/8"}, "minik8s_service_cidr: nonsense/8"),
        ({"service_cidr": "172.0.0.0/8"}, "overlaps 172.17.0.0/16 of device docker0"),
        ({"service_cidr": "10.244.7.0/24"}, "overlaps minik8s_service_cidr 10.244.7.0/24"),
        ({"nodes": 257}, "each of 257 nodes gets a /24"),
        ({"address": "fd00::5"}, "minik8s_node_address: fd00::5 is IPv6"),
        ({"tunnels": True, "has_route": False}, "the machine has no IPv4 default route"),
        ({"tunnels": True, "has_route": False, "address": "192.0.2.5"}, "whatever minik8s_node_address says"),
        ({"dns_address": "fd00::53"}, "minik8s_dns_address: fd00::53 is IPv6, and Pods have no such address"),
        ({"dns_address": "ns"}, "minik8s_dns_address: ns is not an IP address"),
        ({"dns_address": "0.0.0.0"}, "is not one that Pods reach"),
        ({"dns_address": "224.0.0.1"}, "is not one that Pods reach"),
        ({"dns_address": "100.0.0.10"}, "is in 100.0.0.0/24, a range of Pods or Services"),
        ({"dns_address": "10.244.0.10"}, "is in 10.244.0.0/16, a range of Pods or Services"),
    ],
)
def test_each_range_and_name_that_will_not_do_is_told(changes: dict[str, Any], words: str) -> None:
    (found,) = range_problems(RANGES._replace(**changes), CONNECTED)
    assert words in found


OVER_IPV6 = Underlay("vxlan", "ipv6")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (OVER_IPV6._replace(has_address=False), "has no IPv6 address that others can know it by"),
        (OVER_IPV6._replace(direct=True), "minik8s_network_direct has no next hop of IPv6"),
        (OVER_IPV6._replace(driver="weave"), "the network driver weave makes no tunnels of ours"),
        (OVER_IPV6._replace(driver="bridge"), "the network driver bridge makes no tunnels of ours"),
    ],
)
def test_a_machine_that_tunnels_over_ipv6_cannot_reach_is_told(given: Underlay, words: str) -> None:
    (found,) = range_problems(RANGES._replace(tunnels=True, underlay=given), CONNECTED)
    assert words in found


def test_a_machine_with_an_ipv6_address_can_have_tunnels_over_it() -> None:
    assert range_problems(RANGES._replace(tunnels=True, underlay=OVER_IPV6), CONNECTED) == []
    # one that is no node needs none
    assert range_problems(RANGES._replace(underlay=OVER_IPV6._replace(has_address=False)), CONNECTED) == []
    # an IPv4 address is needed all the same
    (found,) = range_problems(RANGES._replace(tunnels=True, has_route=False, underlay=OVER_IPV6), CONNECTED)
    assert "no IPv4 default route" in found


SIX = RANGES._replace(cluster_cidr="", service_cidr="fd00:10:96::/112", has_route=False, several=True)


def of_addresses(wanted: Ranges) -> list[str]:
    """Return what is said but for the ranges themselves."""
    return [one for one in range_problems(wanted, CONNECTED) if "is not an IPv4 network" not in one]


@pytest.mark.parametrize("underlay", ["", "ipv6"])
def test_a_machine_without_ipv4_is_of_a_cluster_with_services_of_ipv6(underlay: str) -> None:
    wanted = SIX._replace(tunnels=True, underlay=Underlay("vxlan", underlay))
    assert of_addresses(wanted) == []
    assert of_addresses(wanted._replace(address="fd00::21")) == []


def test_a_lone_machine_without_any_route_speaks_with_itself() -> None:
    assert range_problems(RANGES._replace(has_route=False), CONNECTED) == []


def test_machines_of_a_network_without_a_way_out_are_installed_as_ever() -> None:
    isolated = RANGES._replace(several=True, has_route=False)
    assert range_problems(isolated, CONNECTED) == []
    assert range_problems(isolated._replace(address="192.0.2.5"), []) == []


@pytest.mark.parametrize("connected", [[], [("docker0", "172.17.0.0/16"), ("br-0123456789ab", "172.18.0.0/16")]])
def test_one_of_several_machines_without_ipv4_is_told(connected: list[tuple[str, str]]) -> None:
    wanted = RANGES._replace(several=True, has_route=False, tunnels=bool(connected))
    (found,) = range_problems(wanted, [*connected, ("eth0", "fd00::/64")])
    assert "Services of IPv4 (100.0.0.0/24) cannot lead to machines" in found
    assert "minik8s_node_address" in found


@pytest.mark.parametrize("address", ["", "169.254.20.10", "127.0.0.53", "192.0.2.1", "fd00:169:254:20::10"])
def test_names_are_served_at_an_address_of_a_family_that_pods_have(address: str) -> None:
    wanted = RANGES._replace(dns_address=address, cluster_cidr_ipv6="fd00:10:244::/48")
    assert range_problems(wanted, CONNECTED) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"address": "192.0.2.1"}, "minik8s_node_address: 192.0.2.1 is not IPv6"),
        ({"address": "fe80::1"}, "not one that other machines reach"),
        ({"address": "::1"}, "not one that other machines reach"),
        ({"address": "::ffff:192.0.2.1"}, "not one that other machines reach"),
        ({"underlay": Underlay(has_address=False)}, "has no IPv6 address that others can know it by"),
        ({"underlay": Underlay("vxlan", "ipv4")}, "minik8s_network_underlay ipv4: Services of IPv6"),
        ({"underlay": Underlay("vxlan", direct=True)}, "minik8s_network_direct is for tunnels over IPv4"),
    ],
)
def test_what_a_machine_of_such_a_cluster_may_not_be_is_told(changes: dict[str, Any], words: str) -> None:
    (found,) = of_addresses(SIX._replace(**changes))
    assert words in found


ROUTE_IPV4 = "Iface\tDestination\neth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
DEFAULT_IPV6 = f"{0:032x} 00 {0:032x} 00 {1:032x} 00000400 00000001 00000000 00000003     eth1\n"
REJECTED = f"{0:032x} 00 {0:032x} 00 {0:032x} ffffffff 00000001 00000000 00200200       lo\n"


@pytest.mark.parametrize(
    ("routes", "address", "has"),
    [
        ("", "20010db8000000000000000000000001 02 40 00 80     eth0", True),
        ("", "20010db8000000000000000000000001 02 40 00 00     eth0", True),  # of a router, for a while
        ("", "20010db8000000000000000000000001 02 40 00 01     eth0", False),  # temporary
        ("", "20010db8000000000000000000000001 02 40 00 c0     eth0", False),  # tentative
        ("", "fe800000000000000000000000000001 02 40 20 80     eth0", False),
        ("", "20010db8000000000000000000000001 03 40 00 80     eth1", False),
        (DEFAULT_IPV6, "20010db8000000000000000000000001 03 40 00 80     eth1", True),
        (REJECTED, "00000000000000000000000000000001 01 80 10 80       lo", False),
    ],
)
def test_a_machines_address_is_that_of_the_way_to_everybody(
    tmp_path: Path, routes: str, address: str, *, has: bool
) -> None:
    for name, text in (("route", ROUTE_IPV4), ("route6", REJECTED + routes), ("addresses", f"{address}\n")):
        (tmp_path / name).write_text(text)
    assert has_machine_address(tmp_path / "route", tmp_path / "route6", tmp_path / "addresses") == has
    assert not has_machine_address(tmp_path / "route", tmp_path / "none", tmp_path / "addresses")


@pytest.mark.parametrize(
    "place",
    [{"address": "192.0.2.5", "tunnels": True}, {"address": "node1.example"}, {"has_route": False}],
)
def test_machines_that_others_reach_over_ipv4_will_do(place: dict[str, Any]) -> None:
    assert range_problems(RANGES._replace(**place), CONNECTED) == []


@pytest.mark.parametrize(
    ("row", "has"),
    [
        ("eth0 00000000 010200C0 0003 0 0 0 00000000 0 0 0", True),
        ("eth0 000200C0 00000000 0001 0 0 0 00FFFFFF 0 0 0", False),
        ("* 00000000 00000000 0200 0 0 4294967295 00000000 0 0 0", False),  # unreachable default
        ("eth0 00000000 00000000 0001 0 0 0 00000080 0 0 0", False),  # 0.0.0.0/1 of a VPN
    ],
)
def test_a_default_route_is_the_way_to_everybody(tmp_path: Path, row: str, *, has: bool) -> None:
    (tmp_path / "route").write_text("Iface Destination Gateway\n" + row.replace(" ", "\t") + "\n")
    assert has_default_route(tmp_path / "route") == has


def test_a_program_that_makes_pods_networks_may_have_devices_in_their_range() -> None:
    taken = [*CONNECTED, ("cni0", "10.244.1.0/24"), ("weave", "10.244.0.0/16")]
    assert len(range_problems(RANGES, taken)) == len(taken) - len(CONNECTED)
    own = RANGES._replace(foreign_pods=True)
    assert range_problems(own, taken) == []
    # but no other network is to be hidden by the pods', nor services' by anything
    (found,) = range_problems(own, [("eth0", "10.0.0.0/8")])
    assert "overlaps 10.0.0.0/8 of device eth0" in found
    (found,) = range_problems(own._replace(service_cidr="172.17.0.0/24"), CONNECTED)
    assert "overlaps 172.17.0.0/16 of device docker0" in found


def test_networks_are_those_without_a_gateway_and_not_our_own(tmp_path: Path) -> None:
    table = tmp_path / "route"
    lines = [
        "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT",
        "eth0 00000000 010200C0 0003 0 0 0 00000000 0 0 0",
        "ppp0 00000000 00000000 0001 0 0 0 00000000 0 0 0",
        "mk8s-br0 0000F40A 00000000 0001 0 0 0 00FFFFFF 0 0 0",
        "eth0 0001F40A 030200C0 0003 0 0 0 00FFFFFF 0 0 0",
        "eth0 000200C0 00000000 0001 0 0 0 00FFFFFF 0 0 0",
        "* 0000F40A 00000000 0201 0 0 4294967295 0000FFFF 0 0 0",
        "* 0000F50A 00000000 0201 0 0 0 0000FFFF 0 0 0",
    ]
    table.write_text("\n".join(lines) + "\n")
    # what another network program keeps unreachable is in use, what a node of ours does is not
    assert connected_networks(table, tmp_path / "none") == [("eth0", "192.0.2.0/24"), ("*", "10.245.0.0/16")]
    assert isinstance(connected_networks(), list)


def test_networks_of_ipv6_are_those_without_a_gateway_and_not_our_own(tmp_path: Path) -> None:
    zero, none, first = "0" * 32, f"{'0' * 32} 00 {'0' * 32}", f"fd{'0' * 30}"
    router = f"{'0' * 32} 00 {first[:-1]}1"
    lines = [  # as /proc/net/ipv6_route of a node has them
        f"{first} 40 {none} 00000100 00000001 00000000 00000001 eth0",
        f"fe8{'0' * 29} 40 {none} 00000100 00000002 00000000 00000001 eth0",
        f"ff{'0' * 30} 08 {none} 00000100 00000004 00000000 00000001 eth0",
        f"fd000010{'0' * 24} 30 {router} 00000400 00000001 00000000 00000003 eth0",
        f"{zero} 00 {router} 00000400 00000003 00000000 00000003 eth0",
        f"{zero} 00 {none} ffffffff 00000001 00000000 00200200 lo",
        f"{first[:-1]}2 80 {none} 00000000 00000004 00000000 80200001 eth0",
        f"{first} 80 {none} 00000000 00000003 00000000 00100001 eth0",
        f"fc{'0' * 30} 07 {none} 00000400 00000001 00000000 00200200 lo",
        f"fd000010009600000000000000000000 70 {none} 00000400 00000001 00000000 00000001 mk8s-br0",
        f"20010db8{'0' * 24} 40 {none} 00000100 00000001 00000000 00000001 wg0",
    ]
    (tmp_path / "route").write_text("Iface\n")
    (tmp_path / "ipv6").write_text("\n".join(lines) + "\n")
    found = connected_networks(tmp_path / "route", tmp_path / "ipv6")
    assert found == [("eth0", "fd00::/64"), ("wg0", "2001:db8::/64")]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, []),
        (
            {"service_cidr_ipv6": "fd00::/112"},
            ["minik8s_service_cidr_ipv6: fd00::/112 overlaps fd00::/64 of device eth0"],
        ),
        (
            {"cluster_cidr_ipv6": "fd00::/56"},
            ["minik8s_cluster_cidr_ipv6: fd00::/56 overlaps fd00::/64 of device eth0"],
        ),
        ({"foreign_pods": True}, ["with the network drivers cni and weave"]),
    ],
)
def test_a_range_of_ipv6_may_not_hide_a_network_of_the_machine(changes: dict[str, Any], words: list[str]) -> None:
    wanted = RANGES._replace(cluster_cidr_ipv6="fd00:10:244::/48", service_cidr_ipv6="fd00:10:96::/112")
    found = range_problems(wanted._replace(**changes), [*CONNECTED, ("eth0", "fd00::/64")])
    assert len(found) == len(words)
    assert all(word in text for word, text in zip(words, found, strict=True))


def test_the_listener_of_a_port_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert "python" in observe_machine([port, 1]).listeners[port]
    assert observe_machine([port]).listeners == {}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, ""),
        ({"cluster_cidr_ipv6": "10.0.0.0/8"}, "is not an IPv6 network"),
        ({"cluster_cidr_ipv6": "fd00::/57"}, "too small: a /56 has a /64 for each /24 of 10.244.0.0/16"),
        ({"cluster_cidr_ipv6": "fe80::/48"}, "is not for Pods"),
        ({"has_ipv6": False}, "IPv6 is off on this machine"),
        ({"has_ipv6": False, "node_name": ""}, ""),
        ({"foreign_pods": True}, "their own program gives Pods their addresses"),
    ],
)
def test_a_range_of_ipv6_that_cannot_be_is_told_before_anything_is_changed(change: dict[str, Any], words: str) -> None:
    wanted = Ranges("10.244.0.0/16", "100.0.0.0/24", 3, "n1", cluster_cidr_ipv6="fd00::/56")
    found = range_problems(wanted._replace(**change), [])
    assert len(found) == bool(words)
    assert words in "".join(found)


ALONE = Ranges(
    "fd00:10:244::/48", "fd00:10:96::/112", 3, "n1", standing="fd00:10:96::/112", dns_address="fd00:169:254:20::10"
)
NO_NAME_SERVERS = ("fe80::53", "fd00::53%eth0", "::1", "::", "ff02::1", "::ffff:169.254.20.10")


def test_ranges_of_ipv6_alone_will_do() -> None:
    assert range_problems(ALONE, CONNECTED) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cluster_cidr": "fd00::/63"}, "each of 3 nodes gets a /64 of it"),
        ({"cluster_cidr": "fd00:10:244::1/48"}, "is not an IPv6 network"),
        ({"cluster_cidr": "fe80::/48"}, "is not for Pods or Services"),
        ({"cluster_cidr": "fd00:10:96::/48"}, "overlaps minik8s_service_cidr fd00:10:96::/112"),
        ({"cluster_cidr": "fd00::/16"}, "overlaps fd00:7::/64 of device eth0"),
        ({"service_cidr": "fd00:10:96::/127"}, "give at least a /126"),
        ({"service_cidr": "100.0.0.0/24", "standing": ""}, "are of two families"),
        ({"standing": "100.0.0.0/24"}, "is of another family than 100.0.0.0/24"),
        ({"cluster_cidr_ipv6": "fd01::/48"}, "minik8s_cluster_cidr_ipv6 is not for a cluster with IPv6 alone"),
        ({"service_cidr_ipv6": "fd01::/112"}, "minik8s_service_cidr_ipv6 is not for a cluster with IPv6 alone"),
        ({"foreign_pods": True}, "minik8s_network_driver cni or weave is not for a cluster with IPv6 alone"),
        ({"mesh": True}, "minik8s_mesh is not for a cluster with IPv6 alone"),
        ({"has_ipv6": False}, "IPv6 is off on this machine"),
        ({"has_loopback": False}, "IPv6 is off on the device lo"),
        ({"dns_address": "169.254.20.10"}, "minik8s_dns_address: 169.254.20.10 is IPv4, and Pods have no such address"),
        *(({"dns_address": one}, f"minik8s_dns_address: {one} is not one that Pods reach") for one in NO_NAME_SERVERS),
        ({"dns_address": "fd00:10:96::10"}, "is in fd00:10:96::/112, a range of Pods or Services"),
        ({"cluster_cidr": "fd00:169::/32"}, "fd00:169:254:20::10 is in fd00:169::/32, a range of Pods or Services"),
    ],
)
def test_what_a_cluster_of_ipv6_alone_cannot_be_is_told(changes: dict[str, Any], words: str) -> None:
    found = range_problems(ALONE._replace(**changes), [*CONNECTED, ("eth0", "fd00:7::/64")])
    assert words in "; ".join(found)


@pytest.mark.parametrize("quote", ["", "'", '"'])
def test_the_family_of_a_cluster_that_stands_is_read_from_its_configuration(tmp_path: Path, quote: str) -> None:
    file = tmp_path / "apiserver.yml"
    assert standing_services(file) == ""
    file.write_text(f"port: 6443\nservice_cidr: {quote}fd00:10:96::/112{quote}\nservice_cidr_ipv6: ''\n")
    assert standing_services(file) == "fd00:10:96::/112"
