"""Machines in network namespaces of their own, each a node with one pod; what is between them is of one family."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.node import command

ROOT = Path(__file__).resolve().parents[2]
DEVICE, VNI, PORT = "mk8t-vx", 9, 8472
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
    """A node in a namespace of its own, at 192.0.2.<number> with pods in 10.77.<number>.0/24; one pod is .7.

    With ``ipv6`` it has the address 2001:db8::<number> alone, so that nothing of IPv4 passes between machines.
    """

    def __init__(self, folder: Path, number: int, prefix: str, *, ipv6: bool = False) -> None:
        self.number, self.node, self.ipv6 = number, f"{prefix}-n{number}", ipv6
        self.netns, self.pod = f"{prefix}{number}", f"{prefix}p{number}"
        self.address, self.length = (f"2001:db8::{number}", 64) if ipv6 else (f"192.0.2.{number}", 24)
        self.mtu, self.cidr = 1430 if ipv6 else 1450, f"10.77.{number}.0/24"
        self._folder = folder / self.node

    def make(self, switch: str) -> None:
        """Make the namespaces, and plug the machine into the ``switch``'s namespace."""
        for name in (self.netns, self.pod):
            command("ip", "netns", "add", name)
            self.inside("ip", "link", "set", "lo", "up", netns=name)
        plug = f"plug{self.number}"
        command("ip", "-n", self.netns, "link", "add", "eth0", "type", "veth", "peer", plug, "netns", switch)
        command("ip", "-n", switch, "link", "set", plug, "master", "switch", "up")
        nodad = ["nodad"] if self.ipv6 else []
        self.inside("ip", "addr", "add", f"{self.address}/{self.length}", "dev", "eth0", *nodad)
        self.inside("ip", "link", "set", "eth0", "up")

    def inside(self, *argv: str, netns: str = "") -> str:
        """Run a command on the machine."""
        return command("ip", "netns", "exec", netns or self.netns, *argv)

    def entries(self, *peers: Machine, mtu: int = 0, **overlay: Any) -> dict[str, Any]:
        """Return what the machine is to be."""
        known = {peer.node: {"cidr": peer.cidr, "address": peer.address} for peer in peers}
        base = {"device": DEVICE, "vni": VNI, "port": PORT, "address": self.address, "direct": False, "peers": known}
        entry = {"driver": "vxlan", "bridge": "mk8t-br", "cidr": self.cidr, "gateway": f"10.77.{self.number}.1"}
        ours = {"cluster_cidr": "10.77.0.0/16", "mtu": mtu or self.mtu, "overlay": {**base, **overlay}}
        return {"pod-network": {**entry, **ours}}

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
        mtu = str(self.mtu)
        pair = ["type", "veth", "peer", "pod", "netns", self.netns]
        command("ip", "-n", self.pod, "link", "add", "eth0", "mtu", mtu, *pair)
        self.inside("ip", "link", "set", "pod", "mtu", mtu, "master", "mk8t-br", "up")
        self.inside("ip", "addr", "add", f"10.77.{self.number}.7/24", "dev", "eth0", netns=self.pod)
        self.inside("ip", "link", "set", "eth0", "up", netns=self.pod)
        self.inside("ip", "route", "add", "default", "via", f"10.77.{self.number}.1", netns=self.pod)

    def reaches(self, target: str, *, from_pod: bool = True) -> str:
        """Ping with packets of the whole MTU; return what ping says when it fails."""
        ping = ["/bin/busybox", "ping", "-c1", "-W5", "-s", str(self.mtu - 28), target]
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


@contextlib.contextmanager
def machines_on_a_switch(folder: Path, *, ipv6: bool = False, count: int = 2) -> Iterator[tuple[list[Machine], str]]:
    """Make machines, and the switch's namespace, in which somebody who is no node can be."""
    prefix = f"mk8t{uuid.uuid4().hex[:5]}"
    switch = f"{prefix}s"
    made = [Machine(folder, number, prefix, ipv6=ipv6) for number in range(1, count + 1)]
    try:
        command("ip", "netns", "add", switch)
        command("ip", "-n", switch, "link", "add", "switch", "type", "bridge")
        command("ip", "-n", switch, "link", "set", "switch", "up")
        for machine in made:
            machine.make(switch)
        yield made, switch
    finally:
        for name in [switch, *(one for machine in made for one in (machine.netns, machine.pod))]:
            with contextlib.suppress(AssertionError):
                command("ip", "netns", "del", name)
