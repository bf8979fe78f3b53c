"""A hundred nodes that are all this machine: ``python -m tests.benchmarks.nodes.hundred_nodes``, some four minutes.

First the executor alone: each name has a folder of its own, and one file in it (section ``volumes``) is what changes.
One item a node at once, as a changed object of all of them causes; counted from the first submission to the last
answer, CPU by side: here (runner, play, workers) and on the node (warm interpreter, modules).

Then a whole cluster of a hundred nodes that have nothing to do. Each is a network namespace with an interpreter of its
own, so each has its own bridge, rules and services, as a machine has. CPU by process in a window without observations;
the observation that each node has every five minutes is asked of all at once by annotation, and its cost spread over
the 300 s. Nobody asks for those of an idle cluster, so what it costs to write an annotation that nobody reads into
each Node is taken off. What the nodes take themselves is counted apart: it is not the controller's.
"""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import signal
import statistics
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import NODE
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.plugins.warm.client import IDLE_S
from minik8s_modules.reconcile.executor.runner import PLAYBOOK
from minik8s_modules.reconcile.values.items import SectionRequest, WorkItem
from tests.benchmarks.figures import Figure
from tests.benchmarks.network.service_reach import cpu_s
from tests.integration.executor.conftest import LOCAL, Lab, wait_for
from tests.integration.reconcile.conftest import Cluster
from tests.support.node import SOCKET, command

COUNT, CHANGES = 100, 3
REACHED_S, ITEM_CPU_MS, IDLE_PERCENT = 10.0, 50.0, 15.0
OBSERVE, UNREAD = "minik8s.io/observe", "example.com/unread"
OBSERVED_EVERY_S, WINDOW_S, SETTLED_S, GIVE_UP_S = 300.0, 60.0, 10.0, 600.0
NODES = "the nodes together"
UID = "00000000-0000-4000-8000-000000000001"


def requests(folder: Path, text: str) -> SectionRequest:
    """Return the section of a node whose file holds ``text``."""
    data = base64.b64encode(text.encode()).decode()
    entry = {"kind": "configMap", "files": {"text": {"data": data, "mode": 420}}}
    return SectionRequest(
        {"entries": {f"{UID}/config": entry}, "state_dir": str(folder / "s"), "run_dir": str(folder / "r")}
    )


def change(lab: Lab, text: str) -> float:
    """Change the file of every node; return the seconds until the last has answered."""
    begun, items = time.perf_counter(), []
    for node in lab.nodes:
        section = requests(lab.files / node, text)
        items.append(WorkItem(uuid.uuid4().hex, node, check=False, token=(1, 1), sections={"volumes": section}))
        lab.runner.submit(items[-1])
    outcomes = [lab.outcome(item.id, GIVE_UP_S) for item in items]
    spent_s = time.perf_counter() - begun
    bad = [one for one in outcomes if one.status != "ok" or one.sections["volumes"]["errors"]]
    assert not bad, bad[:1]
    for node in lab.nodes:
        (found,) = (lab.files / node / "s").glob("pods/*/volumes/config/text")
        assert found.read_text() == text, node
    return spent_s


def side_s(lab: Lab) -> tuple[float, float]:
    """Return the CPU seconds so far of the controller's side and of the node's."""
    here = sum(psutil.Process().cpu_times()[:2]) + cpu_s(lab.play.pid)
    return here, cpu_s(lab.interpreter())


def executor() -> Iterator[Figure]:
    """Yield the figures of changes."""
    lab = Lab({f"h{number:03d}": LOCAL for number in range(COUNT)}, playbook=PLAYBOOK, forks=8)
    try:
        lab.runner.start()
        change(lab, "warm")
        before = side_s(lab)
        spent = [change(lab, f"change {number}") for number in range(CHANGES)]
        after = side_s(lab)
    finally:
        lab.close()
    here_ms, there_ms = ((new - old) * 1000 / CHANGES / COUNT for new, old in zip(after, before, strict=True))
    text = f"n={CHANGES}; load {os.getloadavg()[0]:.1f}"
    of = f"executor alone, {COUNT} names of one local interpreter, a file each changed"
    yield Figure(f"{of}: p50", statistics.median(spent), "s", REACHED_S, text)
    yield Figure(f"{of}: CPU here, an item", here_ms, "ms", ITEM_CPU_MS, "runner, play, workers")
    yield Figure(f"{of}: CPU of the interpreter, an item", there_ms, "ms", None, "warm interpreter, modules")


