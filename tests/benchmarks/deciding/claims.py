"""Figures of claims: ``python -m tests.benchmarks.deciding.claims``, about a minute.

The bench of the workload controllers, with as many free volumes as claims, all of one size and class: what is hardest
to share out, since each claim may have each volume. Then claims for which volumes are made on an NFS server: it is the
declaration that is measured, as the server makes the folder afterwards.
"""

from __future__ import annotations

import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import NODE, PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, STORAGE_CLASS
from minik8s_modules.client.informer import Informer
from tests.benchmarks.deciding.controllers import Bench
from tests.benchmarks.figures import Figure

SINGLES, MANY, AT_ONCE = 21, 1_000, 8
BAR_MS, BAR_BURST_MS, BAR_MADE_MS = 300.0, 1000 / 50, 1500.0
ADDRESS = "192.0.2.10"


def _volume(number: int) -> dict[str, Any]:
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/data"}}
    return {"metadata": {"name": f"v{number}"}, "spec": spec}


def _claim(number: int, **fields: str) -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **fields}
    return {"metadata": {"name": f"c{number}", "namespace": "default"}, "spec": spec}


def _class() -> dict[str, Any]:
    parameters = {"server": ADDRESS, "share": "/srv/share"}
    return {"metadata": {"name": "shared"}, "provisioner": "minik8s.io/nfs", "parameters": parameters}


def measure() -> list[Figure]:
    """Start everything, measure, stop everything."""
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(Path(directory))
        copies = [Informer(bench.client, kind) for kind in (PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM)]
        try:
            for each in copies:
                each.start()
                each.wait_synced(20)
            return _figures(bench, *copies)
        finally:
            for each in copies:
                each.stop()
            bench.close()


def _figures(bench: Bench, volumes: Informer, claims: Informer) -> list[Figure]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        all(pool.map(lambda number: bench.client.create(PERSISTENT_VOLUME, _volume(number)), range(SINGLES + MANY)))
        bench.wait(lambda: _in_phase(volumes, "Available") == SINGLES + MANY)
        singles = [_one(bench, claims, number) for number in range(SINGLES)]
        began, used = time.monotonic(), bench.cpu_s()
        wanted = range(SINGLES, SINGLES + MANY)
        all(pool.map(lambda number: bench.client.create(PERSISTENT_VOLUME_CLAIM, _claim(number)), wanted))
        bench.wait(lambda: _in_phase(claims, "Bound") == SINGLES + MANY)
        each_ms, cpu_ms = (time.monotonic() - began) / MANY * 1000, (bench.cpu_s() - used) / MANY * 1000
    made = _provisioned(bench, claims)
    how = f"{MANY:,} claims and free volumes of one size; controllers' CPU {cpu_ms:.1f} ms a claim"
    return [
        Figure("claims: claim to Bound, median", median(singles) * 1000, "ms", BAR_MS, f"n={SINGLES}, {MANY:,} free"),
        Figure("claims: one of a burst, created and Bound", each_ms, "ms", BAR_BURST_MS, how),
        Figure("claims: claim to Bound, volume made, median", made * 1000, "ms", BAR_MADE_MS, f"n={SINGLES}"),
    ]


def _provisioned(bench: Bench, claims: Informer) -> float:
    """Return the median of claims whose volumes are made, in seconds."""
    address = {"type": "InternalIP", "address": ADDRESS}
    bench.client.patch(NODE, "bench", "", {"status": {"addresses": [address]}}, subresource="status")
    bench.client.create(STORAGE_CLASS, _class())
    first = SINGLES + MANY
    return median(_one(bench, claims, number, storageClassName="shared") for number in range(first, first + SINGLES))


def _one(bench: Bench, claims: Informer, number: int, **fields: str) -> float:
    began = time.monotonic()
    bench.client.create(PERSISTENT_VOLUME_CLAIM, _claim(number, **fields))
    while objects.status(claims.get("default", f"c{number}") or {}).get("phase") != "Bound":
        time.sleep(0.002)
    return time.monotonic() - began


def _in_phase(copy: Informer, phase: str) -> int:
    return sum(objects.status(each).get("phase") == phase for each in copy.list())


if __name__ == "__main__":
    for figure in measure():
        print(figure.line(), flush=True)
