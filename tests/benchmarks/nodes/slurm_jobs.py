"""``python -m tests.benchmarks.nodes.slurm_jobs [JOBS]``: a real Slurm's queue, followed over ssh as a site has it.

How long it takes from a Pod to what Slurm says of its job, and what it costs to follow thousands of jobs that wait:
CPU of this process with Ansible's and ssh's, and of what our user runs on the login machine: the module, and the
commands by which it asks Slurm. Slurm's own daemons, which this benchmark starts as well, are counted on neither side.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from minik8s_modules.api import objects
from minik8s_modules.api.pods.slurm import IMAGE
from minik8s_modules.virtual.contract import NoResources, new_pod
from minik8s_modules.virtual.provider import InitConfig
from minik8s_modules.virtual.providers.slurm.provider import SlurmProvider
from tests.benchmarks.figures import Figure
from tests.support.servers.slurm import STUDENTS_ID, Slurm, running
from tests.support.waiting import until

JOBS, TIMES, WINDOW_S, PATIENCE_S = 2000, 6, 60.0, 1200.0
SEEN_S, SHARE = 2.0, 2.0
WARM = {"ansible_connection": "warm_ssh", "minik8s_warm_as_root": False}


def pod(name: str) -> dict[str, Any]:
    container = {"name": "app", "image": IMAGE, "command": ["true"], "resources": {"requests": {"memory": "10Mi"}}}
    return new_pod(name, restartPolicy="Never", containers=[container])


def measure(jobs: int = JOBS) -> list[Figure]:
    """Return the delay and the share of a core."""
    folder = Path(tempfile.mkdtemp(prefix="slurm-bench-"))
    try:
        with running(folder / "slurm") as slurm:
            inventory = slurm.inventory(minik8s_warm_directory="/tmp/minik8s-warm-{uid}", **WARM)
            fields = {"inventory": str(inventory), "partition": "batch"}
            provider = SlurmProvider(InitConfig("bench", NoResources(), fields, state_dir=str(folder / "s")))
            try:
                return [*_seen(provider), *_followed(provider, slurm, jobs)]
            finally:
                provider.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _seen(provider: SlurmProvider) -> Iterator[Figure]:
    """Yield how long it takes until Slurm's word of a new job is told."""
    told: dict[str, float] = {}

    def notify(changed: dict[str, Any]) -> None:
        waiting = objects.dig(changed, "status", "containerStatuses", 0, "state", "waiting", "reason")
        if waiting != "Submitting":
            told.setdefault(objects.uid(changed), time.monotonic())

    provider.notify_pods(notify)
    found = []
    for number in range(TIMES):
        made = pod(f"one-{number}")
        uid, began = objects.uid(made), time.monotonic()
        provider.create_pod(made)
        until(lambda uid=uid: uid in told, 120)  # type: ignore[misc]
        found.append(told[uid] - began)
        time.sleep(7)  # it is quiet again, as when somebody submits one
    yield Figure("Slurm: from a Pod to its job's state, median", median(found[1:]), "s", SEEN_S, f"n={TIMES - 1}")


def _followed(provider: SlurmProvider, slurm: Slurm, jobs: int) -> Iterator[Figure]:
    """Yield what it costs to follow jobs that wait."""
    slurm.run(["scontrol", "update", "NodeName=n1,n2", "State=DRAIN", "Reason=bench"])
    for number in range(jobs):
        provider.create_pod(pod(f"job-{number}"))
    until(lambda: _submitted(slurm) >= jobs, PATIENCE_S)
    time.sleep(30)  # it is told, and quiet
    ours, theirs = _ours_s(slurm), _login_s()
    time.sleep(WINDOW_S)
    ours, theirs = _ours_s(slurm) - ours, _login_s() - theirs
    note = f"{jobs} jobs, {WINDOW_S:.0f} s; here {ours:.2f} s, on the login machine {theirs:.2f} s"
    yield Figure("Slurm: following jobs that wait, of a core", 100 * (ours + theirs) / WINDOW_S, "%", SHARE, note)
    slurm.run(["scancel", f"--user={STUDENTS_ID}"], timeout_s=300)


def _submitted(slurm: Slurm) -> int:
    return len(slurm.run(["squeue", "-h", "-t", "PD", "-o", "%i"]).splitlines())


def _ours_s(slurm: Slurm) -> float:
    """Return the CPU time of this process and what it runs; the Slurm with its login machine is below it, too."""
    me = psutil.Process()
    theirs = {each.pid for each in psutil.Process(slurm.pid).children(recursive=True)}
    own = [each for each in me.children(recursive=True) if each.pid not in theirs]
    return _cpu_s([me, *own, *(each for each in psutil.process_iter() if _is_master(each, slurm.folder.parent))])


def _is_master(process: psutil.Process, folder: Path) -> bool:
    """Return whether it is the ssh that all passes share, which leaves the tree of processes and names its socket."""
    try:
        return f"ssh: {folder}" in " ".join(process.cmdline())
    except psutil.Error:
        return False


def _login_s() -> float:
    """Return the CPU time of what our user runs there, Slurm's commands among what has ended."""
    return _cpu_s(each for each in psutil.process_iter() if _is_theirs(each))


def _is_theirs(process: psutil.Process) -> bool:
    try:
        return process.uids().real == STUDENTS_ID and process.name() != "slurmstepd"
    except psutil.Error:
        return False


def _cpu_s(processes: Any) -> float:
    total = 0.0
    for each in processes:
        try:
            times = each.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


if __name__ == "__main__":
    for figure in measure(int(sys.argv[1]) if sys.argv[1:] else JOBS):
        print(figure.line(), flush=True)
