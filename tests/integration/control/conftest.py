"""A real API server on a real etcd for what stands above the client, with each daemon's own identity."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api.kinds import NAMESPACE, NODE
from minik8s_modules.client.api import ApiClient
from minik8s_modules.store.etcd import EtcdStore
from tests.support.apiserver import ApiServerProcess
from tests.support.etcd import EtcdServer
from tests.support.pki import write_kubeconfig
from tests.support.playing import PlayingNode

IDENTITIES = {
    "scheduler": "system:kube-scheduler",
    "controllers": "system:kube-controller-manager",
    "gateway": "system:minik8s:gateway",
    "reconciler": "system:minik8s:reconciler",
    "pilot": "system:minik8s:pilot",
    "monitoring": "system:minik8s:monitoring",
    "virtual": "system:minik8s:virtual",
}


class Cluster:
    """An API server that may be stopped and started, and clients to it."""

    def __init__(self, folder: Path, server: ApiServerProcess) -> None:
        self.folder = folder
        self.server = server
        self.admin = ApiClient(server.url, server.authority.ca, server.admin.cert, server.admin.key)

    def kubeconfig(self, role: str) -> Path:
        """Write the kubeconfig of a daemon's identity."""
        path = self.folder / f"{role}.kubeconfig"
        certificate = self.server.identity(IDENTITIES[role])
        return write_kubeconfig(path, self.server.url, self.server.authority.ca, certificate)

    def client(self, role: str) -> ApiClient:
        """Return a client with a daemon's identity."""
        return ApiClient.from_kubeconfig(self.kubeconfig(role), user_agent=f"test-{role}")

    def daemon(self, role: str) -> Daemon:
        """Return a daemon that is not started yet."""
        config = self.folder / f"{role}.yml"
        config.write_text(yaml.safe_dump({"kubeconfig": str(self.kubeconfig(role))}))
        return Daemon(role, config)

    def namespace(self) -> str:
        """Make a namespace of the test's own."""
        name = f"t-{uuid.uuid4().hex[:8]}"
        self.admin.create(NAMESPACE, {"metadata": {"name": name}})
        return name

    def node(self, **spec: Any) -> str:
        """Register a ready node with 4 cpus, 8 GiB and 110 pods."""
        name = f"n-{uuid.uuid4().hex[:8]}"
        self.admin.create(NODE, {"metadata": {"name": name, "labels": {"test": name}}, "spec": spec})
        amounts = {"cpu": "4", "memory": "8Gi", "pods": "110"}
        status = {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        self.admin.patch(NODE, name, "", {"status": status}, subresource="status")
        return name


class Daemon:
    """One of our daemons as a process."""

    def __init__(self, role: str, config: Path) -> None:
        self.role = role
        self.config = config
        self.log = config.with_suffix(".log")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Daemon:
        """Start the process."""
        module = f"minik8s_modules.{self.role}.main"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([sys.executable, "-m", module, "--config", str(self.config)], stderr=log)
        return self

    def kill9(self) -> None:
        """Kill the process and reap it."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(60)

    def stop(self) -> int:
        """End the process politely; return its exit code."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(60)


def pod(name: str, namespace: str, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "app", "image": "minik8s/busybox:1"}]
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"containers": containers, **spec}}


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    etcd = EtcdServer(tmp_path_factory.mktemp("etcd")).start()
    store = EtcdStore([etcd.endpoint])
    past = [store.create(f"/past/{number}", b"x") for number in range(3)]
    store.compact(past[-1])  # so that the API server's cache does not know it
    store.close()
    yield etcd
    etcd.stop()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, etcd: EtcdServer) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    server = ApiServerProcess(folder / "api", etcd.endpoint).start()
    cluster = Cluster(folder, server)
    yield cluster
    cluster.admin.close()
    server.stop()


@pytest.fixture(scope="module")
def daemon(cluster: Cluster) -> Iterator[Daemon]:
    """Yield the controllers, running."""
    daemon = cluster.daemon("controllers").start()
    yield daemon
    daemon.stop()


@pytest.fixture(scope="module")
def scheduler(cluster: Cluster) -> Iterator[Daemon]:
    """Yield the scheduler, running."""
    daemon = cluster.daemon("scheduler").start()
    yield daemon
    daemon.stop()


@pytest.fixture(scope="module")
def node(cluster: Cluster) -> Iterator[PlayingNode]:
    """Yield what plays the nodes of pods."""
    node = PlayingNode(cluster.admin).start()
    yield node
    node.stop()
