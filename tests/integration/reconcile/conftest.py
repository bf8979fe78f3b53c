"""The whole path: etcd, API server, scheduler, gateway, reconciler as processes, Docker and Ansible as they are."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound, StatusError
from minik8s_modules.api.kind import Kind
from minik8s_modules.api.kinds import (
    CONFIG_MAP,
    EVENT,
    NAMESPACE,
    NODE,
    PLAN,
    POD,
    POD_ADDRESS,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
)
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.client.api import ApiClient, Warn
from minik8s_modules.reconcile.network.services import kubernetes_address
from tests.support.apiserver import ApiServerProcess
from tests.support.docker.pause import pause_image
from tests.support.etcd import EtcdServer, free_port
from tests.support.node import SOCKET, TestNode
from tests.support.pki import Authority, write_kubeconfig
from tests.support.waiting import nap

ROOT = Path(__file__).resolve().parents[3]
IMAGE = "minik8s/busybox:1"
PILOT = "minik8s-pilot.kube-system.svc.cluster.local"
# what a new cluster has by itself
OF_THE_CLUSTER = {"default", "kube-root-ca.crt", "kubernetes"}
SPACES = {"default", "kube-system", "kube-public", "kube-node-lease"}
IDENTITIES = {
    "scheduler": "system:kube-scheduler",
    "controllers": "system:kube-controller-manager",
    "gateway": "system:minik8s:gateway",
    "reconcile": "system:minik8s:reconciler",
    "mesh": "system:minik8s:pilot",
}


class Daemon:
    """One of our daemons as a process of its own."""

    def __init__(self, room: str, config: Path, environment: dict[str, str]) -> None:
        self.room, self.config, self._environment = room, config, environment
        self.log = config.with_suffix(".log")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process."""
        argv = [sys.executable, "-m", f"minik8s_modules.{self.room}.main", "--config", str(self.config)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(argv, stderr=log, stdout=log, cwd=ROOT, env=self._environment)

    def kill(self) -> None:
        """Kill it at once."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(60)

    def stop(self) -> int:
        """End it politely; return its exit code."""
        assert self.process is not None
        self.process.terminate()
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise


class Cluster:
    """One node on this machine with all that makes it a cluster; ``spaces`` are the namespaces that stay."""

    spaces = frozenset(SPACES)

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.node = TestNode(folder)
        self.etcd = EtcdServer(folder / "etcd").start()
        try:
            self.server = self._server().start()
        except BaseException:
            self.etcd.stop()
            raise
        self.admin = self.person(None)
        self.daemons = {room: self._daemon(room, config) for room, config in self._configs().items()}

    def person(self, warn: Warn | None = logging.warning) -> ApiClient:
        """Return a client of the administrator with the patience of the commands; without ``warn`` with a daemon's."""
        server = self.server
        return ApiClient(server.url, server.authority.ca, server.admin.cert, server.admin.key, warn=warn)

    def _server(self) -> ApiServerProcess:
        """Return an API server that may ask this cluster's reconciler for plans."""
        asks = Authority(self.folder / "plans", "plans")
        self.plan_serving = asks.issue("reconciler", "minik8s-reconciler")
        self.stream_serving = asks.issue("gateway", "minik8s-gateway")
        self.plan_ca, self.asks = asks.ca, asks
        caller = asks.issue("caller", "system:minik8s:apiserver")
        client = {"cert": str(caller.cert), "key": str(caller.key), "ca": str(asks.ca)}
        usual: dict[str, Any] = {
            "addresses": (f"{self.node.range}.1", kubernetes_address(self.node.services).rpartition(":")[0]),
            "reconciler_client": client,
            "listen_address": "0.0.0.0",  # pods reach it through their bridge
            "advertise_address": f"{self.node.range}.1",
            "service_cidr": self.node.services,
            "mesh": True,
        }
        return ApiServerProcess(self.folder / "api", self.etcd.endpoint, **usual | self.offers())

    def offers(self) -> dict[str, Any]:
        """Return what else the API server is configured with, or otherwise; a test's own cluster says more."""
        return {}

    def _configs(self) -> dict[str, JsonObject]:
        inventory = self.folder / "hosts.yml"
        variables = {
            "ansible_connection": "warm_local",
            "minik8s_state_dir": self.node.state_dir,
            "minik8s_run_dir": self.node.run_dir,
            "minik8s_docker_socket": SOCKET,
        }
        inventory.write_text(yaml.safe_dump({"all": {"hosts": {self.node.name: variables}}}))
        key = self.folder / "hmac.key"
        key.write_text("5ecret" * 8)
        socket = self.folder / "gw.sock"
        port = free_port()
        return {
            "scheduler": {},
            "controllers": {},
            "gateway": {
                "inventory": str(inventory),
                "socket": str(socket),
                "run_dir": str(self.folder / "gw"),
                "streams": {
                    "socket": str(self.folder / "streams.sock"),
                    "user": pwd.getpwuid(os.geteuid()).pw_name,
                    "advertise": f"127.0.0.1:{port}",
                    "client_ca": str(self.plan_ca),
                },
            },
            "streams": {
                "listen": f"127.0.0.1:{port}",
                "cert": str(self.stream_serving.cert),
                "key": str(self.stream_serving.key),
                "client_ca": str(self.plan_ca),
                "gateway_socket": str(self.folder / "streams.sock"),
            },
            "reconcile": {
                "inventory": str(inventory),
                "gateway_socket": str(socket),
                "private_data_dir": str(self.folder / "p"),
                "project_dir": str(ROOT),
                "hmac_key_file": str(key),
                "cluster_cidr": f"{self.node.range}.0/24",
                "bridge": self.node.bridge,
                "pause_image": pause_image(SOCKET),
                "service_cidr": self.node.services,
                "mesh": True,
                "plan": {
                    "listen": "127.0.0.1:0",
                    "cert": str(self.plan_serving.cert),
                    "key": str(self.plan_serving.key),
                    "client_ca": str(self.plan_ca),
                },
            },
        }

    def _daemon(self, room: str, config: JsonObject) -> Daemon:
        path = self.folder / f"{room}.yml"
        if room in IDENTITIES:
            ca, certificate = self.server.authority.ca, self.server.identity(IDENTITIES[room])
            kubeconfig = write_kubeconfig(self.folder / f"{room}.kubeconfig", self.server.url, ca, certificate)
            config = {"kubeconfig": str(kubeconfig), **config}
        path.write_text(yaml.safe_dump(config))
        environment = {**os.environ, "MINIK8S_WARM_DIRECTORY": str(self.folder / "w"), "MINIK8S_WARM_IDLE_S": "5"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        return Daemon(room, path, environment)

    def add_pilot(self) -> Daemon:
        """Start a pilot, at the address and port at which sidecars look for it by name."""
        serving = self.server.authority.issue("pilot", "minik8s-pilot", names=(PILOT,))
        config = {
            "listen": f"{self.node.range}.1:15012",
            "tls": {"cert": str(serving.cert), "key": str(serving.key)},
            "metrics": {"listen": f"127.0.0.1:{free_port()}"},
        }
        self.daemons["mesh"] = self._daemon("mesh", config)
        self.daemons["mesh"].start()
        return self.daemons["mesh"]

    def start(self) -> None:
        """Start all daemons."""
        for daemon in self.daemons.values():
            daemon.start()

    def close(self) -> None:
        """End everything and remove what is left."""
        for daemon in self.daemons.values():
            if daemon.process is not None and daemon.process.poll() is None:
                daemon.stop()
        self.admin.close()
        self.server.stop()
        self.etcd.stop()
        self.node.close()

    def logs(self) -> str:
        """Return the ends of the daemons' logs."""
        return "\n".join(f"--- {room}\n{daemon.log.read_text()[-4000:]}" for room, daemon in self.daemons.items())

    # objects

    def create(self, name: str, command: list[str] | None = None, **spec: Any) -> JsonObject:
        """Create a pod with one container."""
        container = {"name": "app", "image": IMAGE, "command": command or ["sleep", "3600"]}
        body = {"metadata": {"name": name, "namespace": "default"}, "spec": {"containers": [container], **spec}}
        return self.admin.create(POD, body)

    def kubectl(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run kubectl."""
        return self.server.kubectl(*arguments, **options)

    def plan(self, **spec: Any) -> JsonObject:
        """Return the status of a plan with ``objects``, ``deleted``, ``nodes``."""
        body = {"apiVersion": "minik8s.io/v1", "kind": "Plan", "metadata": {}, "spec": spec}
        return dict(self.admin.create(PLAN, body)["status"])

    def pod(self, name: str) -> JsonObject:
        """Return the pod."""
        return self.admin.get(POD, name, "default")

    def ready(self, name: str) -> bool:
        """Return whether the pod is Ready."""
        conditions = self.pod(name)["status"].get("conditions") or []
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def container(self, name: str) -> JsonObject:
        """Return the first container's status."""
        return dict((self.pod(name)["status"].get("containerStatuses") or [{}])[0])

    def events(self, name: str) -> list[str]:
        """Return the pod's events."""
        found = self.admin.list(EVENT, "default").items
        return [f"{one['reason']}: {one['message']}" for one in found if one["involvedObject"]["name"] == name]

    def addresses(self) -> list[str]:
        """Return the claimed addresses."""
        return sorted(one["metadata"]["name"] for one in self.admin.list(POD_ADDRESS).items)

    def delete(self, name: str, grace_s: int | None = None) -> None:
        """Delete the pod."""
        self.admin.delete(POD, name, "default", grace_s=grace_s)

    def gone(self, name: str) -> bool:
        """Return whether the pod object is gone."""
        return all(one["metadata"]["name"] != name for one in self.admin.list(POD, "default").items)

    def clear(self) -> None:
        """Remove what tests have made: namespaces, and in ``default`` pods, what they mount and are, and Events."""
        for one in self.admin.list(NAMESPACE).items:
            if objects.name(one) not in self.spaces and not objects.is_deleting(one):
                self.admin.delete(NAMESPACE, objects.name(one))
        for kind in (POD, SERVICE, CONFIG_MAP, SECRET, SERVICE_ACCOUNT, ROLE_BINDING, ROLE):
            self._clear(kind)
        self.until(lambda: {objects.name(one) for one in self.admin.list(NAMESPACE).items} <= self.spaces)
        self.until(lambda: (self.node.ids(), self.addresses(), self.admin.list(POD).items) == ([], [], []))
        self.admin.delete_collection(EVENT, "default")

    def _clear(self, kind: Kind) -> None:
        for one in self.admin.list(kind, "default").items:
            if objects.name(one) not in OF_THE_CLUSTER:
                with contextlib.suppress(NotFound):
                    self.admin.delete(kind, objects.name(one), "default", grace_s=0 if kind is POD else None)

    def until(self, condition: Callable[[], Any], timeout_s: float = 60.0) -> Any:
        """Wait until ``condition`` holds; refusals count as not yet."""
        begun = time.monotonic()
        while time.monotonic() < begun + timeout_s:
            try:
                if value := condition():
                    return value
            except (StatusError, TemporaryError):
                pass
            nap(begun)
        pods = [{one["metadata"]["name"]: one["status"]} for one in self.admin.list(POD, "default").items]
        raise AssertionError(f"not within {timeout_s} s\n{json.dumps(pods, indent=1)}\n{self.logs()}")

    def registered(self) -> bool:
        """Return whether the node is Ready."""
        conditions = objects.status(self.admin.get(NODE, self.node.name)).get("conditions") or []
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


@contextlib.contextmanager
def running(of: type[Cluster] = Cluster) -> Iterator[Cluster]:
    """Run a cluster whose node is Ready."""
    folder = Path(tempfile.mkdtemp(prefix="mk8s-"))
    made = of(folder)
    try:
        made.start()
        made.until(made.registered, 180)
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="package")
def shared() -> Iterator[Cluster]:
    """One cluster for the modules of this folder that a process runs in a row; in CI a start takes half a minute."""
    with running() as made:
        yield made


@pytest.fixture(scope="module")
def cluster(shared: Cluster) -> Cluster:
    """The process's cluster, as empty as a new one."""
    shared.clear()
    return shared