class Account:
    """A control group that counts the CPU of what enters it, and of what that starts; of what has ended, too."""

    def __init__(self) -> None:
        self.folder = Path("/sys/fs/cgroup/cpuacct") / f"mk8s-{uuid.uuid4().hex[:8]}"  # version 1, as dockerd here
        self.folder.mkdir()

    @property
    def door(self) -> Path:
        """What a pid is written to, to enter it."""
        return self.folder / "cgroup.procs"

    def cpu_s(self) -> float:
        """Return the CPU seconds so far."""
        return int((self.folder / "cpuacct.usage").read_text()) / 1e9

    def close(self) -> None:
        """End what runs in it and remove it."""
        while pids := self.door.read_text().split():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            time.sleep(0.1)
        self.folder.rmdir()


class Namespaces:
    """Machines that are network namespaces: a name, a network and an interpreter each; their CPU is counted.

    Args:
        folder: of the interpreters.
        names: of the machines.
    """

    def __init__(self, folder: Path, names: list[str]) -> None:
        self._folder, self._names = folder, names
        self.account = Account()
        folder.mkdir(parents=True)
        for number, name in enumerate(names):
            command("ip", "netns", "add", name)
            command("ip", "-n", name, "link", "set", "lo", "up")
            # a bridge without ports does for a network card
            command("ip", "-n", name, "link", "add", "lan0", "type", "bridge")
            command("ip", "-n", name, "address", "add", f"198.18.{number // 200}.{number % 200 + 2}/16", "dev", "lan0")
            command("ip", "-n", name, "link", "set", "lan0", "up")
            path = folder / name
            path.write_text(
                f'#!/bin/sh\necho $$ >{self.account.door}\nexec ip netns exec {name} /usr/bin/python3 "$@"\n'
            )
            path.chmod(0o755)

    def python(self, name: str) -> str:
        """Return the interpreter of a machine."""
        return str(self._folder / name)

    def close(self) -> None:
        """End what runs in them and remove them."""
        self.account.close()
        for name in self._names:
            command("ip", "netns", "delete", name)


