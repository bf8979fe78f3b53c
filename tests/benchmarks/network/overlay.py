"""What the overlay costs beside a VXLAN made by hand: ``python -m tests.benchmarks.network.overlay``, half a minute.

Two machines are network namespaces on one wire. Between them are ours (section ``network``, driver ``vxlan``: bridge,
routes, static FDB) and a plain device made by ``ip link``, bridge and pod alike; each has a pod at both ends. One
sender fills a TCP connection from pod to pod; both overlays are measured in turn in one run, and the bar is on the
ratio, so that both meet the same load. The sender is iperf3 where it is installed, else a loop of Python.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.benchmarks.figures import Figure
from tests.support.node import command
from tests.support.overlaid import Machine

ROUNDS, SECONDS, LEAST = 7, 1.5, 0.95
PORT = 5201
HAND_VNI, HAND_PORT, MTU = 4711, 4790, 1450
SERVE = """
import socket, sys
with socket.create_server(("", int(sys.argv[1]))) as server:
    print("ready", flush=True)
    connection, _ = server.accept()
    taken = bytearray(1 << 18)
    while connection.recv_into(taken):
        pass
"""
SEND = """
import socket, sys, time
data, sent = memoryview(bytes(1 << 18)), 0
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 10) as out:
    end = time.monotonic() + float(sys.argv[3])
    begun = time.monotonic()
    while time.monotonic() < end:
        out.sendall(data)
        sent += len(data)
    spent = time.monotonic() - begun
print(sent * 8 / spent)
"""


class Pair:
    """The pods of an overlay: namespaces, and the address of the second."""

    def __init__(self, one: str, two: str, target: str) -> None:
        self.one, self.two, self.target = one, two, target

    def bits_per_s(self, seconds: float) -> float:
        """Return what one TCP connection carries."""
        return self._by_iperf(seconds) if shutil.which("iperf3") else self._by_python(seconds)

    def _by_python(self, seconds: float) -> float:
        server = _inside(self.two, [sys.executable, "-c", SERVE, str(PORT)])
        with subprocess.Popen(server, stdout=subprocess.PIPE, text=True) as serving:
            try:
                assert serving.stdout is not None
                serving.stdout.readline()
                argv = _inside(self.one, [sys.executable, "-c", SEND, self.target, str(PORT), str(seconds)])
                return float(command(*argv))
            finally:
                serving.kill()

    def _by_iperf(self, seconds: float) -> float:
        with subprocess.Popen(_inside(self.two, ["iperf3", "-s", "-1"]), stdout=subprocess.PIPE, text=True) as serving:
            try:
                assert serving.stdout is not None
                serving.stdout.readline()
                argv = _inside(self.one, ["iperf3", "-c", self.target, "-t", str(max(1, round(seconds))), "-J"])
                return float(json.loads(command(*argv))["end"]["sum_received"]["bits_per_second"])
            finally:
                serving.kill()


def _inside(netns: str, argv: list[str]) -> list[str]:
    return ["ip", "netns", "exec", netns, *argv]


@contextmanager
def machines() -> Iterator[tuple[Pair, Pair]]:
    """Yield the pods of our overlay and of the one by hand; all is gone afterwards."""
    prefix = f"mk8t{uuid.uuid4().hex[:5]}"
    switch = f"{prefix}s"
    with tempfile.TemporaryDirectory() as folder:
        made = [Machine(Path(folder), number, prefix) for number in (1, 2)]
        by_hand = [f"{prefix}h{number}" for number in (1, 2)]
        try:
            command("ip", "netns", "add", switch)
            command("ip", "-n", switch, "link", "add", "switch", "type", "bridge")
            command("ip", "-n", switch, "link", "set", "switch", "up")
            for machine in made:
                machine.make(switch)
            for machine, peer in (made, made[::-1]):
                errors = machine.run(machine.entries(peer))["errors"]
                assert not errors, errors
                machine.start_pod()
            for machine, name in zip(made, by_hand, strict=True):
                make_by_hand(machine, name)
            yield Pair(made[0].pod, made[1].pod, "10.77.2.7"), Pair(by_hand[0], by_hand[1], "10.78.2.7")
        finally:
            names = [switch, *by_hand, *(one for machine in made for one in (machine.netns, machine.pod))]
            for name in names:
                with suppress(AssertionError):
                    command("ip", "netns", "del", name)


def make_by_hand(machine: Machine, pod: str) -> None:
    """Make a second overlay as a person would: device, bridge, a route to the other's range, one pod."""
    number, other = machine.number, 3 - machine.number
    n = ("ip", "-n", machine.netns)
    command("ip", "netns", "add", pod)
    settings = ["id", str(HAND_VNI), "local", machine.address, "remote", f"192.0.2.{other}", "dstport", str(HAND_PORT)]
    command(*n, "link", "add", "hand-vx", "mtu", str(MTU), "type", "vxlan", *settings)
    command(*n, "addr", "add", f"10.79.0.{number}/24", "dev", "hand-vx")
    command(*n, "link", "add", "hand-br", "mtu", str(MTU), "type", "bridge")
    command(*n, "addr", "add", f"10.78.{number}.1/24", "dev", "hand-br")
    for device in ("hand-vx", "hand-br"):
        command(*n, "link", "set", device, "up")
    command(*n, "route", "add", f"10.78.{other}.0/24", "via", f"10.79.0.{other}", "dev", "hand-vx")
    command(
        "ip", "-n", pod, "link", "add", "eth0", "mtu", str(MTU), "type", "veth", "peer", "hand", "netns", machine.netns
    )
    command(*n, "link", "set", "hand", "mtu", str(MTU), "master", "hand-br", "up")
    command("ip", "-n", pod, "addr", "add", f"10.78.{number}.7/24", "dev", "eth0")
    command("ip", "-n", pod, "link", "set", "eth0", "up")
    command("ip", "-n", pod, "route", "add", "default", "via", f"10.78.{number}.1")


def measure() -> list[Figure]:
    """Measure both in turn; the order alternates."""
    with machines() as pairs:
        for pair in pairs:
            pair.bits_per_s(0.5)  # warms up
        found: list[tuple[float, float]] = []
        for turn in range(ROUNDS):
            order = (0, 1) if turn % 2 else (1, 0)
            spent = {at: pairs[at].bits_per_s(SECONDS) for at in order}
            found.append((spent[0], spent[1]))
    ratio = statistics.median(ours / hand for ours, hand in found)
    tool = "iperf3" if shutil.which("iperf3") else "one sender in Python"
    text = f"n={ROUNDS} in turns, {tool}; least allowed is {LEAST:g} x of it; load {os.getloadavg()[0]:.1f}"
    return [
        # bars are upper limits: by hand over ours, at most 1 / 0.95
        Figure("VXLAN by hand over ours, pod to pod, p50 of ratios", 1 / ratio, "x", round(1 / LEAST, 4), text),
        Figure("VXLAN pod to pod, ours over by hand", ratio, "x", None, text),
        Figure("VXLAN pod to pod, ours", statistics.median(ours for ours, _ in found) / 1e9, "Gbit/s", None, text),
        Figure("VXLAN pod to pod, by hand", statistics.median(hand for _, hand in found) / 1e9, "Gbit/s", None, text),
    ]


def main() -> None:
    """Measure and print."""
    for figure in measure():
        print(figure.line())


if __name__ == "__main__":
    main()
