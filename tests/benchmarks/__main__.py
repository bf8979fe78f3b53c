"""``make bench``: measures every bar on the installed cluster and on private servers, and writes BENCHMARKS.md.

About twenty minutes on a calm machine with two cores, some of them for labs of machines. Rows that compare are
measured in turn with what they are compared with; CPU is the processes' own; load and time stand beside each row, since
walls depend on the load. Store and API server share nothing with the installed cluster: they are measured while that is
idle. ``--idle-minutes 10`` watches the idle cluster for ten minutes instead of two. Groups are measured one after the
other (``make bench ONLY="joining overlay"``: these alone) and kept in .cache/benchmarks.json, so one that fails, or is
stopped, takes nothing from the others; BENCHMARKS.md is written after each.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
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
    joining,
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

REPOSITORY = Path(__file__).resolve().parents[2]
TARGET, KEPT = REPOSITORY / "BENCHMARKS.md", REPOSITORY / ".cache" / "benchmarks.json"
SINGLES, BURSTS = 21, 3
HEAD = """\
# Benchmarks

Written by `make bench`; a bar is the limit this project holds itself to. "Over the floor" compares a pod with the same
pod made by raw calls on the same Docker, in turn, so that both meet the same load. CPU is the processes' own account.

{machine}

## Bars

| bar | limit | value | met or missed | load | measured | how |
|---|---|---|---|---|---|---|
{bars}

## Other figures

| figure | value | load | measured | how |
|---|---|---|---|---|
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
    """A figure, the load average while it was measured, and when that was."""

    figure: Figure
    load: float
    when: str


def rows(measure: Callable[[], Iterable[Measured]], of: str = "") -> list[Row]:
    """Return what ``measure`` finds ``of`` something, with the mean of the loads before and after."""
    before = load()
    print(f"{time.strftime('%H:%M:%S')} load {before:.1f}", flush=True)
    found = [_figure(of, one) for one in measure()]
    mean = (before + load()) / 2
    for figure in found:
        print(figure.line(), flush=True)
    return [Row(figure, mean, f"{datetime.now(UTC):%m-%d %H:%M}") for figure in found]


def _figure(of: str, found: Measured) -> Figure:
    bar: float | None = getattr(found, "bar", None)
    return Figure(of + found.name, found.value, found.unit, bar, getattr(found, "told", ""))


def spine(idle_s: float) -> list[Row]:
    """Return the rows of pods, store and API server, and of the idle cluster."""
    with pods.place() as (bench, node):
        single = rows(lambda: pods.singles(bench, node, SINGLES))
        burst = rows(lambda: pods.bursts(bench, node, BURSTS))
        life = [*rows(lifecycle.measure, "life: "), *rows(probes.measure, "probes: "), *rows(streams.measure)]
        with ThreadPoolExecutor(1) as pool:
            calm = pool.submit(calm_rows, bench, node, idle_s)
            private = [*rows(store.measure, "store: "), *rows(apiserver.measure, "API server: ")]
            private += rows(applying.measure)
            return [*single, *burst, *life, *private, *calm.result()]


GROUPS: Mapping[str, Callable[[float], list[Row]]] = {
    "spine": spine,
    "executor": lambda _: rows(executor.measure, "executor: "),
    "services": lambda _: rows(services.measure, "services: "),
    "reach": lambda _: rows(service_reach.measure, "services: "),
    "names": lambda _: rows(naming.measure, "names: "),
    "controllers": lambda _: rows(controllers.measure),
    "overlay": lambda _: rows(overlay.measure),
    "joining": lambda _: rows(joining.measure),
    "remote": lambda _: rows(remote_start.measure),
    "hundred": lambda _: rows(hundred_nodes.measure),
}


def kept() -> dict[str, list[Row]]:
    """Return the rows that were measured before, by group."""
    if not KEPT.exists():
        return {}
    return {
        group: [Row(Figure(*figure), load_then, when) for figure, load_then, when in found]
        for group, found in json.loads(KEPT.read_text(encoding="utf-8")).items()
    }


def measure_groups(names: Iterable[str], idle_s: float, head: str) -> list[str]:
    """Measure the groups in turn, write after each, and return what failed, a line each."""
    found, failures = kept(), []
    for name in names:
        try:
            found[name] = GROUPS[name](idle_s)
        except Exception as error:  # noqa: BLE001  (whatever ends one group, the others are measured)
            failures.append(f"{name}: {type(error).__name__}: {error}")
            print(failures[-1], flush=True)
            continue
        KEPT.parent.mkdir(exist_ok=True)
        KEPT.write_text(json.dumps(found), encoding="utf-8")
        in_order = [row for group in GROUPS for row in found.get(group, [])]
        TARGET.write_text(document(in_order, head), encoding="utf-8")
    return failures


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
    return f"| {figure.name} | {limit} | {_value(figure)} | {verdict} | {row.load:.1f} | {row.when} | {figure.told} |"


def _other_line(row: Row) -> str:
    return f"| {row.figure.name} | {_value(row.figure)} | {row.load:.1f} | {row.when} | {row.figure.told} |"


def _value(figure: Figure) -> str:
    digits = 2 if abs(figure.value) < 10 else 0
    return f"{figure.value:.{digits}f} {figure.unit}".rstrip()


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--idle-minutes", type=float, default=idle.WINDOW_S / 60)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(GROUPS)}; none: all")
    asked = parser.parse_args()
    if unknown := sorted(set(asked.groups) - set(GROUPS)):
        parser.error(f"no such group: {', '.join(unknown)}; there are {', '.join(GROUPS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended; what was made is removed"))
    failures = measure_groups(asked.groups or GROUPS, asked.idle_minutes * 60, machine())
    print(f"written to {TARGET.name}")
    if failures:
        sys.exit("not measured:\n" + "\n".join(failures))


if __name__ == "__main__":
    main()
