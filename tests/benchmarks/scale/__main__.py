"""``make scale``: a control plane of its own with thousands of simulated nodes and Pods, and what each step costs.

    python -m tests.benchmarks.scale --nodes 1000 --pods 20000 [--rollout 5000] [--patience 3600] [--rest 300]

etcd, API server, controllers and scheduler run as in an installation, beside two processes of ``minik8s-virtual``: one
carries nine tenths of the nodes, the other those that will fail. No reconciler and no gateway: nothing is a machine.
Steps: nodes, Pods, a rolling update, a failure of a tenth of the nodes, restarts by kill -9, deletion of a namespace;
``--steps nodes,creation`` takes some of them, in this order. Each prints a line; the last one is JSON of all. A bar is
the limit this project holds itself to on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.errors import AlreadyExists, StatusError
from minik8s_modules.api.kinds import DEPLOYMENT, NAMESPACE, NODE
from minik8s_modules.base.errors import TemporaryError
from tests.benchmarks.machine import daemon_environment, run_now
from tests.benchmarks.scale.asking import asked
from tests.benchmarks.scale.watching import BOUND, CREATED, RUNNING, Times, buckets, latencies, quantile, used
from tests.integration.control.conftest import Cluster, Daemon
from tests.support.apiserver import ApiServerProcess
from tests.support.etcd import EtcdServer

SPACE = "scale"
A_DEPLOYMENT = 500
HEARTBEATS_S = 120.0
TOLERATED = [{"key": "virtual-kubelet.io/provider", "operator": "Exists"}]
BARS = {
    "pods/s to Running": 80.0, "creation: get p99 <= ms": 50.0, "creation: GET by a client p99 ms": 50.0,
    "PSS apiserver MB": 700.0, "PSS controllers MB": 400.0,
    "PSS scheduler MB": 300.0, "apiserver restart s": 10.0, "idle CPU of apiserver and etcd %": 40.0,
}  # fmt: skip


class Run:
    """One run: the control plane, the nodes, and the figures so far."""

    def __init__(
        self, folder: Path, nodes: int, pods: int, patience_s: float, rest_s: float = 0.0, workers: int = 1
    ) -> None:
        self.nodes, self.pods, self._patience_s, self.rest_s = nodes, pods, patience_s, rest_s
        self.figures: dict[str, float] = {}
        self.etcd = EtcdServer(folder / "etcd", quick=False).start()
        self.server = ApiServerProcess(folder / "api", self.etcd.endpoint, workers=workers).start()
        self.cluster = Cluster(folder, self.server)
        self.client = self.cluster.admin
        self.tell("PSS apiserver new MB", used({"apiserver": self.server.pid})["apiserver"].pss_mb)
        lost = max(1, nodes // 10)
        self.daemons = {role: self.cluster.daemon(role) for role in ("controllers", "scheduler")}
        self.daemons["virtual"] = self._virtual("steady", nodes - lost, lease_s=240)
        self.daemons["failing"] = self._virtual("failing", lost, lease_s=40)
        for daemon in self.daemons.values():
            daemon.start()
        self.times = Times(self.client)

    def _virtual(self, name: str, count: int, lease_s: int) -> Daemon:
        per_node = max(30, 3 * self.pods // self.nodes)
        row = {
            "name": f"{name}-{{index}}", "count": count, "provider": "simulated", "labels": {"part": name},
            "config": {"cpu": "1000", "memory": "4Ti", "pods": str(per_node)},
        }  # fmt: skip
        config = self.cluster.folder / f"{name}.yml"
        told = {"kubeconfig": str(self.cluster.kubeconfig("virtual")), "nodes": [row], "lease_seconds": lease_s}
        config.write_text(yaml.safe_dump({**told, "status_seconds": 300}))
        return Daemon("virtual", config)

    def close(self) -> None:
        """End everything."""
        self.times.stop()
        for daemon in self.daemons.values():
            if daemon.process is not None and daemon.process.poll() is None:
                daemon.kill9()
        self.client.close()
        self.server.stop()
        self.etcd.stop()

    def tell(self, name: str, value: float) -> None:
        """Note a figure and print it, with its bar and the load of the machine."""
        self.figures[name] = round(value, 3)
        bar = f"  bar {BARS[name]:g}" if name in BARS else ""
        print(f"{name:<44} {value:10.2f}{bar}  load {os.getloadavg()[0]:.1f}", flush=True)

    def until(self, condition: Callable[[], Any], pause_s: float = 0.2) -> float:
        """Wait for ``condition`` and return how long that took; raises TimeoutError."""
        began = time.monotonic()
        while not _holds(condition):
            if time.monotonic() - began > self._patience_s:
                raise TimeoutError(f"not within {self._patience_s:g} s")
            time.sleep(pause_s)
        return time.monotonic() - began

    @contextmanager
    def measured(self, name: str) -> Iterator[None]:
        """Tell CPU by part, and the latency of requests, of what happens within."""
        roots = self.roots()
        before, requests, began = used(roots), self._buckets(), time.monotonic()
        yield
        span_s, after = time.monotonic() - began, used(roots)
        self.tell(f"{name} s", span_s)
        for part, pid in roots.items():
            if self.roots().get(part) == pid:
                self.tell(f"{name}: CPU {part} %", 100 * (after[part].cpu_s - before[part].cpu_s) / span_s)
        for verb, limit_s in latencies(requests, self._buckets(), 0.99).items():
            if verb in {"get", "list", "create", "update", "patch", "delete"}:
                self.tell(f"{name}: {verb} p99 <= ms", 1000 * limit_s)

    def roots(self) -> dict[str, int]:
        """Return the processes by part."""
        alive = {part: daemon.process.pid for part, daemon in self.daemons.items() if daemon.process is not None}
        return {"apiserver": self.server.pid, "etcd": self.etcd.pid, **alive}

    def _buckets(self) -> dict[tuple[str, float], float]:
        return buckets(self.server.request("GET", "/metrics").body.decode())

    def memory(self) -> None:
        """Tell what each part holds now, and how large etcd's file is."""
        for part, one in used(self.roots()).items():
            self.tell(f"PSS {part} MB", one.pss_mb)
        files = (path for path in self.etcd.data_dir.rglob("db") if path.is_file())
        self.tell("etcd MB", sum(path.stat().st_size for path in files) / 1e6)


