"""One pod and thirty pods: our sections beside the Docker floor (pause, app, veth, address by raw calls), interleaved.

Run: ``python -m tests.benchmarks.nodes.docker_floor [pods-in-a-burst] [rounds]``.

Prints medians in milliseconds, the ratio, the CPU of this process for a pass that finds nothing to do, and the load.
The floor uses 8 threads, ours 16.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from minik8s_modules.module_utils.minik8s.core import labels
from minik8s_modules.module_utils.minik8s.network.attachment import mac_of
from minik8s_modules.module_utils.minik8s.network.netlink import Address, Netlink, netns_of
from tests.support.node import TestNode

THREADS = 8
SINGLES = 15
NOTHING = 20


def floor_pod(node: TestNode, number: int) -> None:
    """Make one pod by raw calls."""
    pod, docker = node.pod(number), node.docker
    marks = {labels.NODE: node.name}
    name = f"mk8f-{number}-{os.getpid()}"
    host: dict[str, Any] = {"NetworkMode": "none", "IpcMode": "shareable"}
    pause = docker.create(name + "-pause", {"Image": pod["image"], "Labels": marks, "HostConfig": host})
    docker.start(pause)
    found: Any = docker.inspect(pause)
    there = netns_of(found["State"]["Pid"])
    with Netlink() as outside, Netlink(there) as inside:
        bridge = outside.links()[node.bridge].ifindex
        outside.add_veth(f"mk8f{number}", bridge, 1500, "eth0", there, mac=mac_of(pod["ip"]))
        eth0 = inside.links()["eth0"].ifindex
        inside.set_link(eth0, up=True)
        inside.add_address(Address(eth0, pod["ip"], 24))
        inside.set_default_route(pod["gateway"], eth0)
    joined = {"NetworkMode": f"container:{pause}", "IpcMode": f"container:{pause}"}
    body = {"Image": "minik8s/busybox:1", "Entrypoint": ["sleep", "3600"], "Labels": marks, "HostConfig": joined}
    docker.start(docker.create(name, body))


def floor(node: TestNode, numbers: list[int]) -> None:
    """Make pods by raw calls, 8 at a time."""
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda number: floor_pod(node, number), numbers))


def declared(node: TestNode, numbers: list[int]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the entries of both sections."""
    pods = [node.pod(number) for number in numbers]
    return (
        {pod["pod"]["uid"]: pod for pod in pods},
        {f"{pod['pod']['uid']}/app": node.container(pod) for pod in pods},
    )


def ours(node: TestNode, numbers: list[int]) -> None:
    """Make pods by our sections, without the limit of a pass: the whole burst is measured."""
    sandboxes, containers = declared(node, numbers)
    for section, entries in (("sandboxes", sandboxes), ("containers", containers)):
        result = node.run(section, entries, context={"budget_s": 600.0})
        assert not result["errors"], result["errors"]


def clean(node: TestNode) -> None:
    """Remove every pod."""
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(node.docker.remove, node.ids()))
    with Netlink() as netlink:  # the kernel deletes them too, but only some time after their namespaces
        for link in netlink.links().values():
            if link.name.startswith("mk8f"):
                with contextlib.suppress(OSError):
                    netlink.delete_link(link.ifindex)
    node.run("containers", {})
    node.run("sandboxes", {})


def timed(node: TestNode, make: Callable[[TestNode, list[int]], None], numbers: list[int]) -> float:
    """Return the milliseconds ``make`` took."""
    start = time.perf_counter()
    make(node, numbers)
    spent_ms = (time.perf_counter() - start) * 1000
    clean(node)
    return spent_ms


def compare(node: TestNode, numbers: list[int], rounds: int) -> None:
    """Print the medians of ``rounds`` interleaved rounds."""
    raw, made = [], []
    for turn in range(rounds + 1):
        pair = [timed(node, make, numbers) for make in ((floor, ours) if turn % 2 else (ours, floor))]
        low, high = pair if turn % 2 else reversed(pair)
        if turn:  # the first round warms up
            raw.append(low)
            made.append(high)
    low, high = statistics.median(raw), statistics.median(made)
    print(
        f"{len(numbers):3} pods: floor {low:7.1f} ms, ours {high:7.1f} ms, ratio {high / low:.2f},"
        f" difference {statistics.median(b - a for a, b in zip(raw, made, strict=True)):+.1f} ms, n={rounds}"
    )


def nothing_to_do(node: TestNode, numbers: list[int]) -> None:
    """Print time and CPU of a full pass that finds everything right."""
    ours(node, numbers)
    sandboxes, containers = declared(node, numbers)
    for section, entries in (("network", node.network()), ("sandboxes", sandboxes), ("containers", containers)):
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(NOTHING):
            assert not node.run(section, entries)["changed"]
        wall_ms, cpu_ms = (
            (now - then) * 1000 / NOTHING for now, then in ((time.perf_counter(), wall), (time.process_time(), cpu))
        )
        print(f"{len(numbers):3} pods, nothing to do, {section}: {wall_ms:.1f} ms, {cpu_ms:.1f} ms of CPU")
    clean(node)


def main() -> None:
    """Run and print."""
    burst, rounds = (int(text) for text in (*sys.argv[1:], *("30", "3")[len(sys.argv) - 1 :]))
    with tempfile.TemporaryDirectory() as folder:
        node = TestNode(Path(folder))
        try:
            node.run("network", node.network())
            compare(node, [7], SINGLES)
            compare(node, list(range(7, 7 + burst)), rounds)
            nothing_to_do(node, [7])
            nothing_to_do(node, list(range(7, 7 + burst)))
        finally:
            node.close()
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} CPUs")


if __name__ == "__main__":
    main()
