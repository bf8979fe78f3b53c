"""``make bench``: measures every bar on the installed cluster and on private servers, and writes BENCHMARKS.md.

Some 50 minutes on a calm machine with two cores, some of them for labs of machines. Rows that compare are
measured in turn with what they are compared with; CPU is the processes' own; load, time and the machine's factor stand
beside each row, since walls depend on the load. ``--idle-minutes 10`` watches the idle cluster for ten minutes at
least, instead of from one observation of its node to the next.

BENCHMARKS.md is what one run found, a run being a commit: rows are kept in .cache/benchmarks.json with the commit that
they are of, and dropped when a whole run of another one begins. Groups are measured one after the other, and one that
fails, or is stopped, takes nothing from the others. ``make bench ONLY="joining overlay"`` measures these alone: it
completes the run of this commit, or renews these rows of a former one, whose other rows then say which they are of. The
file is written when every group has been tried, and only from a commit: figures of changes that are in none are printed
alone. ``make bench-quick`` measures for some minutes what needs no lab, prints it, and writes nothing. Both end with
what has become slower since the committed run, by the machine's factor.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, Protocol

from tests.benchmarks import idle, peer, scheduler_peer
from tests.benchmarks.deciding import autoscaling, claims, controllers, monitoring, scheduling
from tests.benchmarks.figures import Figure, load
from tests.benchmarks.machine import Run, python_s, run_now
from tests.benchmarks.network import (
    mesh,
    naming,
    overlay,
    policies,
    service_reach,
    services,
    sidecar_latency,
    sidecar_memory,
)
from tests.benchmarks.nodes import (
    applying,
    executor,
    guests,
    hundred_nodes,
    joining,
    lifecycle,
    mounting,
    pods,
    probes,
    remote_start,
    slurm_jobs,
)
from tests.benchmarks.report import Row, compare, comparison, document, measured, read
from tests.benchmarks.server import apiserver, asking, custom_kinds, expressions, failover, store, streams

REPOSITORY = Path(__file__).resolve().parents[2]
TARGET, KEPT = REPOSITORY / "BENCHMARKS.md", REPOSITORY / ".cache" / "benchmarks.json"
SINGLES, BURSTS, QUICK_SINGLES, QUICK_BURSTS = 21, 3, 7, 1


class Found(Protocol):
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


def rows(measure: Callable[[], Iterable[Found]], of: str = "") -> list[Row]:
    """Return what ``measure`` finds ``of`` something, with the machine's factor and the mean of its loads."""
    before, factor = load(), python_s()
    print(f"{time.strftime('%H:%M:%S')} load {before:.1f}, factor {factor:.3f} s", flush=True)
    found = [_figure(of, one) for one in measure()]
    mean = (before + load()) / 2
    for figure in found:
        print(figure.line(), flush=True)
    return [Row(figure, mean, f"{datetime.now(UTC):%m-%d %H:%M}", factor) for figure in found]


def _figure(of: str, found: Found) -> Figure:
    bar: float | None = getattr(found, "bar", None)
    return Figure(of + found.name, found.value, found.unit, bar, getattr(found, "note", ""))


def of_pods(_: float) -> list[Row]:
    """Return the rows of Pods, one at a time and many at once, and of their streams."""
    with pods.place() as (bench, node):
        single = rows(lambda: pods.singles(bench, node, SINGLES))
        burst = rows(lambda: pods.bursts(bench, node, BURSTS))
        life = [*rows(lifecycle.measure, "life: "), *rows(probes.measure, "probes: "), *rows(streams.measure)]
        return [*single, *burst, *life]


def of_idleness(idle_s: float) -> list[Row]:
    """Return the rows of store and API server, and then of the idle cluster, and of the first pod after that."""
    private = [*private_rows(0), *rows(applying.measure)]
    with pods.place() as (bench, node), idle.ten_pods(bench):
        calm = rows(lambda: idle.measure(idle_s))
        return [*private, *calm, *rows(lambda: pods.after_idle(bench, node, idle_s))]


def private_rows(_: float) -> list[Row]:
    """Return the rows of store and API server, on servers of their own."""
    return [*rows(store.measure, "store: "), *rows(apiserver.measure, "API server: ")]


def quick_pods(_: float) -> list[Row]:
    """Return the rows of pods, from fewer of them."""
    with pods.place() as (bench, node):
        single = rows(lambda: pods.singles(bench, node, QUICK_SINGLES))
        return [*single, *rows(lambda: pods.bursts(bench, node, QUICK_BURSTS))]


