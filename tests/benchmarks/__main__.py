"""``make bench``: measures every bar on the installed cluster and on private servers, and writes BENCHMARKS.md.

About twelve minutes on a calm machine with two cores, some of them for a lab of two machines. Rows that compare are
measured in turn with what they are compared with; CPU is the processes' own; the load stands beside each row, since
walls depend on it. Store and API server share nothing with the installed cluster: they are measured while that is idle.
``--idle-minutes 10`` watches the idle cluster for ten minutes instead of two.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, Protocol

from tests.benchmarks import (
    apiserver,
    applying,
    controllers,
    executor,
    hundred_nodes,
    idle,
    lifecycle,
    naming,
    overlay,
    pods,
    probes,
    remote_start,
    service_reach,
    services,
    store,
    streams,
)
from tests.benchmarks.figures import Figure, load
from tests.support.node import TestNode

TARGET = Path(__file__).resolve().parents[2] / "BENCHMARKS.md"
SINGLES, BURSTS = 21, 3
HEAD = """\
# Benchmarks

Written by `make bench`; the bars are those of the plan. "Over the floor" compares a pod with the same pod made
by raw calls on the same Docker, in turn, so that both meet the same load. CPU is the processes' own account.

{machine}

## Bars

| bar | limit | value | met or missed | load | how |
|---|---|---|---|---|---|
{bars}

## Other figures

| figure | value | load | how |
|---|---|---|---|
{others}
"""


class Measured(Protocol):
    """What every benchmark's own figures have."""

    @property
    def name(self) -> str:
        """What was measured."""

    @property
    def value(self) -> float:
        """How much."""

    @property
    def unit(self) -> str:
        """Of what."""


class Row(NamedTuple):
    """A figure and the load average while it was measured."""

    figure: Figure
    load: float


def rows(measure: Callable[[], Iterable[Measured]], of: str = "") -> list[Row]:
    """Return what ``measure`` finds ``of`` something, with the mean of the loads before and after."""
    before = load()
    print(f"{time.strftime('%H:%M:%S')} load {before:.1f}", flush=True)
    found = [_figure(of, one) for one in measure()]
    mean = (before + load()) / 2
    for figure in found:
        print(figure.line(), flush=True)
    return [Row(figure, mean) for figure in found]


def _figure(of: str, found: Measured) -> Figure:
    bar: float | None = getattr(found, "bar", None)
    return Figure(of + found.name, found.value, found.unit, bar, getattr(found, "told", ""))


def measure_all(idle_s: float) -> list[Row]:
    """Return all rows."""
    with pods.place() as (bench, node):
        single = rows(lambda: pods.singles(bench, node, SINGLES))
        burst = rows(lambda: pods.bursts(bench, node, BURSTS))
        life = [*rows(lifecycle.measure, "life: "), *rows(probes.measure, "probes: "), *rows(streams.measure)]
        with ThreadPoolExecutor(1) as pool:
            calm = pool.submit(calm_rows, bench, node, idle_s)
            private = [
                *rows(store.measure, "store: "),
                *rows(apiserver.measure, "API server: "),
                *rows(applying.measure),
            ]
            idled = calm.result()
    nodes = [*rows(executor.measure, "executor: "), *rows(services.measure, "services: ")]
    nodes += [*rows(service_reach.measure, "services: "), *rows(naming.measure, "names: ")]
    nodes += rows(controllers.measure)
    nodes += [*rows(overlay.measure), *rows(hundred_nodes.measure), *rows(remote_start.measure)]
    return [*single, *burst, *life, *nodes, *private, *idled]


def calm_rows(bench: pods.Bench, node: TestNode, idle_s: float) -> list[Row]:
    """Return the rows of an idle cluster, and of the first pod after that."""
    with idle.ten_pods(bench):
        return [*rows(lambda: idle.measure(idle_s)), *rows(lambda: pods.after_idle(bench, node, idle_s))]


def machine() -> str:
    """Return what was measured on."""
    docker = subprocess.run(
        ["docker", "version", "--format", "{{.Server.Version}}"], capture_output=True, text=True, check=False
    )
    facts = {
        "cores": f"{os.cpu_count()}",
        "kernel": platform.release(),
        "Docker": docker.stdout.strip(),
        "Python": platform.python_version(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "load at the start": f"{load():.1f}",
    }
    return " · ".join(f"{name} {value}" for name, value in facts.items())


def document(found: Iterable[Row], head: str) -> str:
    """Return BENCHMARKS.md."""
    known = list(found)
    bars = [_bar_line(row) for row in known if row.figure.bar is not None]
    others = [_other_line(row) for row in known if row.figure.bar is None]
    return HEAD.format(machine=head, bars="\n".join(bars), others="\n".join(others))


def _bar_line(row: Row) -> str:
    figure = row.figure
    limit = f"≤ {figure.bar:g} {figure.unit}".rstrip()
    verdict = figure.verdict if figure.verdict == "met" else f"**{figure.verdict}**"
    return f"| {figure.name} | {limit} | {_value(figure)} | {verdict} | {row.load:.1f} | {figure.told} |"


def _other_line(row: Row) -> str:
    return f"| {row.figure.name} | {_value(row.figure)} | {row.load:.1f} | {row.figure.told} |"


def _value(figure: Figure) -> str:
    digits = 2 if abs(figure.value) < 10 else 0
    return f"{figure.value:.{digits}f} {figure.unit}".rstrip()


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--idle-minutes", type=float, default=idle.WINDOW_S / 60)
    idle_s = parser.parse_args().idle_minutes * 60
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended; what was made is removed"))
    head = machine()
    TARGET.write_text(document(measure_all(idle_s), head), encoding="utf-8")
    print(f"written to {TARGET.name}")


if __name__ == "__main__":
    main()
