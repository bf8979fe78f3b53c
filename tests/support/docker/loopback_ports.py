"""Host ports of 127.0.0.1 in a network of its own: ``unshare -n python -m tests.support.docker.loopback_ports`` (JSON).

A pod is a second network behind a bridge. It has all rights there, so it tries the node's loopback as nobody else can.
"""

from __future__ import annotations

import json
import subprocess
import sys

from minik8s_modules.module_utils.minik8s.network.switches import set_switch
from minik8s_modules.module_utils.minik8s.pods import host_ports
from tests.support.waiting import until

NODE, BRIDGE, POD = "n1", "10.9.0.1", "10.9.0.2"
LINKS = f"""ip link set lo up; ip link add br0 type bridge; ip addr add {BRIDGE}/24 dev br0; ip link set br0 up
ip link add v0 type veth peer name v1; ip link set v0 master br0 up; ip link set v1 netns $1"""
INSIDE = f"ip link set lo up; ip addr add {POD}/24 dev v1; ip link set v1 up; ip route add default via {BRIDGE}"
PRYING = f"""ip addr del 127.0.0.1/8 dev lo; ip route flush table local dev lo; ip route add 127.0.0.1 via {BRIDGE}
echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet"""


def _shell(text: str, *words: str, inside: tuple[str, ...] = ()) -> None:
    subprocess.run([*inside, "sh", "-ec", text, "sh", *words], check=True)


def _asked(address: str, port: int, inside: tuple[str, ...] = ()) -> str:
    argv = [*inside, "busybox", "nc", "-w", "2", address, str(port)]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _serving(port: int, text: str, *inside: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*inside, "busybox", "nc", "-ll", "-p", str(port), "-e", "echo", text])


def main() -> None:
    """Set everything up, and print what answered whom."""
    pod = subprocess.Popen(["unshare", "-n", "sh", "-c", "echo; exec sleep infinity"], stdout=subprocess.PIPE)
    assert pod.stdout is not None
    pod.stdout.readline()
    inside = ("nsenter", "-t", str(pod.pid), "-n")
    _shell(LINKS, str(pod.pid))
    _shell(INSIDE, inside=inside)
    served, own = _serving(8080, "pod", *inside), _serving(7777, "node")
    try:
        rows = frozenset({host_ports.Row("tcp", "127.0.0.1", 80, POD, 8080), host_ports.Row("tcp", "", 81, POD, 8080)})
        host_ports.change(NODE, host_ports.Ports({}, whole=True), "uid", rows, f"{BRIDGE}/24")
        set_switch("ipv4/conf/br0/route_localnet", "1")
        until(lambda: _asked("127.0.0.1", 7777) == "node" and _asked(POD, 8080) == "pod")
        found = {
            "whole": host_ports.observe(NODE).whole,
            "loopback": _asked("127.0.0.1", 80),
            "every address": [_asked("127.0.0.1", 81), _asked(BRIDGE, 81)],
            "another address": _asked(BRIDGE, 80),
        }
        _shell(PRYING, inside=inside)
        found["from a pod"] = _asked("127.0.0.1", 7777, inside)
        _shell(f"nft flush chain ip {host_ports.table_of(NODE)} receiving")
        found["from a pod without the rule"] = _asked("127.0.0.1", 7777, inside)
        found["whole without it"] = host_ports.observe(NODE).whole
        json.dump(found, sys.stdout)
    finally:
        for process in (served, own, pod):
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
