"""An API server over very many Pods: how soon it serves after a restart, and what it holds, also once they have gone.

    python -m tests.benchmarks.scale.restarting --pods 50000 [--deleted]

The Pods are written into etcd directly, as a cluster of that size has left them there: nobody schedules or runs them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from minik8s_modules.store.errors import StoreError
from minik8s_modules.store.etcd import EtcdStore
from minik8s_modules.store.interface import Put
from tests.benchmarks.machine import run_now
from tests.benchmarks.scale.watching import used
from tests.support.apiserver import ApiServerProcess
from tests.support.etcd import EtcdServer

PREFIX = "/registry/core/pods/scale/"
BEATS = 12_000
_BATCH = 100
_DELETERS = 8
_CONDITIONS = ("PodScheduled", "Initialized", "ContainersReady", "Ready")


def pod(number: int) -> dict[str, Any]:
    """Return a running Pod as the API server stores it, some 1.6 KB."""
    at, name = "2026-01-01T00:00:00Z", f"d-{number % 100}-{number:06}"
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"d-{number % 100}", "uid": str(uuid.uuid4())}
    container = {
        "name": "app", "image": "x:1", "imagePullPolicy": "IfNotPresent", "terminationMessagePolicy": "File",
        "terminationMessagePath": "/dev/termination-log", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
    }  # fmt: skip
    told = {
        "name": "app", "ready": True, "started": True, "restartCount": 0, "image": "x:1", "imageID": "",
        "state": {"running": {"startedAt": at}}, "lastState": {},
    }  # fmt: skip
    away = [
        {"key": f"node.kubernetes.io/{why}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for why in ("not-ready", "unreachable")
    ]
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "scale", "uid": str(uuid.uuid4()), "creationTimestamp": at,
            "labels": {"app": f"d-{number % 100}", "pod-template-hash": "6d4cf56db6"},
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
        },
        "spec": {
            "containers": [container], "nodeName": f"node-{number % 1000}", "tolerations": away, "priority": 0,
            "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "securityContext": {},
            "schedulerName": "default-scheduler", "terminationGracePeriodSeconds": 30, "serviceAccountName": "default",
        },
        "status": {
            "phase": "Running", "qosClass": "Burstable", "containerStatuses": [told],
            "conditions": [{"type": kind, "status": "True", "lastTransitionTime": at} for kind in _CONDITIONS],
        },
    }  # fmt: skip


def fill(store: EtcdStore, count: int) -> None:
    """Write so many Pods."""
    for first in range(0, count, _BATCH):
        made = [pod(number) for number in range(first, min(first + _BATCH, count))]
        store.write([Put(f"{PREFIX}{one['metadata']['name']}", orjson.dumps(one), 0) for one in made])


def beat(store: EtcdStore, count: int) -> None:
    """Write Leases so many times, as nodes do: what was written last is seldom Pods alone."""
    known: dict[str, int] = {}
    for number in range(count):
        name = f"node-{number % 1000}"
        lease = {"metadata": {"name": name, "namespace": "kube-node-lease"}, "spec": {"leaseTransitions": number}}
        key = f"/registry/coordination.k8s.io/leases/kube-node-lease/{name}"
        known[key] = store.write([Put(key, orjson.dumps(lease), known.get(key, 0))])


def empty(store: EtcdStore) -> None:
    """Delete all Pods, several at a time."""
    entries = iter(store.range(PREFIX).entries)
    lock = threading.Lock()

    def some() -> None:
        while True:
            with lock:
                one = next(entries, None)
            if one is None:
                return
            try:
                store.delete(one.key, one.revision)
            except StoreError as error:
                print(error, flush=True)

    threads = [threading.Thread(target=some) for _ in range(_DELETERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def pages(server: ApiServerProcess) -> Iterator[int]:
    """Yield how many Pods each page of a list has."""
    more = ""
    while True:
        found = server.request("GET", f"/api/v1/namespaces/scale/pods?limit=500{more}").json
        yield len(found["items"])
        if not found["metadata"].get("continue"):
            return
        more = f"&continue={found['metadata']['continue']}"


def tell(name: str, value: float) -> None:
    """Print a figure with the load of the machine."""
    print(f"{name:<44} {value:10.2f}  load {os.getloadavg()[0]:.1f}", flush=True)


def memory(server: ApiServerProcess, when: str) -> None:
    """Tell what the server holds, arbiter and worker together."""
    tell(f"PSS {when} MB", used({"apiserver": server.pid})["apiserver"].pss_mb)


def measure(server: ApiServerProcess, store: EtcdStore, count: int, *, deleted: bool) -> None:
    """Measure a restart with ``count`` Pods, and what lists and a deletion leave."""
    server.start()
    memory(server, "new")
    server.kill9()
    fill(store, count)
    beat(store, BEATS)
    began = time.monotonic()
    server.start()
    tell("serving again s", time.monotonic() - began)
    assert server.request("GET", "/api/v1/namespaces/scale/pods?limit=1").code == 200
    tell("the first Pod listed s", time.monotonic() - began)
    tell("CPU s", used({"apiserver": server.pid})["apiserver"].cpu_s)
    memory(server, "restarted")
    began = time.monotonic()
    assert sum(pages(server)) == count
    tell("all Pods listed by 500 s", time.monotonic() - began)
    memory(server, "after a list by 500")
    began = time.monotonic()
    found = server.request("GET", "/api/v1/pods")
    tell("all Pods listed at once s", time.monotonic() - began)
    tell("that list MB", len(found.body) / 1e6)
    del found
    memory(server, "after a list at once")
    if deleted:
        began = time.monotonic()
        empty(store)
        tell("deleted s", time.monotonic() - began)
        while server.request("GET", "/api/v1/namespaces/scale/pods?limit=1").json["items"]:
            time.sleep(0.2)
        memory(server, "deleted")
        time.sleep(15)
        memory(server, "deleted, 15 s later")


def main() -> int:
    """Measure once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--deleted", action="store_true", help="then delete them all, and measure what stays")
    said = parser.parse_args()
    print(run_now().opening(), flush=True)
    folder = Path(tempfile.mkdtemp(prefix="restart-"))
    etcd = EtcdServer(folder / "etcd", quick=False).start()
    server, store = ApiServerProcess(folder / "api", etcd.endpoint), EtcdStore([etcd.endpoint])
    try:
        measure(server, store, said.pods, deleted=said.deleted)
    finally:
        store.close()
        server.stop()
        etcd.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
