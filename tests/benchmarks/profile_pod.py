"""What a pod's life costs our processes, and where: ``make profile WHAT=pod``, a minute or two.

A whole cluster on this machine. Pods are created one after the other, each is awaited Ready, deleted and awaited gone:
first undisturbed, for the CPU by process and by thread, and the requests by who made them (the API server's audit log;
how often a thread waited is how often it was woken; those that ended meanwhile are in their process alone); then again
while py-spy samples the threads of every process that hold the interpreter's lock. What waits for a pod watches it, as
kubectl does; the workers that the play forks are in the play's CPU and samples, and the processes of the node's warm
interpreter in the node's. dockerd, containerd and etcd are not ours and not counted. The report is in
``.cache/profile-pod.txt``; beside it are the stacks of each process, ``profile-pod-<process>.raw``, as flame graph
programs read them.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from minik8s_modules.api.kinds import POD
from minik8s_modules.client.watches import WatchEvent
from minik8s_modules.reconcile.executor.live_run import PROGRAM
from tests.benchmarks.shares import RATE, shares
from tests.integration.reconcile import conftest as whole_path
from tests.integration.services.conftest import Cluster
from tests.support.processes import peer_pid

PODS, WARM_UP, GIVE_UP_S, MOST, LEAST_MS = 10, 3, 60.0, 60, 0.2
LOGGED_S = 1.0  # by then the audit log has all that was asked before
Processes = Mapping[str, psutil.Process]
Threads = Mapping[tuple[str, int], tuple[float, int]]
"""CPU milliseconds and waits, by process and thread."""


def profile(folder: Path) -> str:
    """Sample a cluster; return the report, and leave stacks in ``folder``."""
    whole_path.IDENTITIES.setdefault("controllers", "system:kube-controller-manager")
    directory = Path(tempfile.mkdtemp(prefix="mk8s-"))
    cluster = Cluster(directory)
    try:
        cluster.start()
        cluster.until(cluster.registered, GIVE_UP_S)
        lives(cluster, WARM_UP)
        return _account(cluster, directory / "api" / "audit.log") + _sampled(cluster, folder)
    finally:
        cluster.close()
        shutil.rmtree(directory, ignore_errors=True)


def lives(cluster: Cluster, count: int) -> None:
    """Let pods live, one after the other."""
    for _ in range(count):
        name = f"life-{uuid.uuid4().hex[:8]}"
        revision = cluster.admin.list(POD, "default").resource_version
        seen = cluster.admin.watch(POD, "default", resource_version=revision, field_selector=f"metadata.name={name}")
        cluster.create(name, ["sh", "-c", "trap exit TERM; while :; do sleep 0.1; done"])
        await_event(seen, is_ready)
        cluster.delete(name)
        await_event(seen, lambda event: event.type == "DELETED")


def await_event(events: Iterable[WatchEvent], is_meant: Callable[[WatchEvent], bool]) -> None:
    """Read a watch until an event that is meant; one every few seconds is a pod that does not get on."""
    end = time.monotonic() + GIVE_UP_S
    for event in events:
        assert time.monotonic() < end, event
        if is_meant(event):
            return
    raise AssertionError("the watch ended")


def is_ready(event: WatchEvent) -> bool:
    """Return whether an event shows its pod Ready."""
    conditions = event.object.get("status", {}).get("conditions") or []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def processes(cluster: Cluster) -> Processes:
    """Return our processes by what they are called here."""
    found = {room: psutil.Process(one.process.pid) for room, one in cluster.daemons.items() if one.process}
    (found["apiserver"],) = psutil.Process(cluster.server.pid).children()
    for below in found["reconcile"].children(recursive=True):
        found[_name(below)] = below
    return found


def _name(process: psutil.Process) -> str:
    argv = process.cmdline()
    if PROGRAM in argv:
        return "play"
    return f"{process.name()}-{process.pid}"


def _account(cluster: Cluster, log: Path) -> str:
    found = processes(cluster)
    time.sleep(LOGGED_S)
    before, size = {name: cpu_s(one) for name, one in found.items()}, log.stat().st_size
    on_node, begun = node_s(cluster), threads(found)
    lives(cluster, PODS)
    spent = {name: (cpu_s(one) - before[name]) * 1000 / PODS for name, one in found.items() if one.is_running()}
    spent["node"] = (node_s(cluster) - on_node) * 1000 / PODS
    told = "".join(f"{each:9.1f} ms  {name}\n" for name, each in sorted(spent.items(), key=lambda one: -one[1]) if each)
    told += f"\nby thread, with its waits:\n{_by_thread(found, begun, threads(found))}"
    time.sleep(LOGGED_S)
    with log.open("rb") as lines:
        lines.seek(size)
        asked = requests(lines)
    listed = "".join(f"{count / PODS:9.2f}  {what}\n" for what, count in asked.most_common(40))
    return f"CPU of a pod's life, {sum(spent.values()):.0f} ms:\n{told}\nrequests:\n{listed}\n"


def threads(found: Processes) -> Threads:
    """Return what each thread has used (schedstat, proc(5)) and how often it waited."""
    known = {}
    for name, process in found.items():
        for task in Path(f"/proc/{process.pid}/task").glob("*"):
            with suppress(OSError):
                waits = (task / "status").read_text().partition("\nvoluntary_ctxt_switches:")[2].split()[0]
                used_ms = int((task / "schedstat").read_text().split()[0]) / 1e6
                known[name, int(task.name)] = used_ms, int(waits)
    return known


def _by_thread(found: Processes, before: Threads, after: Threads) -> str:
    spent = {one: [(b - a) / PODS for a, b in zip(before.get(one, (0.0, 0)), after[one], strict=True)] for one in after}
    names = {(name, thread): word for name, one in found.items() for thread, word in _names(one.pid).items()}
    listed = sorted((one for one in spent.items() if one[1][0] >= LEAST_MS), key=lambda one: -one[1][0])
    return "".join(
        f"{used:9.1f} ms {waits:7.1f}  {one[0]} {names.get(one) or one[1]}\n" for one, (used, waits) in listed
    )


def _names(pid: int) -> dict[int, str]:
    """Return the names of a Python process's threads, none for another process."""
    argv = [str(Path(sys.executable).with_name("py-spy")), "dump", "--json", "--nonblocking", "--pid", str(pid)]
    shown = subprocess.run(argv, capture_output=True, check=False).stdout
    return {one["os_thread_id"]: one["thread_name"] for one in json.loads(shown or b"[]")}


