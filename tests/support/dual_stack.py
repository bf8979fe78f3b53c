"""Two nodes in network namespaces of their own, whose pods have an IPv6 address beside that of IPv4."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from minik8s_modules.api.network.dual_stack import DualStack
from minik8s_modules.module_utils.minik8s.core.docker import Docker
from tests.support.node import SOCKET, command

ROOT = Path(__file__).resolve().parents[2]
DUAL = DualStack("10.77.0.0/16", "fd00:77::/48")
OUTSIDE = "2001:db8::9"
SCTP = ROOT / "tests" / "support" / "servers" / "sctp.py"
SWITCHES = [
    f"net.ipv6.conf.{name}" for name in ("all.forwarding", "lo.forwarding", "eth0.forwarding", "eth0.accept_ra")
]
PASS = """
import json, sys
from minik8s_modules.module_utils.minik8s.core.section import Request, context_for, run_pass
from minik8s_modules.module_utils.minik8s.reapplying import SECTION_OBJECTS
given = json.load(sys.stdin)
check, section = given.pop("check"), given.pop("section")
request = Request(given.pop("node"), **given)
print(json.dumps(run_pass(SECTION_OBJECTS[section], request, context_for(request, budget_s=60.0), check=check)))
"""
# answers with its name and the client's address, over TCP and UDP
SERVER = """
import socket, sys, threading
name, port = sys.argv[1], int(sys.argv[2])
tcp, udp = (socket.socket(socket.AF_INET6, kind) for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM))
tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
for each in (tcp, udp):
    each.bind(("::", port))
tcp.listen(64)
def told(client): return f"{name} {client[0].removeprefix('::ffff:')}".encode()
def datagrams():
    while True:
        client = udp.recvfrom(64)[1]
        udp.sendto(told(client), client)
threading.Thread(target=datagrams, daemon=True).start()
print("ready", flush=True)
while True:
    one, client = tcp.accept()
    one.sendall(told(client))
    one.close()
"""
CLIENT = """
import socket, sys
address, port, protocol = sys.argv[1], int(sys.argv[2]), sys.argv[3]
kind = socket.SOCK_DGRAM if protocol == "UDP" else socket.SOCK_STREAM
with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind) as asking:
    asking.settimeout(float(sys.argv[4]))
    try:
        asking.connect((address, port))
        if protocol == "UDP":
            asking.send(b"who")
        print(asking.recv(200).decode())
    except ConnectionRefusedError:
        print("refused -")
    except TimeoutError:
        print("silent -")
