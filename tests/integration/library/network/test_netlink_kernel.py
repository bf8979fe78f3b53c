"""Netlink against the kernel, in a network namespace of the test's own."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from minik8s_modules.module_utils.minik8s.network.netlink import Netlink, netns_of

UTILS = Path(__file__).parents[4] / "minik8s_modules" / "module_utils"
BRIDGES = "".join(f"link add stay{number} type bridge\n" for number in range(40))
CHURN = f"echo '{BRIDGES}' | ip -batch - && echo ready && while :; do ip link add x type bridge; ip link del x; done"
POD = """
import json, os, subprocess, sys
sys.path.insert(0, sys.argv[1])
from minik8s.network.netlink import Address, Netlink
node, pod = sys.argv[2:]
SHOW = ["ip", "-json", "link", "show", "eth0"]
before = len(os.listdir("/proc/self/fd"))
with Netlink(node) as outside, Netlink(pod) as inside:
    outside.add_bridge("bridge")
    outside.set_link(outside.link("bridge").ifindex, mtu=1400)
    bridge = outside.link("bridge")
    outside.add_veth("end", bridge.ifindex, 1400, "eth0", pod, mac="0a:58:0a:f4:00:05")
    outside.set_link(outside.link("end").ifindex, up=True, mtu=1300, alias="minik8s node pod")
    eth0 = inside.link("eth0")
    inside.set_link(eth0.ifindex, up=True, mtu=1300)
    for _ in range(2):
        inside.add_address(Address(eth0.ifindex, "10.9.8.7", 24))
        inside.set_default_route("10.9.8.1", eth0.ifindex)
    end = outside.link("end")
    seen = {
        "bridge": [bridge.kind, bridge.up, bridge.mtu],
        "end": [end.kind, end.up, end.mtu, end.alias, end.master == bridge.ifindex],
        "found by index": outside.link_at(end.ifindex) == end,
        "inside": sorted(inside.links()),
        "addresses": [each[1:] for each in inside.addresses() if each.ifindex == eth0.ifindex],
        "routes": [each[:2] for each in inside.routes()],
        "refused": [],
        "mac": json.loads(subprocess.check_output(["nsenter", "--net=" + pod, *SHOW]))[0]["address"],
    }
    for refused in (
        lambda: outside.add_bridge("bridge"),
        lambda: outside.delete_link(999999),
        lambda: outside.set_link(999999, up=True),
    ):
        try:
            refused()
        except OSError as error:
            seen["refused"].append(error.errno)
    inside.delete_address(Address(eth0.ifindex, "10.9.8.7", 24))
    seen["addresses left"] = [each[1:] for each in inside.addresses() if each.ifindex == eth0.ifindex]
    outside.delete_link(end.ifindex)
    seen["mtu of a bridge without ports"] = outside.link("bridge").mtu
    seen["left"] = [outside.link("end"), outside.link_at(end.ifindex), inside.link("eth0"), outside.link("x" * 20)]
seen["descriptors left open"] = len(os.listdir("/proc/self/fd")) - before
seen["pyroute2"] = "pyroute2" in sys.modules
print(json.dumps(seen))
"""
OVERLAY = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
from minik8s.network.netlink import Address
from minik8s.network.overlay_links import UNREACHABLE, OverlayNetlink, OverlayRoute, Tunnel
before, seen = len(os.listdir("/proc/self/fd")), {}
tunnel = Tunnel(77, "10.9.8.7", 4789, "0a:58:0a:f4:00:00", False)
with OverlayNetlink() as netlink:
    netlink.add_bridge("bridge")
    netlink.set_link(netlink.link("bridge").ifindex, up=True)
    netlink.add_address(Address(netlink.link("bridge").ifindex, "10.9.8.7", 24))
    seen["read"] = [netlink.overlay(None, "10.9.8.7").under.ip, "pyroute2" in sys.modules]
    netlink.add_tunnel("overlay", tunnel, 1400)
    link = netlink.link("overlay")
    to = OverlayRoute("10.244.2.0/24", "10.244.2.1", link.ifindex, "10.9.8.7", 78)
    last = OverlayRoute("10.244.0.0/16", "", 0, "10.9.8.7", 78, UNREACHABLE)
    for _ in range(2):
        netlink.add_forwarding(link.ifindex, tunnel.mac, "10.9.8.9")
        netlink.set_overlay_route(to)
        netlink.set_overlay_route(last)
    found = netlink.overlay(link, "10.9.8.7")
    seen["made"] = [found.tunnel == tunnel, sorted(found.forwarding), {to, last} <= {*found.routes}]
    seen["pyroute2"] = "pyroute2" in sys.modules
    netlink.delete_forwarding(link.ifindex, tunnel.mac, "10.9.8.9")
    try:
        netlink.delete_forwarding(link.ifindex, tunnel.mac, "10.9.8.9")
    except OSError as error:
        seen["refused"] = [error.errno, str(error)]
    netlink.delete_overlay(link.ifindex, {"10.9.8.7"})
    left = netlink.overlay(None, "10.9.8.7")
    seen["left"] = [netlink.link("overlay"), [each for each in left.routes if each.protocol == 78]]
seen["descriptors left open"] = len(os.listdir("/proc/self/fd")) - before
print(json.dumps(seen))
"""
WITHOUT = """
import sys
sys.path.insert(0, sys.argv[1])
from minik8s.core.faults import PassFault
from minik8s.network.overlay_links import OverlayNetlink
try:
    OverlayNetlink().delete_forwarding(1, "0a:58:0a:f4:00:00", "")
except PassFault as fault:
    print(fault)
"""