def cpu_s(process: psutil.Process) -> float:
    """Return the CPU seconds of a process and of its children that have ended."""
    return float(sum(process.cpu_times()[:4]))


def node_s(cluster: Cluster) -> float:
    """Return the CPU seconds of the node's warm interpreter: its server, the templates, and what they have forked."""
    family = [psutil.Process(_interpreter(cluster))]
    family += family[0].children(recursive=True)
    return sum(map(cpu_s, family))


def _interpreter(cluster: Cluster) -> int:
    (server,) = filter(None, map(peer_pid, (cluster.folder / "w").glob("*.sock")))
    return server


def requests(lines: Iterable[bytes]) -> Counter[str]:
    """Return how many requests of each kind are in an audit log: who, verb, what."""
    found: Counter[str] = Counter()
    for line in lines:
        event: dict[str, Any] = json.loads(line)
        what = event.get("objectRef", {})
        words = (what.get("resource", event.get("requestURI", "")), what.get("subresource", ""))
        if event.get("stage", "ResponseComplete") == "ResponseComplete":
            found[f"{event['user']['username']} {event['verb']} {'/'.join(filter(None, words))}"] += 1
    return found


def _sampled(cluster: Cluster, folder: Path) -> str:
    found = processes(cluster)
    pids = {name: one.pid for name, one in found.items() if "-" not in name} | {"node": _interpreter(cluster)}
    raw = {name: folder / f"profile-pod-{name}.raw" for name in pids}
    with sampling(pids, raw):
        lives(cluster, PODS)
    told = ""
    for name, path in raw.items():
        if path.exists() and (listed := shares(path.read_text(encoding="utf-8").splitlines())[:MOST]):
            rows = "".join(f"{each.inside:8.1f} {each.own:8.1f}  {each.function}\n" for each in listed)
            told += f"{name}\n  inside      own  function\n{rows}\n"
    return told


@contextmanager
def sampling(pids: Mapping[str, int], raw: Mapping[str, Path]) -> Iterator[None]:
    """Sample processes, and those that they fork, while the block runs."""
    program = str(Path(sys.executable).with_name("py-spy"))
    running = []
    for name, pid in pids.items():
        argv = [
            program,
            "record",
            "--gil",
            "--subprocesses",
            "--rate",
            str(RATE),
            "--pid",
            str(pid),
            "--format",
            "raw",
            "--output",
            str(raw[name]),
        ]
        argv += ["--duration", "600"]
        running.append(subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    time.sleep(1)  # py-spy says nothing about when it begins
    try:
        yield
    finally:
        for one in running:
            one.send_signal(signal.SIGINT)  # it writes what it has
        for one in running:
            one.wait(60)
