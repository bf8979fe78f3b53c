"""What a pilot works for a namespace of a thousand Services: ``python -m tests.benchmarks.network.mesh``, seconds.

    objects ─▶ decision ─▶ messages ─▶ what one sidecar lacks

Each Service has five Pods. "Cold" is the first decision with all of its messages; "a change" is one Pod that is no
longer ready; "for one sidecar" is what its stream works to find and name what it lacks. CPU of this process.
Fifty sidecars and their weights: tests/integration/mesh/test_many_sidecars.py.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

from minik8s_modules.mesh.mapping import Declared, Memory, decide_mapping
from minik8s_modules.mesh.messages import Packer, Snapshot
from minik8s_modules.mesh.subscriptions import Subscription
from tests.benchmarks.figures import Figure

SERVICES, PODS, CHANGES, COLD = 1_000, 5, 31, 3
COLD_MS, CHANGE_MS, SIDECAR_MS = 100.0, 5.0, 1.0


def service(number: int) -> dict[str, Any]:
    """Return a Service."""
    meta = {"name": f"web-{number}", "namespace": "shop"}
    address = f"100.64.{number // 250}.{number % 250 + 1}"
    return {"metadata": meta, "spec": {"clusterIP": address, "ports": [{"port": 80, "protocol": "TCP"}]}}


def slice_of(number: int, without: int = -1) -> dict[str, Any]:
    """Return its endpoints, of which one may be ready no more."""
    name = f"web-{number}"
    meta = {"name": name, "namespace": "shop", "labels": {"kubernetes.io/service-name": name}}
    endpoints = [
        {
            "addresses": [f"10.{pod}.{number // 250}.{number % 250 + 1}"],
            "conditions": {"ready": pod != without, "serving": pod != without, "terminating": False},
            "targetRef": {"kind": "Pod", "name": f"{name}-{pod}"},
        }
        for pod in range(PODS)
    ]
    return {
        "metadata": meta,
        "addressType": "IPv4",
        "ports": [{"port": 8080, "protocol": "TCP"}],
        "endpoints": endpoints,
    }


def cpu_ms(work: Callable[[], object]) -> float:
    """Return the CPU time of a piece of work, in milliseconds."""
    begun = time.process_time()
    work()
    return 1000 * (time.process_time() - begun)


def versions(snapshot: Snapshot) -> dict[str, dict[str, str]]:
    """Return the versions of what sidecars are told, by type and name."""
    return {kind: {name: each.version for name, each in of.items()} for kind, of in snapshot.items()}


def measure() -> Iterator[Figure]:
    """Yield the figures."""
    services, slices = [service(number) for number in range(SERVICES)], [slice_of(number) for number in range(SERVICES)]
    first = Declared(services, slices, [], [], [])
    note = f"{SERVICES} Services of {PODS} Pods"
    deciding = statistics.median(cpu_ms(lambda: decide_mapping(first)) for _ in range(COLD))
    yield Figure("a mapping, cold", deciding, "ms CPU", COLD_MS, note)
    mapped = decide_mapping(first)
    packing = statistics.median(cpu_ms(lambda: Packer("shop").pack(mapped)) for _ in range(COLD))
    yield Figure("its messages, cold", packing, "ms CPU", None, note)
    packer, memory = Packer("shop"), Memory()
    decide_mapping(first, memory)
    sidecar = Sidecar(packer.pack(mapped))
    deciding_ms, finding_ms, sent = [], [], []
    for number in range(CHANGES):
        slices[number] = slice_of(number, without=0)
        declared = Declared(services, list(slices), [], [], [])
        begun = time.process_time()
        snapshot = packer.pack(decide_mapping(declared, memory))
        deciding_ms.append(1000 * (time.process_time() - begun))
        found_ms, count = sidecar.takes(snapshot)
        finding_ms.append(found_ms)
        sent.append(count)
    yield Figure("a change: decided and packed, p50", statistics.median(deciding_ms), "ms CPU", CHANGE_MS, note)
    yield Figure("a change: found for one sidecar, p50", statistics.median(finding_ms), "ms CPU", SIDECAR_MS, note)
    yield Figure("a change: resources sent to a sidecar, most", max(sent), "", 1.0, "the endpoints of one Service")


class Sidecar:
    """What one has been told, of all types."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._subscriptions = {kind: Subscription() for kind in snapshot}
        for each in self._subscriptions.values():
            each.ask([], [], {})
        self.takes(snapshot)

    def takes(self, snapshot: Snapshot) -> tuple[float, int]:
        """Return the CPU time that it took to find what it lacks, in milliseconds, and how many resources these are."""
        told = versions(snapshot)
        begun = time.process_time()
        found = {kind: each.difference(told[kind]) for kind, each in self._subscriptions.items()}
        spent_ms = 1000 * (time.process_time() - begun)
        for kind, each in self._subscriptions.items():
            each.sent(told[kind], found[kind])
        return spent_ms, sum(len(each.changed) + len(each.removed) for each in found.values())


def main() -> None:
    """Measure and print."""
    for figure in measure():
        print(figure.line(), flush=True)


if __name__ == "__main__":
    main()