@contextlib.contextmanager
def namespace(script: str) -> Iterator[subprocess.Popen[str]]:
    argv = ["unshare", "--net", "sh", "-c", script]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            os.killpg(process.pid, 9)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def node() -> Iterator[str]:
    with namespace("echo ready; exec sleep 60") as process:
        yield netns_of(process.pid)


@pytest.fixture
def pod() -> Iterator[str]:
    with namespace("echo ready; exec sleep 60") as process:
        yield netns_of(process.pid)


def test_a_pod_is_wired_and_what_the_kernel_refuses_keeps_its_errno(node: str, pod: str) -> None:
    argv = [sys.executable, "-I", "-W", "error", "-c", POD, str(UTILS), node, pod]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "bridge": ["bridge", True, 1400],
        "end": ["veth", True, 1300, "minik8s node pod", True],
        "found by index": True,
        "inside": ["eth0", "lo"],
        "addresses": [["10.9.8.7", 24]],
        "routes": [["default", "10.9.8.1"], ["10.9.8.0/24", ""]],
        "refused": [errno.EEXIST, errno.ENODEV, errno.ENODEV],
        "mac": "0a:58:0a:f4:00:05",
        "addresses left": [],
        "mtu of a bridge without ports": 1400,
        "left": [None, None, None, None],
        "descriptors left open": 0,
        "pyroute2": False,
    }


@pytest.mark.parametrize("python", [sys.executable, "/usr/bin/python3"])
def test_an_overlay_is_read_without_pyroute2_and_changed_by_it(python: str) -> None:
    argv = ["unshare", "--net", python, "-I", "-c", OVERLAY, str(UTILS)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "read": ["10.9.8.7", False],
        "made": [True, [["0a:58:0a:f4:00:00", "10.9.8.9"]], True],
        "pyroute2": True,
        "refused": [errno.ENOENT, "[Errno 2] netlink: fdb del: No such file or directory"],
        "left": [None, []],
        "descriptors left open": 0,
    }


def test_a_node_without_pyroute2_is_told_what_to_install() -> None:
    argv = ["unshare", "--net", sys.executable, "-I", "-S", "-c", WITHOUT, str(UTILS)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert f"{sys.executable} on {socket.gethostname()} cannot import pyroute2" in done.stdout
    assert "install the Debian package python3-pyroute2" in done.stdout


def test_threads_look_into_namespaces_and_each_comes_back(node: str) -> None:
    home, seen = Path("/proc/self/ns/net").readlink(), []

    def look() -> None:
        for _ in range(5):
            with Netlink(node) as inside, Netlink() as outside:
                links = (sorted(inside.links()), sorted(outside.links()))
            here = Path("/proc/thread-self/ns/net").readlink()
            seen.append((links[0] == ["lo"], len(links[1]) > 1, here == home))

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [(True, True, True)] * 20


def test_a_namespace_that_is_gone_is_told_and_nothing_stays_open() -> None:
    with Netlink():
        pass
    before = descriptors()
    for _ in range(3):
        with pytest.raises(FileNotFoundError):
            Netlink("/proc/4194304/ns/net")  # above the highest process id
    assert descriptors() == before


def test_links_that_come_and_go_hide_no_other() -> None:
    with namespace(CHURN) as process, Netlink(netns_of(process.pid)) as netlink:
        readings = [netlink.links() for _ in range(20)]
    stay = {f"stay{number}" for number in range(40)}
    assert all(stay <= set(each) for each in readings)
