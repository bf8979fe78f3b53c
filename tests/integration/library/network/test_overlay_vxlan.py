"""Driver vxlan: two nodes in network namespaces of their own, pods that reach each other, and nothing left behind."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.node import command

ROOT = Path(__file__).resolve().parents[4]
PASS = """
import json, sys
from minik8s_modules.module_utils.minik8s.network.network import Network
from minik8s_modules.module_utils.minik8s.core.section import Request, context_for, run_pass
given = json.load(sys.stdin)
check = given.pop("check")
request = Request(given.pop("node"), docker_socket="/none", **given)
print(json.dumps(run_pass(Network(), request, context_for(request, budget_s=60.0), check=check)))
"""


class Machine:
    """A node in a namespace of its own, at 192.0.2.<number> with pods in 10.77.<number>.0/24; one pod is .7."""

    def __init__(self, folder: Path, number: int, prefix: str) -> None:
        self.number, self.node = number, f"{prefix}-n{number}"
        self.netns, self.pod = f"{prefix}{number}", f"{prefix}p{number}"
        self.address, self.cidr = f"192.0.2.{number}", f"10.77.{number}.0/24"
        self._folder = folder / self.node

    def make(self, switch: str) -> None:
        """Make the namespaces, and plug the machine into the ``switch``'s namespace."""
        for name in (self.netns, self.pod):
            command("ip", "netns", "add", name)
            self.inside("ip", "link", "set", "lo", "up", netns=name)
        plug = f"plug{self.number}"
        command("ip", "-n", self.netns, "link", "add", "eth0", "type", "veth", "peer", plug, "netns", switch)
        command("ip", "-n", switch, "link", "set", plug, "master", "switch", "up")
        self.inside("ip", "addr", "add", f"{self.address}/24", "dev", "eth0")
        self.inside("ip", "link", "set", "eth0", "up")

    def inside(self, *argv: str, netns: str = "") -> str:
        """Run a command on the machine."""
        return command("ip", "netns", "exec", netns or self.netns, *argv)

    def entries(self, *peers: Machine, mtu: int = 1450, **overlay: Any) -> dict[str, Any]:
        """Return what the machine is to be."""
        known = {peer.node: {"cidr": peer.cidr, "address": peer.address} for peer in peers}
        base = {"device": "mk8t-vx", "vni": 9, "port": 8472, "address": self.address, "direct": False, "peers": known}
        entry = {"driver": "vxlan", "bridge": "mk8t-br", "cidr": self.cidr, "gateway": f"10.77.{self.number}.1"}
        return {"pod-network": {**entry, "cluster_cidr": "10.77.0.0/16", "mtu": mtu, "overlay": {**base, **overlay}}}

    def run(self, entries: dict[str, Any], *, check: bool = False) -> Any:
        """Run one pass of the section in the machine's namespace."""
        folders = {"state_dir": str(self._folder / "s"), "run_dir": str(self._folder / "r")}
        given = {"node": self.node, "entries": entries, "check": check, **folders}
        argv = ["ip", "netns", "exec", self.netns, sys.executable, "-c", PASS]
        done = subprocess.run(argv, input=json.dumps(given), capture_output=True, text=True, check=False, cwd=ROOT)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def start_pod(self) -> None:
        """Plug the pod's namespace into the node's bridge."""
        command(
            "ip",
            "-n",
            self.pod,
            "link",
            "add",
            "eth0",
            "mtu",
            "1450",
            "type",
            "veth",
            "peer",
            "pod",
            "netns",
            self.netns,
        )
        self.inside("ip", "link", "set", "pod", "mtu", "1450", "master", "mk8t-br", "up")
        self.inside("ip", "addr", "add", f"10.77.{self.number}.7/24", "dev", "eth0", netns=self.pod)
        self.inside("ip", "link", "set", "eth0", "up", netns=self.pod)
        self.inside("ip", "route", "add", "default", "via", f"10.77.{self.number}.1", netns=self.pod)

    def reaches(self, target: str, *, from_pod: bool = True) -> str:
        """Ping with packets of the whole MTU; return what ping says when it fails."""
        ping = ["/bin/busybox", "ping", "-c1", "-W5", "-s", str(1450 - 28), target]
        argv = ["ip", "netns", "exec", self.pod if from_pod else self.netns, *ping]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        return "yes" if done.returncode == 0 else done.stdout + done.stderr

    def traces(self) -> str:
        """Return links, routes and FORWARD rules of the machine."""
        shown = [
            ("ip", "-o", "link"), ("ip", "route"), ("ip", "neigh", "show", "nud", "permanent"),
            ("iptables", "-S", "FORWARD"),
        ]  # fmt: skip
        return "\n".join(self.inside(*argv) for argv in shown)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[list[Machine]]:
    prefix = f"mk8t{uuid.uuid4().hex[:5]}"
    switch = f"{prefix}s"
    made = [Machine(tmp_path, number, prefix) for number in (1, 2)]
    try:
        command("ip", "netns", "add", switch)
        command("ip", "-n", switch, "link", "add", "switch", "type", "bridge")
        command("ip", "-n", switch, "link", "set", "switch", "up")
        for machine in made:
            machine.make(switch)
        yield made
    finally:
        for name in [switch, *(one for machine in made for one in (machine.netns, machine.pod))]:
            with contextlib.suppress(AssertionError):
                command("ip", "netns", "del", name)


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
