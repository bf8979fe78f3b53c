"""How soon a ready pod is reached through its Service: ``python -m tests.benchmarks.service_reach``, a minute.

A whole cluster on this machine. Each pod has a Service of its own, which refuses while no endpoint is ready. Counted
from the moment a watch of the API shows the pod Ready to the first answer at the Service's address; between the two
lie the EndpointSlice controller, the reconciler, Ansible and the node's rules.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import POD
from minik8s_modules.client.informer import Informer
from tests.benchmarks.figures import Figure
from tests.integration.reconcile import conftest as whole_path
from tests.integration.services.conftest import READY, Cluster, JsonObject, fetch

PODS, P50_MS, P99_MS, GIVE_UP_S, ASKED_EVERY_S = 40, 150.0, 1000.0, 60.0, 0.002


class ReadyTimes:
    """When each pod was first seen Ready."""

    def __init__(self) -> None:
        self._times: dict[str, float] = {}
        self._changed = threading.Condition()

    def on_pod(self, _old: JsonObject | None, new: JsonObject | None) -> None:
        """Take a change; an informer's handler."""
        if new is not None and (objects.condition(new, "Ready") or {}).get("status") == "True":
            with self._changed:
                self._times.setdefault(objects.name(new), time.monotonic())
                self._changed.notify_all()

    def of(self, name: str) -> float:
        """Return when, once it was."""
        with self._changed:
            assert self._changed.wait_for(lambda: name in self._times, GIVE_UP_S), f"{name} is not ready"
            return self._times[name]


def reached(address: str, name: str) -> float:
    """Return when the pod answered first."""
    end = time.monotonic() + GIVE_UP_S
    while time.monotonic() < end:
        if fetch(address) == name:
            return time.monotonic()
        time.sleep(ASKED_EVERY_S)
    raise AssertionError(f"{name} is not reached at {address}")


def delays_ms(cluster: Cluster, ready_at: Callable[[str], float]) -> Iterator[float]:
    """Yield the delay of each pod."""
    for number in range(PODS):
        name = f"reached-{number}"
        address = cluster.service(name, {"app": name})
        cluster.web(name, {"app": name}, container={"readinessProbe": READY})
        answered = reached(address, name)
        yield max(0.0, answered - ready_at(name)) * 1000
        cluster.delete(name, grace_s=0)
        # a node has one pass at a time: what takes this pod away is no part of the next one's delay
        cluster.until(partial(cluster.gone, name), GIVE_UP_S)


def measure() -> Iterator[Figure]:
    """Yield the figures."""
    whole_path.IDENTITIES.setdefault("controllers", "system:kube-controller-manager")
    folder = Path(tempfile.mkdtemp(prefix="mk8s-"))
    cluster, times = Cluster(folder), ReadyTimes()
    pods = Informer(cluster.admin, POD)
    pods.add_handler(times.on_pod)
    try:
        cluster.start()
        pods.start()
        cluster.until(cluster.registered, GIVE_UP_S)
        found = sorted(delays_ms(cluster, times.of))
    finally:
        pods.stop()
        cluster.close()
        shutil.rmtree(folder, ignore_errors=True)
    told = f"n={len(found)}, slowest {found[-1]:.0f} ms"
    yield Figure("ready to reachable through the service, p50", statistics.median(found), "ms", P50_MS, told)
    p99 = statistics.quantiles(found, n=100, method="inclusive")[-1]
    yield Figure("ready to reachable through the service, p99", p99, "ms", P99_MS, told)


def main() -> None:
    """Measure and print."""
    for figure in measure():
        print(figure.line(), flush=True)


if __name__ == "__main__":
    main()