class Hundred(Cluster):
    """A whole cluster that has a hundred nodes."""

    count = COUNT

    def _configs(self) -> dict[str, JsonObject]:
        found = super()._configs()
        names = [f"{self.node.name}-{number:03d}" for number in range(self.count)]
        self.machines = Namespaces(self.folder / "pythons", names)
        hosts = {
            name: {
                "ansible_connection": "warm_local",
                "ansible_python_interpreter": self.machines.python(name),
                "minik8s_warm_idle_s": IDLE_S,
                "minik8s_state_dir": str(self.folder / "nodes" / name / "s"),
                "minik8s_run_dir": str(self.folder / "nodes" / name / "r"),
                "minik8s_docker_socket": SOCKET,
            }
            for name in names
        }
        (self.folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
        found["reconcile"]["cluster_cidr"] = f"{self.node.range.rpartition('.')[0]}.0.0/16"
        return found

    def start(self) -> None:
        """Start all, each in an account of its own."""
        super().start()
        pids = {room: one.process.pid for room, one in self.daemons.items() if one.process}
        self.accounts = {part: Account() for part in (*pids, "apiserver", "etcd")}
        for part, pid in {**pids, "apiserver": self.server.pid, "etcd": self.etcd.pid}.items():
            for each in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
                self.accounts[part].door.write_text(str(each.pid))

    def close(self) -> None:
        """End everything and remove what is left, the machines too."""
        super().close()
        self.machines.close()
        for account in self.accounts.values():
            account.close()

    def nodes_ready(self) -> int:
        """Return how many nodes are Ready."""
        nodes = self.admin.list(NODE).items
        return sum((objects.condition(node, "Ready") or {}).get("status") == "True" for node in nodes)

    def spent(self) -> dict[str, float]:
        """Return the CPU seconds so far by part."""
        found = {part: account.cpu_s() for part, account in self.accounts.items()}
        return found | {NODES: self.machines.account.cpu_s()}

    def mark(self, annotation: str) -> None:
        """Write an annotation into every Node."""
        mark = {"metadata": {"annotations": {annotation: uuid.uuid4().hex}}}
        for node in self.admin.list(NODE).items:
            self.admin.patch(NODE, objects.name(node), "", mark)

    def calm(self) -> None:
        """Wait until the reconciler has nothing to do: for some seconds it takes next to no time."""
        account, end = self.accounts["reconcile"], time.monotonic() + GIVE_UP_S
        while time.monotonic() < end:
            before = account.cpu_s()
            time.sleep(SETTLED_S)
            if account.cpu_s() - before < SETTLED_S * 0.05:
                return
        raise AssertionError("the reconciler does not come to rest")


def whole() -> Iterator[Figure]:
    """Yield the figures of an idle cluster."""
    folder = Path(tempfile.mkdtemp(prefix="mk8s-"))
    cluster = Hundred(folder)
    try:
        cluster.start()
        wait_for(lambda: cluster.nodes_ready() == COUNT, f"{COUNT} nodes Ready", GIVE_UP_S)
        cluster.calm()
        rest = spent_in(cluster, WINDOW_S)
        asking, observing = (marked(cluster, rest, annotation) for annotation in (UNREAD, OBSERVE))
        observed = {part: max(0.0, spent_s - asking[part]) for part, spent_s in observing.items()}
    finally:
        cluster.close()
        shutil.rmtree(folder, ignore_errors=True)
    yield from _figures(rest, observed)


def marked(cluster: Hundred, rest: dict[str, float], annotation: str) -> dict[str, float]:
    """Return the CPU seconds that each part takes for an annotation of all Nodes, less what it takes anyway."""
    before, begun = cluster.spent(), time.monotonic()
    cluster.mark(annotation)
    time.sleep(SETTLED_S)
    cluster.calm()
    took_s, passed_s = cluster.spent(), time.monotonic() - begun
    return {part: took_s[part] - before[part] - rest[part] / 100 * passed_s for part in took_s}


def spent_in(cluster: Hundred, window_s: float) -> dict[str, float]:
    """Return the share of a core, in percent, that each part takes in a window."""
    before, begun = cluster.spent(), time.monotonic()
    time.sleep(window_s)
    after, spent_s = cluster.spent(), time.monotonic() - begun
    return {part: (after[part] - before[part]) / spent_s * 100 for part in after}


def _figures(rest: dict[str, float], observed: dict[str, float]) -> Iterator[Figure]:
    spread = {part: cpu / OBSERVED_EVERY_S * 100 for part, cpu in observed.items()}
    whole_percent = sum(value for shares in (rest, spread) for part, value in shares.items() if part != NODES)
    text = f"window {WINDOW_S:g} s; load {os.getloadavg()[0]:.1f}"
    of = f"idle with {COUNT} network namespaces as nodes, no SSH, no Pods"
    yield Figure(f"{of}: CPU", whole_percent, "% of a core", IDLE_PERCENT, text)
    for part in sorted(rest, key=lambda part: -(rest[part] + spread.get(part, 0.0))):
        text = f"of it {spread.get(part, 0.0):.2f} by the observation every {OBSERVED_EVERY_S:g} s"
        value = rest[part] + spread.get(part, 0.0)
        yield Figure(f"{of}: of it {part}", value, "% of a core", None, text)


def measure() -> Iterator[Figure]:
    """Yield all figures."""
    yield from executor()
    yield from whole()


def main() -> None:
    """Measure and print."""
    for figure in measure():
        print(figure.line(), flush=True)


if __name__ == "__main__":
    main()
