"""What services cost a node: ``python -m tests.benchmarks.network.services [--no-lab]``.

nftables in a network namespace of this machine; IPVS on a lab node with a kernel of its own. Each figure is of one
pass of ``minik8s_services`` without Ansible around it: options checked, rules read, compared and written, entries kept.
CPU is the pass's own, kernel included: walls on a shared machine tell of others. First packets are timed with 10 and
with 10,000 services in turn, and the median of the ratios counts: one burst in five takes half as long again, with few
services as with many. The ratio of the least times, which a cost that comes and goes would not show in, is told beside.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from typing import Any

from tests.benchmarks.figures import Figure
from tests.integration.services.machines import PODS, Machine, namespace, on_lab
from tests.lab.lab import Lab

COLD = ((10_000, 2, 1.5), (44_000, 1, 4.0), (5_000, 50, 10.0))
ONE_MORE_MS, IPVS_ONE_MORE_MS, FIRST_PACKET = 40.0, 20.0, 1.2
ROUNDS, TIMES, PACKETS = 3, 5, 200
REAL = {"protocol": "UDP", "address": "100.0.253.9", "port": 53, "endpoints": [[PODS["pod2"], 9090]]}


def load(machine: Machine, services: int, each: int, more: int = 0) -> Any:
    """Have the machine converge on so many services; return what it took."""
    plane = {**machine.plane, "service_cidr": "100.0.0.0/8"}
    options = {"plane": plane, "folder": machine.folder, "services": services, "each": each, "more": more}
    return machine.call("many", **options, real={"default/real:53": REAL})


def cold(machine: Machine) -> Iterator[Figure]:
    """Yield the cold loads."""
    for services, each, bar_s in COLD:
        machine.pass_(entries={})
        found = load(machine, services, each)
        text = f"wall {found['wall_s']:.2f} s"
        yield Figure(f"cold load of {services:,} x {each}, CPU", found["cpu_s"], "s", bar_s, text)


def one_more(machine: Machine, services: int, bar_ms: float) -> Iterator[Figure]:
    """Yield the cost of one service more, and that its transaction does not grow."""
    found = load(machine, services, 2, more=9)["more"]
    cpu_ms = statistics.median(one["cpu_ms"] for one in found)
    text = f"wall {statistics.median(one['wall_ms'] for one in found):.1f} ms, n={len(found)}"
    yield Figure(f"one more among {services:,}, CPU", cpu_ms, "ms", bar_ms, text)
    few = load(machine, 10, 2, more=9)["more"]
    sizes = [statistics.median(one["sent"] for one in some) for some in (found, few)]
    text = f"{sizes[0]:.0f} bytes among {services:,}, {sizes[1]:.0f} among 10"
    yield Figure("what it sends to the kernel, ratio to 10 services", sizes[0] / sizes[1], "x", 1.0, text)


def first_packet(machine: Machine) -> Figure:
    """Return the first packet's time at 10,000 services over that at 10, measured in turn."""
    machine.call("pods", bridge="mk8s-br0", gateway="10.32.0.1", pods={"pod2": PODS["pod2"]})
    times: dict[int, list[float]] = {10: [], 10_000: []}
    asked = {"address": REAL["address"], "port": 53, "count": PACKETS}
    for _ in range(ROUNDS):
        for services, found in times.items():
            load(machine, services, 2)
            found += [statistics.median(machine.call("first", **asked)) for _ in range(TIMES)]
    return in_turns(times[10], times[10_000])


def in_turns(few_us: list[float], many_us: list[float]) -> Figure:
    """Return the figure of times that were taken in turns."""
    ratios = [many / few for few, many in zip(few_us, many_us, strict=True)]
    few, many = min(few_us), min(many_us)
    text = f"median of {len(ratios)} ratios of medians of {PACKETS}; least {many:.1f} us, {few:.1f} us at 10: "
    name, ratio = "first packet at 10,000, ratio to 10", statistics.median(ratios)
    return Figure(name, ratio, "x", FIRST_PACKET, f"{text}{many / few:.2f} x")


def measure(*, lab: bool = True) -> Iterator[Figure]:
    """Yield all figures."""
    with namespace("nftables") as machine:
        # the bridge is all that a pass needs of the pod network
        machine.shell(["sh", "-c", "ip link set lo up; ip link add mk8s-br0 type bridge; ip link set mk8s-br0 up"])
        machine.shell(["ip", "addr", "add", "10.32.0.1/24", "dev", "mk8s-br0"])
        yield from cold(machine)
        yield from one_more(machine, 10_000, ONE_MORE_MS)
        yield first_packet(machine)
    if lab:
        with Lab("benchipvs") as machines:
            machines.up(1, "uml")
            yield from (
                Figure(f"IPVS: {one.name}", one.value, one.unit, one.bar, one.note)
                for one in one_more(on_lab(machines, "node1", "ipvs"), 1_000, IPVS_ONE_MORE_MS)
            )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.network.services", description=__doc__)
    parser.add_argument("--no-lab", action="store_true", help="leave out what needs a lab node")
    for figure in measure(lab=not parser.parse_args().no_lab):
        print(figure.line(), flush=True)


if __name__ == "__main__":
    main()