"""


class Answer(NamedTuple):
    """Who answered ("refused", "silent"), and whom it saw."""

    name: str
    client: str


class Ask(Protocol):
    """Asks an address and a port once."""

    def __call__(self, address: str, port: int, protocol: str = "TCP", *, wait_s: int = 20) -> Answer:
        """Return who answered."""


def _asking(*place: str) -> Ask:
    def ask(address: str, port: int, protocol: str = "TCP", *, wait_s: int = 20) -> Answer:
        line = [*place, sys.executable, "-c", CLIENT, address, str(port), protocol, str(wait_s)]
        if protocol == "SCTP":
            line = [*place, sys.executable, str(SCTP), "ask", address, str(port), str(wait_s)]
        return Answer(*subprocess.run(line, capture_output=True, text=True, check=True).stdout.split())

    return ask


class Machine:
    """A node in a namespace of its own, at 192.0.2.<number> and 2001:db8::<number>, and its pods."""

    def __init__(self, folder: Path, number: int, prefix: str) -> None:
        self.number, self.node, self.netns = number, f"{prefix}-n{number}", f"{prefix}{number}"
        self.address, self.cidr, self.gateway = f"192.0.2.{number}", f"10.77.{number}.0/24", f"10.77.{number}.1"
        self._folder, self.docker = folder / self.node, Docker(SOCKET)
        self.pids: dict[int, int] = {}
        self.setup = ""
        self.switch = ""
        self._servers: list[subprocess.Popen[str]] = []

    def make(self, switch: str) -> None:
        """Make the namespace, and plug the machine into the ``switch``'s."""
        self.switch = switch
        command("ip", "netns", "add", self.netns)
        plug = f"plug{self.number}"
        command("ip", "-n", self.netns, "link", "add", "eth0", "type", "veth", "peer", plug, "netns", switch)
        command("ip", "-n", switch, "link", "set", plug, "master", "switch", "up")
        self.inside("ip", "link", "set", "lo", "up")
        self.inside("ip", "addr", "add", f"{self.address}/24", "dev", "eth0")
        self.inside("ip", "addr", "add", f"2001:db8::{self.number}/64", "dev", "eth0", "nodad")
        self.inside("ip", "link", "set", "eth0", "up")

    def remove(self) -> None:
        """Remove containers and namespace."""
        for server in self._servers:
            server.kill()
            server.communicate()
        for each in self.docker.containers({"minik8s.io/node": self.node}):
            self.docker.remove(each["Id"])
        self.docker.close()
        with contextlib.suppress(AssertionError):
            command("ip", "netns", "del", self.netns)

    def inside(self, *argv: str) -> str:
        """Run a command on the machine."""
        return command("ip", "netns", "exec", self.netns, *argv)

    def network(self, *peers: Machine, ipv6: bool = True) -> dict[str, Any]:
        """Return what the machine's network is to be."""
        known = {one.node: {"cidr": one.cidr, "address": one.address} for one in peers}
        entry: dict[str, Any] = {"driver": "vxlan", "bridge": "mk8t-br", "cidr": self.cidr, "gateway": self.gateway}
        if ipv6:
            known = {one.node: {**known[one.node], "cidr_ipv6": DUAL.range_of(one.cidr)} for one in peers}
            second = {"gateway": DUAL.gateway_of(self.cidr), "cluster_cidr": DUAL.cluster_cidr}
            entry["ipv6"] = {"cidr": DUAL.range_of(self.cidr), **second}
        overlay = {"device": "mk8t-vx", "vni": 9, "port": 8472, "address": self.address, "direct": False}
        entry |= {"cluster_cidr": DUAL.ipv4, "mtu": 1450, "overlay": {**overlay, "peers": known}}
        return {"pod-network": entry}

    def sandboxes(self, *numbers: int, ipv6: bool = True, **fields: Any) -> dict[str, Any]:
        """Return the sandboxes of pods, which have their number as the last part of their addresses."""
        pods = {pod["pod"]["uid"]: {**pod, **fields} for pod in map(self._pod, numbers)}
        return pods if ipv6 else {uid: {k: v for k, v in pod.items() if k != "ipv6"} for uid, pod in pods.items()}

    def _pod(self, number: int) -> dict[str, Any]:
        uid = str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{self.node}-{number}"))
        ip = f"10.77.{self.number}.{number}"
        return {
            "pod": {"uid": uid, "name": f"pod-{number}", "namespace": "default"},
            "attempt": 0,
            "image": "minik8s/pause:1",
            "hostname": f"pod-{number}",
            "host_network": False,
            "ip": ip,
            "prefix_length": 24,
            "gateway": self.gateway,
            "bridge": "mk8t-br",
            "mtu": 1450,
            "dns": {"nameservers": [], "searches": [], "options": []},
            "ipv6": {"ip": DUAL.address_of(ip), "gateway": DUAL.gateway_of(self.cidr)},
        }

    def run(self, section: str, entries: dict[str, Any], *, check: bool = False) -> Any:
        """Run one pass of a section in the machine's namespace."""
        result = self.attempt(section, entries, check=check)
        assert not result["errors"], result["errors"]
        return result

    def attempt(self, section: str, entries: dict[str, Any], *, check: bool = False) -> Any:
        """Run one pass that may have errors."""
        folders = {"state_dir": str(self._folder / "s"), "run_dir": str(self._folder / "r"), "docker_socket": SOCKET}
        given = {"node": self.node, "section": section, "entries": entries, "check": check, **folders}
        argv = ["ip", "netns", "exec", self.netns, sys.executable, "-c", f"{self.setup}\n{PASS}"]
        done = subprocess.run(argv, input=json.dumps(given), capture_output=True, text=True, check=False, cwd=ROOT)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def start(self, *numbers: int, ipv6: bool = True, **fields: Any) -> None:
        """Start pods."""
        entries = self.sandboxes(*numbers, ipv6=ipv6, **fields)
        status = self.run("sandboxes", entries)["status"]
        for number, uid in zip(numbers, entries, strict=True):
            self.pids[number] = self.docker.inspect(status[uid]["id"])["State"]["Pid"]  # type: ignore[index]  # it runs

    def pod(self, number: int, *argv: str) -> subprocess.CompletedProcess[str]:
        """Run a command in a pod's network."""
        line = ["nsenter", "-t", str(self.pids[number]), "-n", *argv]
        return subprocess.run(line, capture_output=True, text=True, check=False)

    def serve(self, number: int, port: int, sctp: str = "") -> None:
        """Let a pod answer at a port with its name, ``<node>-<number>``, and the client's address.

        With ``sctp`` it answers over SCTP at that address.
        """
        program = [str(SCTP), "serve"] if sctp else ["-c", SERVER]
        inside = ["nsenter", "-t", str(self.pids[number]), "-n", sys.executable, *program]
        line = [*inside, f"{self.node}-{number}", str(port), *([sctp] if sctp else [])]
        server = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
        self._servers.append(server)
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"

    def ask(self, address: str, port: int, protocol: str = "TCP") -> Answer:
        """Ask from the machine."""
        return _asking("ip", "netns", "exec", self.netns)(address, port, protocol)

    def asking(self, number: int) -> Ask:
        """Return what asks from a pod."""
        return _asking("nsenter", "-t", str(self.pids[number]), "-n")

    def asking_outside(self) -> Ask:
        """Return what asks from outside the cluster, on the same switch."""
        return _asking("ip", "netns", "exec", self.switch)

    def reaches(self, number: int, target: str, *, source: str = "", wait_s: int = 10) -> bool:
        """Ping from a pod; with all of the MTU, so that a path that carries less is seen."""
        size = 1450 - (48 if ":" in target else 28)
        options = ["-c1", f"-W{wait_s}", "-s", str(size), *(["-I", source] if source else [])]
        return self.pod(number, "/bin/busybox", "ping", *options, target).returncode == 0

    def is_cut_off(self, number: int, target: str, *, source: str = "") -> bool:
        """Return whether nothing comes back; nobody waits longer for it than a moment."""
        return not self.reaches(number, target, source=source, wait_s=1)

    def ip_of(self, number: int, family: int = 6) -> str:
        """Return the address of a pod."""
        ip = f"10.77.{self.number}.{number}"
        return DUAL.address_of(ip) if family == 6 else ip

    def traces(self) -> str:
        """Return what of the machine's network passes could have changed."""
        shown = [
            ("ip", "-o", "link"), ("ip", "route"), ("ip", "-6", "route"), ("ip", "neigh", "show", "nud", "permanent"),
            ("iptables", "-S", "FORWARD"), ("ip6tables", "-S", "FORWARD"),
            ("nft", "list", "table", "ip6", "minik8s_pods"), ("sysctl", *SWITCHES),
        ]  # fmt: skip
        found = (
            subprocess.run(["ip", "netns", "exec", self.netns, *argv], capture_output=True, text=True, check=False)
            for argv in shown
        )
        return "\n".join(done.stdout for done in found)


@contextlib.contextmanager
def two_machines(folder: Path) -> Iterator[tuple[Machine, Machine]]:
    """Make two machines on one switch, at which somebody outside the cluster has the address ``OUTSIDE``."""
    prefix = f"mk8t{uuid.uuid4().hex[:5]}"
    switch = f"{prefix}s"
    one, two = (Machine(folder, number, prefix) for number in (1, 2))
    try:
        command("ip", "netns", "add", switch)
        command("ip", "-n", switch, "link", "add", "switch", "type", "bridge")
        command("ip", "-n", switch, "link", "set", "switch", "up")
        command("ip", "-n", switch, "addr", "add", f"{OUTSIDE}/64", "dev", "switch", "nodad")
        for machine in (one, two):
            machine.make(switch)
        yield one, two
    finally:
        for machine in (one, two):
            machine.remove()
        with contextlib.suppress(AssertionError):
            command("ip", "netns", "del", switch)
