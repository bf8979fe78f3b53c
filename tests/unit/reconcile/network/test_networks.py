"""The section network: a bridge by itself, or with the ways to every other node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.base.clock import SystemClock
from minik8s_modules.base.config import Configuration
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.module_utils.minik8s.network.network import Network
from minik8s_modules.reconcile.network.dataplane import dataplane_entry
from minik8s_modules.reconcile.network.networks import machines, missing, network_entries
from minik8s_modules.reconcile.options import read_options
from minik8s_modules.reconcile.pods.desired import decide_pod
from minik8s_modules.reconcile.values.values import OverlaySettings, PluginSettings, Settings, tells_ipv6
from tests.unit.reconcile.worlds import inputs, observations, pod

OVERLAID = Settings(overlay=OverlaySettings("mk8s-vx0"), mtu=1450)


def node(name: str, cidr: str = "", address: str = "") -> dict[str, Any]:
    addresses = [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": address}]
    status = {"addresses": addresses if address else []}
    return {"metadata": {"name": name}, "spec": {"podCIDR": cidr} if cidr else {}, "status": status}


A, B, C = (node(name, f"10.244.{at}.0/24", f"192.0.2.{at}") for at, name in enumerate("abc", 1))


def test_each_node_has_a_way_to_every_other_one() -> None:
    known = machines([C, A, B])
    (entry,) = network_entries(B, OVERLAID, known).values()
    Network().check_entry("pod-network", entry)
    assert (entry["driver"], entry["mtu"], entry["overlay"]["address"]) == ("vxlan", 1450, "192.0.2.2")
    assert entry["overlay"]["peers"] == {
        "a": {"cidr": "10.244.1.0/24", "address": "192.0.2.1"},
        "c": {"cidr": "10.244.3.0/24", "address": "192.0.2.3"},
    }


def test_tunnels_go_by_the_nodes_second_addresses_where_these_are_chosen(tmp_path: Path) -> None:
    found = options(tmp_path, driver="vxlan", underlay="ipv6")
    assert (found.mtu, found.overlay.ipv6, tells_ipv6(found)) == (1430, True, True)
    both = [with_second(node, f"2001:db8::{at}") for at, node in enumerate((A, B, C), 1)]
    (entry,) = network_entries(both[1], found, machines(both, ipv6=True)).values()
    Network().check_entry("pod-network", entry)
    assert (entry["mtu"], entry["overlay"]["address"]) == (1430, "2001:db8::2")
    assert {name: peer["address"] for name, peer in entry["overlay"]["peers"].items()} == {
        "a": "2001:db8::1",
        "c": "2001:db8::3",
    }
    # one that has none keeps its bridge, new pods of it wait, and it is nobody's peer
    (entry,) = network_entries(A, found, machines(both, ipv6=True)).values()
    Network().check_entry("pod-network", entry)
    assert (entry["driver"], "overlay" in entry) == ("bridge", False)
    assert missing(A, found) == "node a tells no IPv6 address that its tunnels could leave from (network.underlay)"
    assert missing(both[0], found) == missing(A, OVERLAID) == ""
    assert list(machines([A, both[1]], ipv6=True)) == ["b"]
    # nobody else goes by them
    assert machines(both) == machines([A, B, C])


def test_a_new_pod_waits_for_the_address_of_its_nodes_tunnels_and_one_that_runs_goes_on() -> None:
    settings = {"overlay": OverlaySettings("mk8s-vx0", ipv6=True)}
    given = inputs({"node": A, "settings": settings})
    decided = decide_pod(pod(), observations([]), given, SystemClock().now())
    assert decided.waiting["app"].message == missing(A, given.settings)
    assert not decided.entries.get("sandboxes")
    running = decide_pod(pod(), observations([{"sandbox": 0}]), given, SystemClock().now())
    assert running.entries["sandboxes"]
    ready = inputs({"node": with_second(A, "2001:db8::1"), "settings": settings})
    assert decide_pod(pod(), observations([]), ready, SystemClock().now()).entries["sandboxes"]


ZONES = ["fe80::1%eth0", "2001:db8::1%x }\nflush ruleset"]


@pytest.mark.parametrize(
    "address", ["fe80::1", "ff02::1", "::", "::1", "::ffff:192.0.2.9", "::192.0.2.7", *ZONES, "nowhere"]
)
def test_an_address_of_no_machine_is_nobodys_peer(address: str) -> None:
    assert machines([with_second(A, address)], ipv6=True) == {}
    assert machines([with_second(A, "2001:DB8:0::1")], ipv6=True)["a"]["address"] == "2001:db8::1"


def with_second(node: dict[str, Any], address: str) -> dict[str, Any]:
    addresses = [*node["status"]["addresses"], {"type": "InternalIP", "address": address}]
    return {**node, "status": {"addresses": addresses}}


def test_nodes_that_cannot_be_reached_are_left_out() -> None:
    same_range = node("z", "10.244.1.0/24", "192.0.2.9")
    assert list(machines([same_range, node("x", "10.244.9.0/24"), node("y", "", "192.0.2.8"), A])) == ["a"]
    here_too = node("d", "10.244.4.0/24", "192.0.2.2")
    (entry,) = network_entries(B, OVERLAID, machines([A, B, here_too])).values()
    assert list(entry["overlay"]["peers"]) == ["a"]


@pytest.mark.parametrize(
    "cidr",
    ["192.168.7.0/24", "10.244.0.0/15", "10.244.0.0/16", "10.244.1.0/24", "10.244.2.128/25", "fd00:9::/64", "x/24"],
)
def test_a_range_that_others_would_refuse_leaves_them_their_network(cidr: str) -> None:
    liar = came(node("0", cidr, "192.0.2.9"), 2)
    known = machines([liar, came(A, 1), came(B, 1)], cluster="10.244.0.0/16")
    assert list(known) == ["a", "b"]
    (entry,) = network_entries(A, OVERLAID, known).values()
    Network().check_entry("pod-network", entry)
    assert list(entry["overlay"]["peers"]) == ["b"]
    # the ranges of a plugin's nodes are nobody's business
    assert "0" in machines([liar], cluster="") or cidr == "x/24"


def test_of_two_ranges_that_overlap_the_one_that_came_first_is_reached() -> None:
    wide = node("0", "10.244.0.0/22", "192.0.2.9")
    assert list(machines([came(A, 1), came(wide, 2), came(B, 1)], cluster="10.244.0.0/16")) == ["a", "b"]
    assert list(machines([came(A, 2), came(wide, 1), came(B, 2)], cluster="10.244.0.0/16")) == ["0"]
    assert list(machines([A, wide, B])) == ["0"]


def came(node: dict[str, Any], day: int) -> dict[str, Any]:
    return {**node, "metadata": {**node["metadata"], "creationTimestamp": f"2026-01-0{day}T00:00:00Z"}}


def test_a_node_without_an_address_waits_for_it_and_a_bridge_does_not() -> None:
    bare = node("n", "10.244.5.0/24")
    assert network_entries(bare, OVERLAID, {}) == {}
    (entry,) = network_entries(bare, Settings(), {"a": {"cidr": "10.244.1.0/24", "address": "192.0.2.1"}}).values()
    Network().check_entry("pod-network", entry)
    assert (entry["driver"], "overlay" in entry, entry["mtu"]) == ("bridge", False, 1500)


def test_a_plugin_is_told_of_and_has_no_range_of_ours(tmp_path: Path) -> None:
    found = options(tmp_path, driver="cni", conf_dir="/etc/cni/mine", bin_dirs=["/opt/cni"])
    assert (found.overlay.device, found.mtu) == ("", 1500)
    (entry,) = network_entries(A, found, machines([A, B])).values()
    Network().check_entry("pod-network", entry)
    assert entry["cni"] == {"conf_dir": "/etc/cni/mine", "bin_dirs": ["/opt/cni"]}
    assert "cidr" not in entry


def test_weave_is_told_of_the_other_machines(tmp_path: Path) -> None:
    found = options(tmp_path, driver="weave")
    here_too = node("d", "10.244.4.0/24", "192.0.2.2")
    (entry,) = network_entries(B, found, machines([A, B, C, here_too])).values()
    Network().check_entry("pod-network", entry)
    assert entry["weave"] == {"command": "weave", "peers": ["192.0.2.1", "192.0.2.3"]}


def test_services_of_a_plugin_leave_by_the_nodes_own_address() -> None:
    settings = Settings(plugin=PluginSettings("weave", command="weave"), cluster_cidr="10.32.0.0/12")
    assert dataplane_entry(node("n", "10.244.5.0/24"), settings) is None
    found = dataplane_entry(A, settings)
    assert found is not None
    assert (found["gateway"], found["pod_cidr"]) == ("192.0.2.1", "10.32.0.0/12")


def options(folder: Path, **network: Any) -> Settings:
    (folder / "key").write_bytes(b"k" * 32)
    known = {name: str(folder) for name in ("kubeconfig", "inventory", "private_data_dir", "project_dir")}
    data = {**known, "hmac_key_file": str(folder / "key"), "network": network}
    return read_options(Configuration(data, "r.yml")).settings


def test_the_mtu_follows_the_driver_unless_it_is_told(tmp_path: Path) -> None:
    assert options(tmp_path).mtu == 1500
    found = options(tmp_path, driver="vxlan", direct=True)
    assert (found.mtu, found.overlay) == (1450, OverlaySettings("mk8s-vx0", direct=True))
    assert options(tmp_path, driver="vxlan", mtu=8950).mtu == 8950


@pytest.mark.parametrize(
    ("network", "words"),
    [
        ({"driver": "flannel"}, "network.driver"),
        ({"mtu": 100}, "network.mtu"),
        ({"vni": 0}, "network.vni"),
        ({"driver": "cni", "conf_dir": "net.d"}, "absolute paths"),
        ({"driver": "cni", "bin_dirs": ["/a:/b"]}, "absolute paths"),
        ({"driver": "vxlan", "underlay": "ipx"}, "network.underlay must be one of ipv4, ipv6"),
        ({"driver": "vxlan", "underlay": "ipv6", "direct": True}, "network.direct is for tunnels over IPv4"),
        ({"driver": "weave", "underlay": "ipv6"}, "weave makes no tunnels of ours"),
        ({"underlay": "ipv6"}, "bridge makes no tunnels of ours"),
    ],
)
def test_what_the_configuration_cannot_mean_is_refused(tmp_path: Path, network: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        options(tmp_path, **network)


def test_a_virtual_node_is_no_peer_even_with_a_range_of_its_own():
    far = {**C, "metadata": {**C["metadata"], "labels": {"type": "virtual-kubelet"}}}
    assert list(machines([A, far])) == ["a"]
