"""What the installed cluster costs while nothing changes: ``python -m tests.benchmarks.idle [--minutes 10]``.

Ten pods run on one node. CPU is read from the processes' own accounts every second (a process that ends keeps its
last reading, children are in the account of whoever buries them) and PSS from the kernel, where the largest sum
counts. The node's timer starts a process a minute; one such run is measured and counted as often as it ran.
An item is seen as CPU of the play's workers; full observations, one in 4 to 6 minutes, are the only ones allowed.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import resource
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.benchmarks.figures import Figure
from tests.benchmarks.nodes.pods import Bench, installed
from tests.support.clusters.installed import NODE_CODE, is_here, part_of

BAR_CPU_PERCENT, BAR_PSS_MB = 3.0, 300.0
PODS, WINDOW_S, SETTLE_S, SAMPLE_S, PSS_EVERY_S = 10, 120.0, 40.0, 1.0, 10.0
TIMER_EVERY_S, OBSERVATION_AT_LEAST_S = 60.0, 240.0
FURTHER = "further apiserver workers"
BESIDE = ("etcd", "dockerd", "containerd", FURTHER)
"""Told beside: not ours, or the machine's; the bars are those of an API server with one worker."""
WATCH_PROGRAMS = {"ip": "monitor", "nft": "monitor", "findmnt": "--poll", "inotifywait": "-m"}
"""What runs on a node for the reconciler for five minutes each, and the word in its arguments that says so.

They count by themselves: when they end, the reconciler buries what they used in all those minutes, most of it before
the window.
"""


class Reading(NamedTuple):
    """What one process had used when it was last looked at."""

    part: str
    cpu_s: float
    workers_s: float


class Account:
    """CPU of all processes that were seen, and the largest PSS of each part."""

    def __init__(self) -> None:
        self._first: dict[tuple[int, float], float] = {}
        self._last: dict[tuple[int, float], Reading] = {}
        self.pss_mb: dict[str, float] = {}
        self.items = 0
        self._working = False

    def sample(self, *, begin: bool = False, memory: bool = False) -> None:
        """Look at all processes once; what was used before the first look counts only for processes that are new."""
        workers_before = self._workers_s()
        pss: dict[str, float] = {}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, IndexError, FileNotFoundError, ProcessLookupError):
                self._look(process, pss, begin=begin, memory=memory)
        working = not begin and self._workers_s() > workers_before
        self.items += working and not self._working
        self._working = working
        if memory and _ours(pss) > _ours(self.pss_mb):
            self.pss_mb = pss

    def _look(self, process: psutil.Process, pss: dict[str, float], *, begin: bool, memory: bool) -> None:
        part = _part(process)
        if not part:
            return
        key = (process.pid, process.create_time())
        times = process.cpu_times()
        buried_s = 0.0 if part == "reconciler" else times.children_user + times.children_system
        self._first.setdefault(key, times.user + times.system + buried_s if begin else 0.0)
        self._last[key] = Reading(part, times.user + times.system + buried_s, buried_s if part == "play" else 0.0)
        if memory:
            pss[part] = pss.get(part, 0.0) + _pss_mb(process.pid)

    def _workers_s(self) -> float:
        return sum(reading.workers_s for reading in self._last.values())

    def cpu_s(self) -> dict[str, float]:
        """Return the seconds of CPU by part since the first look."""
        spent: dict[str, float] = {}
        for key, reading in self._last.items():
            spent[reading.part] = spent.get(reading.part, 0.0) + reading.cpu_s - self._first[key]
        return spent


def _part(process: psutil.Process) -> str:
    if process.name() in {"dockerd", "containerd"}:
        return process.name()
    if found := part_of(process):
        return FURTHER if found == "apiserver worker" and _has_elder(process) else found
    if WATCH_PROGRAMS.get(process.name(), "\0") in process.cmdline() and is_here(process):
        return "watch programs"
    # below the warm interpreter are templates and calls, which look alike but hold no socket of a name
    parent = process.parent()
    return _part(parent) if parent is not None and process.cmdline()[1:] == ["-I", "-"] else ""


def _has_elder(process: psutil.Process) -> bool:
    parent = process.parent()
    return parent is not None and min(each.pid for each in parent.children()) < process.pid


def _pss_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def _ours(by_part: dict[str, float]) -> float:
    return sum(value for part, value in by_part.items() if part not in BESIDE)


def timer_cpu_s() -> float:
    """Return the seconds of CPU of one run of the node's own timer."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": str(NODE_CODE)}
    subprocess.run(["/usr/bin/python3", "-m", "minik8s.reapply"], env=environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def watch(window_s: float) -> Account:
    """Return what all processes used in the next ``window_s`` seconds."""
    account = Account()
    account.sample(begin=True, memory=True)
    began, at_s = time.monotonic(), 0.0
    memory_at_s = PSS_EVERY_S
    while at_s < window_s:
        time.sleep(SAMPLE_S)
        at_s = time.monotonic() - began
        account.sample(memory=at_s >= memory_at_s)
        memory_at_s += PSS_EVERY_S if at_s >= memory_at_s else 0
    return account


def figures_of(account: Account, window_s: float, timer_s: float) -> list[Figure]:
    """Return the rows of one window."""
    text = f"{PODS} pods, {window_s:g} s"
    spent = {part: cpu_s / window_s * 100 for part, cpu_s in account.cpu_s().items()}
    spent["the node's timer"] = timer_s / TIMER_EVERY_S * 100
    observations = math.ceil(window_s / OBSERVATION_AT_LEAST_S)
    return [
        Figure("idle: CPU of ours", _ours(spent), "% of a core", BAR_CPU_PERCENT, f"{text}: {_listed(spent, 2)}"),
        Figure("idle: PSS of ours", _ours(account.pss_mb), "MB", BAR_PSS_MB, f"{text}: {_listed(account.pss_mb, 0)}"),
        Figure("idle: items sent (full observations only)", account.items, "", observations, text),
        *(Figure(f"idle: CPU of {one}", spent.get(one, 0.0), "% of a core", None, text) for one in BESIDE),
        *(Figure(f"idle: PSS of {one}", account.pss_mb.get(one, 0.0), "MB", None, text) for one in BESIDE),
    ]


def _listed(by_part: dict[str, float], digits: int) -> str:
    ours: Iterable[tuple[str, float]] = sorted(by_part.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{part} {value:.{digits}f}" for part, value in ours if part not in BESIDE)


@contextlib.contextmanager
def ten_pods(bench: Bench) -> Iterator[None]:
    """Have ten pods running and all calm; they are gone afterwards."""
    _, names = bench.run(PODS)
    time.sleep(SETTLE_S)
    yield
    bench.remove(names)


def measure(window_s: float = WINDOW_S) -> list[Figure]:
    """Measure a window in which nobody asks for anything."""
    return figures_of(watch(window_s), window_s, timer_cpu_s())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=WINDOW_S / 60)
    bench = Bench(installed())
    try:
        with ten_pods(bench):
            for figure in measure(parser.parse_args().minutes * 60):
                print(figure.line())
    finally:
        bench.close()


if __name__ == "__main__":
    main()