Group = Callable[[float], list[Row]]
GROUPS: Mapping[str, Group] = {
    "pods": of_pods,
    "idle": of_idleness,
    "executor": lambda _: rows(executor.measure, "executor: "),
    "services": lambda _: rows(services.measure, "services: "),
    "policies": lambda _: rows(policies.measure, "policies: "),
    "reach": lambda _: rows(service_reach.measure, "services: "),
    "mesh": lambda _: [row for each in (mesh, sidecar_memory, sidecar_latency) for row in rows(each.measure, "mesh: ")],
    "names": lambda _: rows(naming.measure, "names: "),
    "expressions": lambda _: rows(expressions.measure, "CEL: "),
    "custom": lambda _: rows(custom_kinds.measure, "custom kinds: "),
    "controllers": lambda _: rows(controllers.measure),
    "claims": lambda _: rows(claims.measure),
    "mounting": lambda _: rows(mounting.measure),
    "scheduling": lambda _: rows(scheduling.measure, "scheduling: "),
    "autoscaling": lambda _: rows(autoscaling.measure, "autoscaling: "),
    "monitoring": lambda _: rows(monitoring.measure, "monitoring: "),
    "overlay": lambda _: rows(overlay.measure),
    "joining": lambda _: rows(joining.measure),
    "failover": lambda _: rows(failover.measure),
    "asking": lambda _: rows(asking.measure, "asking: "),
    "remote": lambda _: rows(remote_start.measure),
    "slurm": lambda _: rows(slurm_jobs.measure),
    "guests": lambda _: rows(guests.measure, "virtual machines: "),
    "hundred": lambda _: rows(hundred_nodes.measure),
    "peer": lambda _: rows(peer.measure, "API server: "),
    "scheduler-peer": lambda _: rows(scheduler_peer.measure, "scheduling: "),
}
QUICK: Mapping[str, Group] = {
    "pods": quick_pods,
    "private": private_rows,
    **{name: GROUPS[name] for name in ("executor", "services", "mesh", "names", "expressions", "controllers", "peer")},
}


class Kept(NamedTuple):
    """What one run has measured so far, by group, and why the groups that failed have no rows."""

    run: Run
    groups: dict[str, list[Row]]
    failures: dict[str, str]

    @property
    def rows(self) -> list[Row]:
        """All rows, in the groups' order."""
        return [row for group in {**GROUPS, **QUICK} for row in self.groups.get(group, [])]


def begun(run: Run, *, whole: bool) -> Kept:
    """Return what was kept of this commit's run; of another one only where no ``whole`` run begins."""
    if not run.commit or not KEPT.exists():
        return Kept(run, {}, {})
    told = json.loads(KEPT.read_text(encoding="utf-8"))
    former = told.get("commit") or "unknown"
    if former != run.commit and whole:
        print(f"rows of another run are dropped: of commit {former}, this is {run.commit}")
        return Kept(run, {}, {})
    groups = {
        group: [Row(Figure(*figure), *circumstances) for figure, *circumstances in found]
        for group, found in told["groups"].items()
    }
    if former != run.commit:
        print(f"rows of groups that are not measured now stay: of commit {former}, this is {run.commit}")
        groups = {group: [row.of(former) for row in found] for group, found in groups.items()}
    return Kept(run, groups, {group: why for group, why in told["failures"].items() if group in GROUPS})


def keep(kept: Kept) -> None:
    """Keep the rows of a commit for the rest of its run; write BENCHMARKS.md once every group was tried."""
    if not kept.run.commit:
        return
    KEPT.parent.mkdir(exist_ok=True)
    told = {"commit": kept.run.commit, "groups": kept.groups, "failures": kept.failures}
    KEPT.write_text(json.dumps(told), encoding="utf-8")
    if not missing(kept):
        failed = [f"{group}: {why}" for group, why in kept.failures.items()]
        TARGET.write_text(document(kept.rows, kept.run, failed), encoding="utf-8")


def missing(kept: Kept) -> list[str]:
    """Return the groups that nobody has tried to measure yet."""
    return [name for name in GROUPS if name not in kept.groups and name not in kept.failures]


def measure_groups(kept: Kept, groups: Mapping[str, Group], idle_s: float, then: Callable[[Kept], None]) -> None:
    """Measure the groups in turn, each followed by ``then``; what a group ends with is no concern of the others."""
    for name, measure in groups.items():
        kept.failures.pop(name, None)
        try:
            kept.groups[name] = measure(idle_s)
        except Exception as error:  # noqa: BLE001  (whatever ends one group, the others are measured)
            kept.groups.pop(name, None)
            kept.failures[name] = f"{type(error).__name__}: {error}"
            print(f"{name}: {kept.failures[name]}", flush=True)
        then(kept)


def committed() -> str:
    """Return BENCHMARKS.md as it is committed; "" where it is not."""
    argv = ["git", "-C", str(REPOSITORY), "show", f"HEAD:{TARGET.name}"]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout


def outcome(kept: Kept) -> str:
    """Return what a run of ``make bench`` ends with."""
    if not kept.run.commit:
        return f"{TARGET.name} is not written: there are changes that are in no commit"
    if left := missing(kept):
        return f'{TARGET.name} is not written until the run is complete: make bench ONLY="{" ".join(left)}"'
    return f"written to {TARGET.name}"


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--idle-minutes", type=float, default=idle.WINDOW_S / 60)
    parser.add_argument("--quick", action="store_true", help="what needs no lab, for some minutes; writes nothing")
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(GROUPS)}; none: all")
    asked = parser.parse_args()
    known = QUICK if asked.quick else GROUPS
    if unknown := sorted(set(asked.groups) - set(known)):
        parser.error(f"no such group: {', '.join(unknown)}; there are {', '.join(known)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended; what was made is removed"))
    run = run_now()
    print(run.opening(), flush=True)
    kept = Kept(run, {}, {}) if asked.quick else begun(run, whole=not asked.groups)
    wanted = {name: known[name] for name in asked.groups or known}
    measure_groups(kept, wanted, asked.idle_minutes * 60, (lambda _: None) if asked.quick else keep)
    print(comparison(compare(read(committed()), measured(kept.rows))))
    if not asked.quick:
        print(outcome(kept))
    if kept.failures:
        sys.exit("not measured:\n" + "\n".join(f"{group}: {why}" for group, why in kept.failures.items()))


if __name__ == "__main__":
    main()
