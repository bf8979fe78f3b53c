"""How soon a ready pod is reached through its Service: ``python -m tests.benchmarks.network.service_reach``, a minute.

A whole cluster on this machine. Each pod has a Service of its own, which refuses while no endpoint is ready. Counted
from the moment a watch of the API shows the pod Ready to the first answer at the Service's address; between the two
lie the EndpointSlice controller (its share: until a watch shows the slice with the endpoint), the reconciler, Ansible
and the node's rules. CPU is what each process of ours took for one pod, from its creation to its removal. The way back
is counted likewise: from the moment a watch shows a pod that is not Ready any more, to the first refusal.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import ENDPOINT_SLICE, POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.client.informer import Informer
from tests.benchmarks.figures import Figure
from tests.integration.reconcile import conftest as whole_path
from tests.integration.services.conftest import READY, SICK, Cluster, fetch

PODS, P50_MS, P99_MS, GIVE_UP_S, ASKED_EVERY_S = 40, 150.0, 1000.0, 60.0, 0.002
TURNS, WITHDRAWN_MS = 30, 1000.0
_TICKS = os.sysconf("SC_CLK_TCK")


class Times:
    """When something was first seen of each name."""

    def __init__(self) -> None:
        self._times: dict[str, float] = {}
        self._changed = threading.Condition()

    def note(self, name: str) -> None:
        """Take the moment, if it is the first."""
        with self._changed:
            self._times.setdefault(name, time.monotonic())
            self._changed.notify_all()

    def forget(self, name: str) -> None:
        """Wait for the next time."""
        with self._changed:
            self._times.pop(name, None)

    def of(self, name: str) -> float:
        """Return when, once it was."""
        with self._changed:
            assert self._changed.wait_for(lambda: name in self._times, GIVE_UP_S), f"nothing is seen of {name}"
            return self._times[name]


class Watched:
    """When watches of the API showed a pod Ready, and Ready no more, and a slice with its endpoint."""

    def __init__(self, cluster: Cluster) -> None:
        self.ready, self.unready, self.listed = Times(), Times(), Times()
        self._informers = [Informer(cluster.admin, POD), Informer(cluster.admin, ENDPOINT_SLICE)]
        for informer, handler in zip(self._informers, (self._on_pod, self._on_slice), strict=True):
            informer.add_handler(handler)

    def start(self) -> None:
        """Watch from now on."""
        for informer in self._informers:
            informer.start()

    def stop(self) -> None:
        """End."""
        for informer in self._informers:
            informer.stop()

    def _on_pod(self, old: JsonObject | None, new: JsonObject | None) -> None:
        if new is not None and is_ready(new):
            self.ready.note(objects.name(new))
        elif new is not None and old is not None and is_ready(old):
            self.unready.note(objects.name(new))

    def _on_slice(self, _old: JsonObject | None, new: JsonObject | None) -> None:
        for endpoint in (new or {}).get("endpoints") or []:
            if endpoint["conditions"]["ready"] and "targetRef" in endpoint:
                self.listed.note(endpoint["targetRef"]["name"])


def is_ready(pod: JsonObject) -> bool:
    """Return whether a pod is Ready."""
    return (objects.condition(pod, "Ready") or {}).get("status") == "True"


class Delay(NamedTuple):
    """One pod's way, in milliseconds from Ready on."""

    listed: float
    reached: float


def answered(address: str, answer: str) -> float:
    """Return when this was the answer first: a pod's name, or "refused"."""
    end = time.monotonic() + GIVE_UP_S
    while time.monotonic() < end:
        if fetch(address) == answer:
            return time.monotonic()
        time.sleep(ASKED_EVERY_S)
    raise AssertionError(f"no answer {answer!r} at {address}")


def delays(cluster: Cluster, watched: Watched) -> Iterator[Delay]:
    """Yield the delays of each pod."""
    for number in range(PODS):
        name = f"reached-{number}"
        address = cluster.service(name, {"app": name})
        cluster.web(name, {"app": name}, container={"readinessProbe": READY})
        reached, ready = answered(address, name), watched.ready.of(name)
        yield Delay(max(0.0, watched.listed.of(name) - ready) * 1000, max(0.0, reached - ready) * 1000)
        cluster.delete(name, grace_s=0)
        # a node has one pass at a time: what takes this pod away is no part of the next one's delay
        cluster.until(partial(cluster.gone, name), GIVE_UP_S)


