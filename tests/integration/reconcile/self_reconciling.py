"""Nodes of this machine that reconcile themselves, and their control plane: see test_self_reconciling_nodes.py."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import (
    NODE,
    POD,
)
from minik8s_modules.api.objects import JsonObject
from tests.integration.reconcile.conftest import ROOT, Cluster, Daemon
from tests.support.apiserver import ApiServerProcess
from tests.support.docker.pause import pause_image
from tests.support.etcd import free_port
from tests.support.node import SOCKET, TestNode
from tests.support.pki import write_kubeconfig

NODE_FILE = """\
apiVersion: v1
kind: Node
metadata:
  name: ignored-by-server
  labels: {tier: front, disk: %s}
spec:
  staticPodPath: %s
"""
# never images: this Docker has those of others
HOUSEKEEPING = {
    "manifests_every_s": 1,
    "eviction_hard": {},
    "image_gc": {"high_percent": 100, "low_percent": 100},
}


class Signer(Daemon):
    """The daemon that signs."""

    def start(self) -> None:
        """Start the process."""
        argv = [sys.executable, "-m", "minik8s_modules.controllers.access.certificates", "--config", str(self.config)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(argv, stderr=log, stdout=log, cwd=ROOT, env=self._environment)


class ControlPlane(Cluster):
    """A control plane without hosts."""

    def _server(self) -> ApiServerProcess:
        # nodes' gateways have certificates of the cluster's authority, so the API server's is of that one, too
        pki = self.folder / "api" / "pki"
        client = {"cert": str(pki / "caller.crt"), "key": str(pki / "caller.key"), "ca": str(pki / "cluster.crt")}
        made = ApiServerProcess(
            self.folder / "api", self.etcd.endpoint, service_cidr=self.node.services, reconciler_client=client
        )
        made.authority.issue("caller", "system:minik8s:apiserver")
        return made

    def _configs(self) -> dict[str, JsonObject]:
        self.plan_serving = self.stream_serving = self.server.authority.issue("serving", "minik8s-serving")
        self.plan_ca = self.server.authority.ca
        configs = super()._configs()
        (self.folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {}}}))
        first, second, third = (int(part) for part in self.node.range.split("."))
        self.cluster_cidr = f"{first}.{second}.{third & 252}.0/22"
        configs["reconcile"] |= {"cluster_cidr": self.cluster_cidr}
        key = self.folder / "ca.key"
        key.write_bytes(self.server.authority.key_pem)
        configs["certificates"] = {"authority": {"cert": str(self.server.authority.ca), "key": str(key)}}
        return configs

    def _daemon(self, room: str, config: JsonObject) -> Daemon:
        if room != "certificates":
            return super()._daemon(room, config)
        identity = self.server.identity("system:minik8s:certificates")
        path = self.folder / "certificates.yml"
        kubeconfig = write_kubeconfig(
            self.folder / "certificates.kubeconfig", self.server.url, self.server.authority.ca, identity
        )
        path.write_text(yaml.safe_dump({"kubeconfig": str(kubeconfig), **config}))
        return Signer(room, path, dict(os.environ))

    def minik8s(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run the command as the administrator."""
        argv = [sys.executable, "-m", "minik8s_modules.cli.main", f"--kubeconfig={self.server.kubeconfig}", *words]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=ROOT, timeout=60)
        assert not check or done.returncode == 0, done.stderr + done.stdout
        return done

    def join_words(self, *words: str) -> list[str]:
        """Return what a new join command says behind ``minik8s reconciler --node NAME``, without the file."""
        printed = self.minik8s("token", "create", "--print-join-command", *words).stdout.split()
        assert printed[:4] == ["minik8s", "reconciler", "--node", "NAME"]
        assert printed[-2:] == ["-c", "node.yml"]
        return printed[4:-2]

    def pods_on(self, node: str) -> list[JsonObject]:
        """Return the pods bound to a node."""
        return [pod for pod in self.admin.list(POD).items if objects.spec(pod).get("nodeName") == node]

    def is_ready(self, node: str) -> bool:
        """Return whether a Node is Ready; one that is not there raises NotFound."""
        return (objects.condition(self.admin.get(NODE, node), "Ready") or {}).get("status") == "True"


class JoinedNode:
    """A node of this machine with a reconciler of its own."""

    def __init__(self, plane: ControlPlane, folder: Path, disk: str) -> None:
        folder.mkdir()
        for each in (folder, plane.folder):
            each.chmod(0o711)  # the process of streams is another user's
        self.plane, self.folder = plane, folder
        self.machine = TestNode(folder)
        self.name = self.machine.name
        self.process: subprocess.Popen[bytes] | None = None
        self.words: tuple[str, ...] = ()
        self.log = folder / "log"
        self.file = folder / "node.yml"
        self.manifests = folder / "manifests"
        self.file.write_text(NODE_FILE % (disk, self.manifests))
        self.settings = folder / "settings.yml"
        own = {"bridge": self.machine.bridge, "pause_image": pause_image(SOCKET), "housekeeping": HOUSEKEEPING}
        ports = {"stream_port": free_port(), "plan_port": free_port()}
        self.settings.write_text(yaml.safe_dump(own | ports))

    def argv(self, *words: str) -> list[str]:
        """Return the command."""
        return [
            *(sys.executable, "-m", "minik8s_modules.cli.main", "reconciler", "--node", self.name),
            *(f"--state-dir={self.machine.state_dir}", f"--run-dir={self.machine.run_dir}"),
            *(f"--docker-socket={SOCKET}", f"--settings={self.settings}", "-c", str(self.file)),
            *words,
        ]

    def environment(self) -> dict[str, str]:
        """Return the environment, with a warm interpreter of its own."""
        found = {**os.environ, "MINIK8S_WARM_DIRECTORY": str(self.folder / "w"), "MINIK8S_WARM_IDLE_S": "5"}
        found.pop("PYTHONDONTWRITEBYTECODE", None)
        return found

    def start(self, *words: str) -> None:
        """Start it; ``words`` as a join command prints them."""
        self.words = words = words or ("-j", self.plane.server.url)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.argv(*words), stdout=log, stderr=log, cwd=ROOT, env=self.environment())

    def refused(self, *words: str) -> str:
        """Return what a start that cannot work says."""
        done = subprocess.run(
            self.argv(*words), capture_output=True, text=True, cwd=ROOT, env=self.environment(), timeout=90, check=False
        )
        assert done.returncode in {1, 2}, done.stderr
        return done.stderr

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        """End it, by default as Ctrl-C does; return its exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(120)

    def close(self) -> None:
        """End it and remove what it left."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.machine.close()

    def until(self, condition: Callable[[], Any], timeout_s: float = 90) -> Any:
        """Wait; on failure show the log."""
        try:
            return self.plane.until(condition, timeout_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n--- {self.name}\n{self.log.read_text()[-6000:]}") from error
