"""A whole cluster on this machine with controllers, and pods that serve HTTP behind Services."""

from __future__ import annotations

import http.client
import os
import shutil
import subprocess
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.api.kinds import ENDPOINT_SLICE, NAMESPACE, POD, SERVICE
from minik8s_modules.api.objects import JsonObject
from tests.integration.reconcile import conftest as whole_path
from tests.lab.lab import Lab
from tests.support.node import SOCKET

SERVER = 'mkdir -p /tmp/w && echo "$POD" > /tmp/w/index.html && exec httpd -f -p 8080 -h /tmp/w'
READY = {"tcpSocket": {"port": 8080}, "periodSeconds": 1}
# of a pod that is ready until it has this file
SICK = {
    "exec": {"command": ["test", "!", "-e", "/tmp/sick"]},
    "periodSeconds": 1,
    "failureThreshold": 1,
    # an exec in a User-Mode-Linux machine takes longer than the second that is the default
    "timeoutSeconds": 10,
}


class Cluster(whole_path.Cluster):
    """A cluster that also has controllers."""

    def _configs(self) -> dict[str, JsonObject]:
        return {**super()._configs(), "controllers": {}}

    def web(self, name: str, labels: dict[str, str], *, namespace: str = "default", **spec: Any) -> JsonObject:
        """Create a pod whose server at port 8080 (named http) answers with the pod's name."""
        container = {
            "name": "app",
            "image": whole_path.IMAGE,
            "command": ["sh", "-c", SERVER],
            "env": [{"name": "POD", "value": name}],
            "ports": [{"name": "http", "containerPort": 8080}],
            **spec.pop("container", {}),
        }
        metadata = {"name": name, "namespace": namespace, "labels": labels}
        body = {"metadata": metadata, "spec": {"containers": [container], "terminationGracePeriodSeconds": 1, **spec}}
        return self.admin.create(POD, body)

    def service(self, name: str, selector: dict[str, str] | None, *, namespace: str = "default", **spec: Any) -> str:
        """Create a Service, port 80 to "http" unless ``spec`` says otherwise; return its address."""
        ports = spec.pop("ports", [{"port": 80, "targetPort": "http"}])
        body = {
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"ports": ports, "selector": selector, **spec},
        }
        return str(self.admin.create(SERVICE, body)["spec"].get("clusterIP", ""))

    def namespace(self, name: str) -> tuple[Any, JsonObject]:
        """Return what ``admin.create`` takes to make a namespace."""
        return NAMESPACE, {"metadata": {"name": name}}

    def endpoints(self, name: str, namespace: str = "default") -> list[str]:
        """Return the ready addresses behind a Service."""
        found = self.admin.list(ENDPOINT_SLICE, namespace, label_selector=f"kubernetes.io/service-name={name}").items
        every = [each for one in found for each in one["endpoints"] or [] if each["conditions"]["ready"]]
        return sorted(address for each in every for address in each["addresses"])

    def inside(self, pod: str, *argv: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the first container of a pod."""
        container = self.container(pod)["containerID"].rpartition("/")[2]
        words = ["docker", "-H", f"unix://{SOCKET}", "exec", container, *argv]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    def fetch_inside(self, pod: str, address: str, port: int = 80) -> str:
        """Return what the server answers a client in a pod."""
        request = f"printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 5 {address} {port} | tail -n 1"
        return self.inside(pod, "sh", "-c", request).stdout.strip()


def fetch(address: str, port: int = 80, timeout_s: float = 5) -> str:
    """Return what the server answers a client on this machine: a pod's name, "refused", or "" for no answer."""
    connection = http.client.HTTPConnection(address, port, timeout=timeout_s)
    try:
        connection.request("GET", "/")
        return connection.getresponse().read().decode().strip()
    except ConnectionRefusedError:
        return "refused"
    except (OSError, http.client.HTTPException):
        return ""
    finally:
        connection.close()


def answers(address: str, count: int, port: int = 80) -> Counter[str]:
    """Return who answered ``count`` requests."""
    return Counter(fetch(address, port) for _ in range(count))


@pytest.fixture(scope="package")
def lab() -> Iterator[Lab]:
    with Lab(f"t{uuid.uuid4().hex[:7]}") as made:
        made.up(1, "uml")
        yield made


@pytest.fixture(scope="package")
def cluster() -> Iterator[Cluster]:
    whole_path.IDENTITIES.setdefault("controllers", "system:kube-controller-manager")
    folder = Path(tempfile.mkdtemp(prefix="mk8s-"))
    made = Cluster(folder)
    try:
        made.start()
        made.until(made.registered, 180)
        yield made
    finally:
        made.close()
        if not os.environ.get("MINIK8S_KEEP"):
            shutil.rmtree(folder, ignore_errors=True)