def withdrawals(cluster: Cluster, watched: Watched) -> Iterator[float]:
    """Yield how many milliseconds the only pod of a Service was still reached, each time it turned unready."""
    name = "turning"
    address = cluster.service(name, {"app": name})
    cluster.web(name, {"app": name}, container={"readinessProbe": SICK})
    for _ in range(TURNS):
        answered(address, name)
        watched.unready.forget(name)
        cluster.inside(name, "touch", "/tmp/sick")
        refused = answered(address, "refused")
        yield max(0.0, refused - watched.unready.of(name)) * 1000
        cluster.inside(name, "rm", "/tmp/sick")


def cpu_s(root: int) -> float:
    """Return the CPU seconds that a process and all below it have taken, those that have ended included."""
    fields: dict[int, list[str]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields[int(stat.parent.name)] = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
    family, size = {root}, 0
    while size != len(family):
        size = len(family)
        family |= {pid for pid, each in fields.items() if int(each[1]) in family}
    # utime, stime, and those of children that were waited for
    return sum(int(ticks) for pid in family & fields.keys() for ticks in fields[pid][11:15]) / _TICKS


def processes(cluster: Cluster) -> dict[str, int]:
    """Return the pids of what works on a pod's way, by what it is called here."""
    found = {room: daemon.process.pid for room, daemon in cluster.daemons.items() if daemon.process}
    return {**found, "apiserver": cluster.server.pid}


def measure() -> Iterator[Figure]:
    """Yield the figures."""
    whole_path.IDENTITIES.setdefault("controllers", "system:kube-controller-manager")
    folder = Path(tempfile.mkdtemp(prefix="mk8s-"))
    cluster = Cluster(folder)
    watched = Watched(cluster)
    try:
        cluster.start()
        watched.start()
        cluster.until(cluster.registered, GIVE_UP_S)
        pids = processes(cluster)
        before = {name: cpu_s(pid) for name, pid in pids.items()}
        found = list(delays(cluster, watched))
        spent = {name: (cpu_s(pid) - before[name]) * 1000 / len(found) for name, pid in pids.items()}
        left = list(withdrawals(cluster, watched))
    finally:
        watched.stop()
        cluster.close()
        shutil.rmtree(folder, ignore_errors=True)
    yield from _figures(found, spent)
    text = f"n={len(left)}, its watch to the first refusal; load {os.getloadavg()[0]:.1f}"
    yield Figure("unready to out of the rules, p50", statistics.median(left), "ms", WITHDRAWN_MS, text)
    yield Figure("unready to out of the rules, worst", max(left), "ms", WITHDRAWN_MS, text)


def _figures(found: list[Delay], spent: dict[str, float]) -> Iterator[Figure]:
    whole = sorted(one.reached for one in found)
    slices = statistics.median(one.listed for one in found)
    rules = statistics.median(one.reached - one.listed for one in found)
    text = f"n={len(found)}, slowest {whole[-1]:.0f} ms; load {os.getloadavg()[0]:.1f}"
    yield Figure("ready to reachable through the service, p50", statistics.median(whole), "ms", P50_MS, text)
    p99 = statistics.quantiles(whole, n=100, method="inclusive")[-1]
    yield Figure("ready to reachable through the service, p99", p99, "ms", P99_MS, text)
    yield Figure("of it until the slice lists the pod, p50", slices, "ms", None, "watch, decide, write, watch")
    yield Figure("of it until the node's rules have it, p50", rules, "ms", None, "watch, decide, Ansible, module")
    for name, each in sorted(spent.items()):
        yield Figure(f"CPU of {name} for a pod's life", each, "ms", None, "everything, creation to removal")


def main() -> None:
    """Measure and print."""
    for figure in measure():
        print(figure.line(), flush=True)


if __name__ == "__main__":
    main()
