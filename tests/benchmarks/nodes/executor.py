"""Figures of the executor: ``python -m tests.benchmarks.nodes.executor``, about 30 seconds, local nodes only.

CPU is everything an item costs here: the runner in this process, the play with its workers, and the node's warm
interpreter with the module. Sections are the tests' probe (the executor's own cost), then three real modules with
nothing declared on a node of that name (observation through the Docker socket included).
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from minik8s_modules.reconcile.executor.runner import PLAYBOOK
from minik8s_modules.reconcile.values.items import SectionRequest, WorkItem
from tests.integration.executor.conftest import LOCAL, Lab, Sshd, wait_for

BAR_FIRST_CPU_MS, BAR_FURTHER_CPU_MS = 50.0, 40.0
ITEMS = 60


class Figure(NamedTuple):
    """One measured value, and the bar it is held to where there is one."""

    name: str
    value: float
    unit: str
    bar: float | None = None


class Cost(NamedTuple):
    """What one item of a series took: CPU of all processes, and the median wall time."""

    cpu_ms: float
    wall_p50_ms: float


def measure() -> list[Figure]:
    """Start runners over local nodes, measure, end everything."""
    nodes = {f"n{number}": LOCAL for number in range(20)}
    figures = []
    with_lab = Lab(nodes, forks=8, environment={"MINIK8S_WARM_IDLE_S": "30"})
    try:
        figures += [*start(with_lab), *sections(with_lab, "probe", probe), *burst(with_lab)]
        figures += [first_after_idle(with_lab, "probe", functools.partial(probe, with_lab, 1))]
        figures += large(with_lab)
    finally:
        with_lab.close()
    figures += [*over_ssh(), *by_strategy()]
    real = Lab({f"bench-{uuid.uuid4().hex[:8]}": LOCAL}, playbook=PLAYBOOK)
    try:
        real.runner.start()
        figures += sections(real, "real modules", modules)
        figures += [first_after_idle(real, "three real modules", functools.partial(modules, real, 3))]
    finally:
        real.close()
    return figures


def start(lab: Lab) -> list[Figure]:
    """Measure from nothing to the first outcome, once."""
    begin = time.perf_counter()
    lab.runner.start()
    lab.run(first={})
    return [Figure("start of the run and its first item", (time.perf_counter() - begin) * 1e3, "ms")]


def probe(lab: Lab, count: int) -> None:
    """Run one no-op item of ``count`` probe sections."""
    names = ("first", "second", "third")[:count]
    nothing: dict[str, Any] = {}
    assert lab.outcome(lab.submit(lab.nodes[0], check=False, **dict.fromkeys(names, nothing))).status == "ok"


def modules(lab: Lab, count: int) -> None:
    """Run one no-op item of ``count`` real sections."""
    node = lab.nodes[0]
    request = SectionRequest({"entries": {}, "state_dir": str(lab.files), "run_dir": str(lab.files)})
    names = ("containers", "sandboxes", "volumes")[:count]
    item = WorkItem(uuid.uuid4().hex, node, check=False, token=(1, 1), sections=dict.fromkeys(names, request))
    lab.runner.submit(item)
    outcome = lab.outcome(item.id)
    assert outcome.status == "ok", outcome


def sections(lab: Lab, what: str, run: Callable[[Lab, int], None]) -> list[Figure]:
    """Measure no-op items of one and of three sections."""
    one, three = (series(lab, functools.partial(run, lab, count)) for count in (1, 3))
    return [
        Figure(f"no-op item of one section, {what}: CPU", one.cpu_ms, "ms", BAR_FIRST_CPU_MS),
        Figure(f"no-op item of one section, {what}: wall p50", one.wall_p50_ms, "ms"),
        Figure(f"each further section, {what}: CPU", (three.cpu_ms - one.cpu_ms) / 2, "ms", BAR_FURTHER_CPU_MS),
        Figure(f"each further section, {what}: wall p50", (three.wall_p50_ms - one.wall_p50_ms) / 2, "ms"),
    ]


def series(lab: Lab, run: Callable[[], None], count: int = ITEMS) -> Cost:
    """Run items one after the other, after two that warm up."""
    for _ in range(2):
        run()
    before, times = cpu_s(lab), []
    for _ in range(count):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    time.sleep(0.1)  # the last worker's end
    return Cost((cpu_s(lab) - before) / count * 1e3, statistics.median(times) * 1e3)


def cpu_s(lab: Lab) -> float:
    """Return the CPU seconds of this process, the play and the interpreter, with the children they have buried."""
    server = psutil.Process(lab.interpreter())
    processes = [psutil.Process(), lab.play, server, *server.children(recursive=True)]
    total = 0.0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):  # a call that has just ended; its parent has its time
            total += sum(process.cpu_times()[:4])
    return total


def first_after_idle(lab: Lab, what: str, run: Callable[[], None]) -> Figure:
    """Measure an item that has to start the interpreter, which an idle node does not have."""
    times = []
    for _ in range(5):
        pid = lab.interpreter()
        children = psutil.Process(pid).children(recursive=True)
        os.kill(pid, signal.SIGKILL)
        psutil.wait_procs(children, timeout=5)
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return Figure(f"first item after idleness, {what}: wall p50", statistics.median(times) * 1e3, "ms")


def by_strategy() -> list[Figure]:
    """Measure the probe with the strategy plugin, to compare with what is there by default."""
    lab = Lab(executor="strategy")
    try:
        lab.runner.start()
        return [figure._replace(bar=None) for figure in sections(lab, "probe, by the strategy plugin", probe)]
    finally:
        lab.close()


def over_ssh() -> list[Figure]:
    """Measure a node behind an sshd on this machine; the sshd's and the ssh master's CPU is not in it."""
    with tempfile.TemporaryDirectory(prefix="mk8s-sshd-") as home:
        sshd = Sshd(Path(home))
        lab = Lab({"s0": sshd.host()})
        try:
            lab.runner.start()
            wait_for(lambda: lab.runner._current, "the run")
            begin = time.perf_counter()
            probe(lab, 1)
            contact_ms = (time.perf_counter() - begin) * 1e3
            item = series(lab, functools.partial(probe, lab, 1))
            idle = first_after_idle(lab, "probe over ssh", functools.partial(probe, lab, 1))
        finally:
            lab.close()
            sshd.close()
    return [
        Figure("first contact over ssh: wall", contact_ms, "ms"),
        Figure("no-op item of one section over ssh: wall p50", item.wall_p50_ms, "ms"),
        Figure("no-op item of one section over ssh: CPU", item.cpu_ms, "ms", BAR_FIRST_CPU_MS),
        idle,
    ]


def burst(lab: Lab) -> list[Figure]:
    """Measure one item for each of 20 nodes at once."""
    walls, before = [], cpu_s(lab)
    for _ in range(5):
        begin = time.perf_counter()
        items = [lab.submit(node, first={}) for node in lab.nodes]
        assert {lab.outcome(item).status for item in items} == {"ok"}
        walls.append(time.perf_counter() - begin)
    time.sleep(0.1)
    cpu_ms = (cpu_s(lab) - before) * 1e3 / 5 / len(lab.nodes)
    return [
        Figure("20 nodes at once: wall p50", statistics.median(walls) * 1e3, "ms"),
        Figure("20 nodes at once: CPU an item", cpu_ms, "ms"),
    ]


def large(lab: Lab) -> list[Figure]:
    """Measure a full section of 110 pods (about 100 KB of options) that comes back unchanged."""
    entry: dict[str, Any] = {
        "image": "minik8s/busybox:1",
        "env": [[f"NAME_{number}", "x" * 20] for number in range(20)],
    }
    entries = {f"{number:036d}/app": entry for number in range(110)}
    options = {"big_bytes": 50_000, "node": "n0", "mode": "full", "base": entries}
    cost = series(lab, lambda: run_large(lab, options), 20)
    return [Figure("item with 100 KB of options and 50 KB of result: CPU", cost.cpu_ms, "ms")]


def run_large(lab: Lab, options: dict[str, Any]) -> None:
    """Run one such item."""
    assert lab.run(first=options).status == "ok"


def main() -> None:
    """Print the figures with their bars and the machine's load."""
    for figure in measure():
        verdict = (
            "" if figure.bar is None else f"bar {figure.bar:.0f}: {'met' if figure.value <= figure.bar else 'MISSED'}"
        )
        print(f"{figure.name:<62} {figure.value:8.1f} {figure.unit} {verdict}")
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
