"""What the installed cluster costs while nothing changes: ``python -m tests.benchmarks.idle [--minutes 10]``.

Ten pods run on one node, which is observed fully every 4 to 6 minutes. So the window begins when what an observation
has started has ended, and ends so, too: it has as many observations as periods, at least one. CPU is read from the
processes' own accounts every second (a process that ends keeps its last reading, children are in the account of whoever
buries them). PSS is the kernel's, every ten seconds and every second of an observation: the bar is for the largest sum,
and beside it stands the mean between observations. The node's timer starts a process a minute; one such run is measured
and counted as often as it ran. An item is seen as CPU of the play's workers; only full observations are allowed.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import statistics
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.benchmarks.figures import Figure
from tests.benchmarks.nodes.pods import Bench, installed
from tests.support.clusters.installed import NODE_CODE, RUN, is_here, part_of

BAR_CPU_PERCENT, BAR_PSS_MB = 1.0, 280.0
PODS, SAMPLE_S, PSS_EVERY_S = 10, 1.0, 10.0
SETTLE_S = 75.0
"""What a node tells late of the pods' start has it looked at again within 15 s, maybe twice, and the interpreter of
that stays for 30 s. It would be taken for the observation with which the window begins."""
TIMER_EVERY_S, OBSERVATION_AT_LEAST_S, OBSERVATION_AT_MOST_S = 60.0, 240.0, 360.0
WINDOW_S = OBSERVATION_AT_LEAST_S
"""At least: one period."""
OBSERVING = {"play worker", "warm interpreter"}
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
    """CPU of all processes that were seen, PSS of each part when the sum was largest, and sums between observations."""

    def __init__(self) -> None:
        self._first: dict[tuple[int, float], float] = {}
        self._last: dict[tuple[int, float], Reading] = {}
        self.pss_mb: dict[str, float] = {}
        self.between_mb: list[float] = []
        self.items = 0
        self.observations = 0
        """That ended."""
        self.observes = False
        self._working = False

    def sample(self, *, begin: bool = False, memory: bool = False) -> None:
        """Look at all processes once; what was used before the first look counts only for processes that are new.

        Their memory is looked at when it is asked for, and while the node is observed.
        """
        workers_before = self._workers_s()
        found: dict[int, str] = {}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, IndexError, FileNotFoundError, ProcessLookupError):
                if part := _part(process):
                    self._look(process, part, begin=begin)
                    found[process.pid] = part
        working = not begin and self._workers_s() > workers_before
        self.items += working and not self._working
        self._working = working
        self.observes = bool(OBSERVING.intersection(found.values()))
        if memory or self.observes:
            self._weigh(found)

    def _look(self, process: psutil.Process, part: str, *, begin: bool) -> None:
        key = (process.pid, process.create_time())
        times = process.cpu_times()
        buried_s = 0.0 if part == "reconciler" else times.children_user + times.children_system
        self._first.setdefault(key, times.user + times.system + buried_s if begin else 0.0)
        self._last[key] = Reading(part, times.user + times.system + buried_s, buried_s if part == "play" else 0.0)

    def _weigh(self, parts: dict[int, str]) -> None:
        pss: dict[str, float] = {}
        for pid, part in parts.items():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                pss[part] = pss.get(part, 0.0) + _pss_mb(pid)
        if not self.observes:
            self.between_mb.append(_ours(pss))
        if _ours(pss) > _ours(self.pss_mb):
            self.pss_mb = pss

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
    """Return the seconds of CPU of one run of the node's own timer, which finds a touch since the one before."""
    attended = RUN / "attended"
    touched, deadline = attended.stat().st_mtime, time.monotonic() + TIMER_EVERY_S
    while attended.stat().st_mtime == touched and time.monotonic() < deadline:
        time.sleep(SAMPLE_S)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": str(NODE_CODE)}
    argv = ["/bin/sh", str(NODE_CODE / "minik8s" / "reapply.sh"), str(RUN)]
    subprocess.run(argv, env=environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def watch(window_s: float) -> tuple[Account, float]:
    """Return what all processes used in ``window_s`` seconds at least, and in how many: whole periods of observations.

    Raises:
        TimeoutError: the node is not observed.
    """
    until_observed(Account(), 0.0)
    time.sleep(PSS_EVERY_S)  # what ends with an observation has been buried then
    account = Account()
    account.sample(begin=True, memory=True)
    return account, until_observed(account, window_s)


def until_observed(account: Account, least_s: float) -> float:
    """Take samples until an observation has ended, ``least_s`` from now at the earliest; return after how many seconds.

    Raises:
        TimeoutError: the node is not observed.
    """
    began, at_s = time.monotonic(), 0.0
    memory_at_s = PSS_EVERY_S
    while at_s < least_s + OBSERVATION_AT_MOST_S + SETTLE_S:
        time.sleep(SAMPLE_S)
        at_s, observed = time.monotonic() - began, account.observes
        account.sample(memory=at_s >= memory_at_s)
        memory_at_s += PSS_EVERY_S if at_s >= memory_at_s else 0
        if observed and not account.observes:
            account.observations += 1
            if at_s >= least_s:
                return at_s
    raise TimeoutError(f"the node was not observed within {at_s:.0f} s")


def figures_of(account: Account, window_s: float, timer_s: float) -> list[Figure]:
    """Return the rows of one window."""
    text = f"{PODS} pods, {window_s:.0f} s"
    between_mb = statistics.mean(account.between_mb) if account.between_mb else 0.0
    spent = {part: cpu_s / window_s * 100 for part, cpu_s in account.cpu_s().items()}
    spent["the node's timer"] = timer_s / TIMER_EVERY_S * 100
    # any item looks like an observation while it runs: no more of these end in a window than it has periods
    allowed, seen = max(1, int(window_s // OBSERVATION_AT_LEAST_S)), f"{account.observations} that ended"
    return [
        Figure("idle: CPU of ours", _ours(spent), "% of a core", BAR_CPU_PERCENT, f"{text}: {_listed(spent, 2)}"),
        Figure("idle: PSS of ours", _ours(account.pss_mb), "MB", BAR_PSS_MB, f"{text}: {_listed(account.pss_mb, 0)}"),
        Figure("idle: PSS of ours between observations", between_mb, "MB", None, f"{text}, mean"),
        Figure("idle: items sent (full observations only)", account.items, "", allowed, f"{text}, {seen}"),
        *(Figure(f"idle: CPU of {one}", spent.get(one, 0.0), "% of a core", None, text) for one in BESIDE),
        *(Figure(f"idle: PSS of {one}", account.pss_mb.get(one, 0.0), "MB", None, text) for one in BESIDE),
    ]


def _listed(by_part: dict[str, float], digits: int) -> str:
    ours: Iterable[tuple[str, float]] = sorted(by_part.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{part} {value:.{digits}f}" for part, value in ours if part not in BESIDE)


@contextlib.contextmanager
def ten_pods(bench: Bench) -> Iterator[None]:
    """Have ten pods running; they are gone afterwards."""
    _, names = bench.run(PODS)
    yield
    bench.remove(names)


def measure(window_s: float = WINDOW_S) -> list[Figure]:
    """Measure a window in which nobody asks for anything, once all is calm; ``window_s`` and one period at least."""
    time.sleep(SETTLE_S)
    return figures_of(*watch(window_s), timer_cpu_s())


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
