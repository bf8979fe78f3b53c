"""API server, scheduler and controllers as the processes they are, each with its own certificate and role."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.apiserver import ROOT, ApiServerProcess
from tests.support.etcd import EtcdServer
from tests.support.pki import write_kubeconfig

DAEMONS = {"scheduler": "system:kube-scheduler", "controllers": "system:kube-controller-manager"}
READY = {"type": "Ready", "status": "True", "reason": "x", "message": "x"}
POD = {"spec": {"containers": [{"name": "c", "image": "busybox"}]}}


class Daemon:
    """One of our daemons against ``server``; ``log`` is what it said."""

    def __init__(self, server: ApiServerProcess, name: str, user: str) -> None:
        folder = server.directory / name
        folder.mkdir()
        kubeconfig = write_kubeconfig(folder / "kubeconfig", server.url, server.authority.ca, server.identity(user))
        config = folder / "config.yml"
        config.write_text(yaml.safe_dump({"kubeconfig": str(kubeconfig)}))
        self.log = folder / "log"
        with self.log.open("wb") as log:
            argv = [sys.executable, "-m", f"minik8s_modules.{name}.main", "--config", str(config)]
            self._process = subprocess.Popen(argv, cwd=ROOT, stdout=log, stderr=log)

    def stop(self) -> None:
        """End it politely."""
        self._process.terminate()
        assert self._process.wait(timeout=60) == 0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServerProcess]:
    etcd = EtcdServer(tmp_path_factory.mktemp("etcd")).start()
    api = ApiServerProcess(tmp_path_factory.mktemp("api"), etcd.endpoint).start()
    daemons = [Daemon(api, name, user) for name, user in DAEMONS.items()]
    yield api
    for daemon in daemons:
        daemon.stop()
        assert "cannot" not in _refusals(daemon.log), daemon.log.read_text()
    api.stop()
    etcd.stop()


def _refusals(log: Path) -> str:
    return "\n".join(line for line in log.read_text().splitlines() if "forbidden" in line)


def _eventually(check: Callable[[], Any], timeout_s: float = 20.0) -> Any:
    deadline = time.monotonic() + timeout_s
    while not (found := check()):
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.05)
    return found


def _node(server: ApiServerProcess, name: str) -> None:
    resources = {"cpu": "4", "memory": "4Gi", "pods": "110"}
    assert server.request("POST", "/api/v1/nodes", {"metadata": {"name": name}}).code == 201
    status = {"status": {"conditions": [READY], "capacity": resources, "allocatable": resources}}
    headers = {"Content-Type": "application/merge-patch+json"}
    assert server.request("PATCH", f"/api/v1/nodes/{name}/status", status, headers=headers).code == 200
    now = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
    lease = {"metadata": {"name": name}, "spec": {"holderIdentity": name, "renewTime": now}}
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    assert server.request("POST", path, lease).code == 201


def test_a_pod_is_bound_to_a_ready_node(server: ApiServerProcess):
    _node(server, "n1")
    pods = "/api/v1/namespaces/default/pods"
    assert server.request("POST", pods, {"metadata": {"name": "web"}, **POD}).code == 201
    _eventually(lambda: server.request("GET", f"{pods}/web").json["spec"].get("nodeName") == "n1")
    assert server.request("DELETE", f"{pods}/web", {"gracePeriodSeconds": 0}).code == 200


def test_a_pod_that_fits_nowhere_says_why(server: ApiServerProcess):
    spec = {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "400"}}}]}
    pods = "/api/v1/namespaces/default/pods"
    assert server.request("POST", pods, {"metadata": {"name": "huge"}, "spec": spec}).code == 201

    def is_reported() -> bool:
        conditions = server.request("GET", f"{pods}/huge").json["status"].get("conditions") or []
        return any(each["type"] == "PodScheduled" and each["status"] == "False" for each in conditions)

    _eventually(is_reported)
    events = "/api/v1/namespaces/default/events?fieldSelector=reason%3DFailedScheduling"
    _eventually(lambda: bool(server.request("GET", events).json["items"]))


def test_a_deleted_namespace_is_emptied_and_goes(server: ApiServerProcess):
    server.kubectl("create", "namespace", "doomed")
    server.kubectl("create", "configmap", "c", "-n", "doomed")
    server.kubectl("create", "service", "clusterip", "s", "--tcp=80", "-n", "doomed")
    done = server.kubectl("delete", "namespace", "doomed", "--timeout=30s")
    assert 'namespace "doomed" deleted' in done.stdout
    assert server.request("GET", "/api/v1/namespaces/doomed/configmaps").json["items"] == []