def _holds(condition: Callable[[], Any]) -> Any:
    try:
        return condition()
    except AlreadyExists:  # it came through, and its answer was lost
        return True
    except StatusError as error:  # without etcd the server says that it is not ready
        if error.code < HTTPStatus.INTERNAL_SERVER_ERROR:
            raise
        return False
    except TemporaryError:  # a connection of before a restart
        return False


def ready_nodes(run: Run) -> int:
    """Return how many nodes are ready."""
    conditions = (objects.condition(each, "Ready") or {} for each in run.client.list(NODE).items)
    return sum(each.get("status") == "True" for each in conditions)


def deployment(name: str, replicas: int) -> dict[str, Any]:
    """Return a Deployment whose Pods may run on virtual nodes."""
    labels = {"app": name}
    container = {"name": "app", "image": "x:1", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [container], "tolerations": TOLERATED}}
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": pod, "strategy": rolling}
    return {"metadata": {"name": name, "namespace": SPACE}, "spec": spec}


def nodes(run: Run) -> None:
    """All nodes register and are ready; then they only renew."""
    with run.measured("nodes"):
        run.until(lambda: ready_nodes(run) == run.nodes, 1.0)
    before, began = used(run.roots()), time.monotonic()
    time.sleep(min(HEARTBEATS_S, run.nodes / 10))
    span_s, after = time.monotonic() - began, used(run.roots())
    spent_s = sum(after[part].cpu_s - before[part].cpu_s for part in ("apiserver", "etcd"))
    run.tell("idle CPU of apiserver and etcd %", 100 * spent_s / span_s)


def creation(run: Run, rollout: int) -> None:
    """Deployments are created until all Pods run."""
    run.client.create(NAMESPACE, {"metadata": {"name": SPACE}})
    rest = max(0, run.pods - rollout)
    with asked(run.server.kubeconfig) as gets, run.measured("creation"):
        run.client.create(DEPLOYMENT, deployment("rolling", rollout))
        for number in range(0, rest, A_DEPLOYMENT):
            run.client.create(DEPLOYMENT, deployment(f"d-{number}", min(A_DEPLOYMENT, rest - number)))
        took_s = run.until(lambda: run.times.running() >= run.pods)
    run.tell("pods/s to Running", run.pods / took_s)
    run.tell("creation: GET by a client p50 ms", 1000 * quantile(gets, 0.5))
    run.tell("creation: GET by a client p99 ms", 1000 * quantile(gets, 0.99))
    for begin, end in ((CREATED, BOUND), (BOUND, RUNNING), (CREATED, RUNNING)):
        spans = run.times.spans(begin, end)
        run.tell(f"{begin} to {end} p50 s", quantile(spans, 0.5))
        run.tell(f"{begin} to {end} p99 s", quantile(spans, 0.99))
    run.memory()


def rolling_update(run: Run, rollout: int) -> None:
    """A Deployment of ``rollout`` Pods has another template."""
    template = {"metadata": {"annotations": {"version": "2"}}}
    run.times.forget()

    def done() -> bool:
        found = run.client.get(DEPLOYMENT, "rolling", SPACE)
        status = objects.status(found)
        seen = status.get("observedGeneration") == found["metadata"]["generation"]
        return bool(seen and status.get("updatedReplicas") == status.get("availableReplicas") == rollout
                    and status.get("replicas") == rollout)  # fmt: skip

    with run.measured("rolling update"):
        run.client.patch(DEPLOYMENT, "rolling", SPACE, {"spec": {"template": template}})
        run.tell("rolling update pods/s", rollout / max(run.until(done, 1.0), 0.001))


def failure(run: Run) -> None:
    """A tenth of the nodes falls silent, and comes back."""
    failing = run.daemons["failing"]
    lost = max(1, run.nodes // 10)
    with run.measured("failure"):
        failing.kill9()
        failing.process = None
        run.until(lambda: ready_nodes(run) <= run.nodes - lost, 1.0)
    failing.start()
    run.tell("back after failure s", run.until(lambda: ready_nodes(run) == run.nodes, 1.0))


def restarts(run: Run) -> None:
    """Each daemon is killed and started; it is back when it has done something new."""
    run.server.kill9()
    began = time.monotonic()
    run.server.start()
    # one Pod: reading all of tens of thousands takes longer here than in the server
    run.until(lambda: run.server.request("GET", f"/api/v1/namespaces/{SPACE}/pods?limit=1").code == HTTPStatus.OK)
    run.tell("apiserver restart s", time.monotonic() - began)
    for part in ("etcd", "controllers", "scheduler", "virtual"):
        ends: Daemon | EtcdServer = run.etcd if part == "etcd" else run.daemons[part]
        ends.kill9()
        began = time.monotonic()
        ends.start()
        name = f"after-{part}"
        run.until(lambda name=name: run.client.create(DEPLOYMENT, deployment(name, 1)))  # type: ignore[misc]
        run.until(lambda name=name: objects.status(run.client.get(DEPLOYMENT, name, SPACE)).get("readyReplicas"))  # type: ignore[misc]
        run.tell(f"{part} restart s", time.monotonic() - began)


def deletion(run: Run) -> None:
    """The namespace goes with all Pods."""
    with run.measured("namespace deletion"):
        run.client.delete(NAMESPACE, SPACE)
        took_s = run.until(lambda: not run.times.there())
    run.tell("pods/s deleted", run.pods / took_s)
    run.memory()
    if run.rest_s:
        time.sleep(run.rest_s)  # events of the past stay for some minutes
        for part, one in used(run.roots()).items():
            run.tell(f"PSS {part} after a rest MB", one.pss_mb)


STEPS: dict[str, Callable[[Run, int], None]] = {
    "nodes": lambda run, _rollout: nodes(run),
    "creation": creation,
    "rollout": rolling_update,
    "failure": lambda run, _rollout: failure(run),
    "restarts": lambda run, _rollout: restarts(run),
    "deletion": lambda run, _rollout: deletion(run),
}


def main() -> int:
    """Run all steps; return 1 where one did not end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=20000)
    parser.add_argument("--rollout", type=int, default=5000, help="replicas of the Deployment that is updated")
    parser.add_argument("--patience", type=float, default=3600.0, help="seconds that each step may take")
    parser.add_argument("--workers", type=int, default=1, help="processes of the API server")
    parser.add_argument("--rest", type=float, default=0.0, help="seconds of rest before the last look at memory")
    parser.add_argument("--steps", default=",".join(STEPS), help="default: %(default)s")
    said = parser.parse_args()
    wanted = said.steps.split(",")
    if unknown := {*wanted} - {*STEPS}:
        parser.error(f"--steps: no such step: {', '.join(sorted(unknown))}")
    rollout = min(said.rollout, said.pods)
    print(run_now().opening(), flush=True)
    os.environ.update(daemon_environment() | os.environ)
    folder = Path(tempfile.mkdtemp(prefix="scale-"))
    run = Run(folder, said.nodes, said.pods, said.patience, said.rest, said.workers)
    try:
        for name, step in STEPS.items():
            if name in wanted:
                step(run, rollout)
    except TimeoutError as error:
        print(error, file=sys.stderr)
        return 1
    else:
        return 0
    finally:
        print(json.dumps(run.figures), flush=True)
        run.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    raise SystemExit(main())
