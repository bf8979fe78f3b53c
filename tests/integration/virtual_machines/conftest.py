"""One cluster with the launcher's image and a guest of User-Mode Linux as a container disk."""

from __future__ import annotations

import copy
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import POD, SECRET
from minik8s_modules.api.objects import JsonObject
from minik8s_virtual_machines.pods import Settings, launcher_pod, launcher_secrets
from tests.integration.reconcile.conftest import Cluster, running
from tests.support.docker.virt_launcher import launcher_image
from tests.support.docker.vm_guests import UML_DISK, disk_image, uml_disk
from tests.support.node import SOCKET

BOOT_S = 180.0
"""Seconds for a guest to boot on a machine that does much else; alone it takes one or two."""
UML: JsonObject = {
    "metadata": {"namespace": "default", "uid": "0"},
    "spec": {
        "terminationGracePeriodSeconds": 60,
        "domain": {
            "machine": {"type": "uml"},
            "memory": {"guest": "64Mi"},
            "devices": {
                "disks": [{"name": "root", "disk": {"bus": "virtio"}, "bootOrder": 1}],
                "interfaces": [{"name": "default", "masquerade": {}}],
            },
        },
        "networks": [{"name": "default", "pod": {}}],
        "volumes": [{"name": "root", "containerDisk": {"image": UML_DISK}}],
    },
}


class Guests:
    """Machines' pods of a cluster, made without the extension's controllers."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def vmi(self, name: str, *volumes: JsonObject, **spec: Any) -> JsonObject:
        """Return a machine with more disks, of ``volumes``."""
        made = copy.deepcopy(UML)
        made["metadata"]["name"] = name
        made["spec"] |= spec
        made["spec"]["volumes"] += volumes
        made["spec"]["domain"]["devices"]["disks"] += [{"name": each["name"], "disk": {}} for each in volumes]
        return made

    def create(self, vmi: JsonObject, claims: dict[str, str] | None = None) -> str:
        """Create the pod and what it needs; return its name."""
        for secret in launcher_secrets(vmi):
            self.cluster.admin.create(SECRET, secret)
        return objects.name(self.cluster.admin.create(POD, launcher_pod(vmi, Settings(), claims)))

    def boot(self, vmi: JsonObject, claims: dict[str, str] | None = None) -> str:
        """Create the pod and wait until its machine runs and its guest answers by HTTP; return the pod's name."""
        name = self.create(vmi, claims)
        self.cluster.until(lambda: self.cluster.ready(name) or self.ended(name), BOOT_S)
        assert not self.ended(name), self.told(name)
        self.cluster.until(lambda: self.http(name) is not None or self.ended(name), BOOT_S)
        assert not self.ended(name), self.told(name)
        return name

    def ended(self, name: str) -> bool:
        """Return whether the pod has ended."""
        return self.cluster.pod(name)["status"].get("phase") in {"Failed", "Succeeded"}

    def told(self, name: str) -> str:
        """Return what is known of a pod, for a failure's message."""
        status = self.cluster.pod(name)["status"]
        said = [self.logs(name, each["name"]) for each in status.get("initContainerStatuses", [])]
        return f"{status}\n{said}\n{self.logs(name)[-3000:]}"

    def logs(self, name: str, container: str = "compute") -> str:
        """Return a container's log."""
        return str(self.cluster.kubectl("logs", name, "-c", container, check=False).stdout)

    def ctl(self, name: str, command: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run ``vmctl``."""
        return self.cluster.kubectl("exec", name, "-c", "compute", "--", "/usr/bin/vmctl", command, check=check)

    def type(self, name: str, line: str) -> str:
        """Type a line at the guest's console and return what comes back within a second or more."""
        script = "printf '%s\\n' \"$1\" | /usr/bin/vmctl console"
        argv = ("exec", name, "-c", "compute", "--", "/bin/busybox", "sh", "-c", script, "type", line)
        return str(self.cluster.kubectl(*argv).stdout)

    def http(self, name: str, path: str = "/") -> str | None:
        """Return what the guest answers at the pod's address, None where nobody does."""
        return self.ask(self.cluster.pod(name)["status"]["podIP"], path)

    def ask(self, address: str, path: str = "/") -> str | None:
        """Return what an address answers by HTTP, None where nobody does."""
        argv = ["curl", "-sf", "--max-time", "5", f"http://{address}{path}"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        return done.stdout if done.returncode == 0 else None

    def phase(self, name: str, *wanted: str) -> JsonObject:
        """Wait until the pod ended so; return how its container ``compute`` did."""
        self.cluster.until(lambda: self.cluster.pod(name)["status"].get("phase") in wanted, BOOT_S)
        return dict(self.cluster.container(name)["state"]["terminated"])

    def delete(self, name: str) -> None:
        """Delete the pod and wait until it is gone."""
        self.cluster.delete(name)
        self.cluster.until(lambda: self.cluster.gone(name), BOOT_S)


@pytest.fixture(scope="package")
def shared() -> Iterator[Cluster]:
    """Run one cluster for the whole package."""
    launcher_image(SOCKET)
    disk_image(UML_DISK, uml_disk())
    with running() as made:
        yield made


@pytest.fixture
def guests(shared: Cluster) -> Iterator[Guests]:
    """Return what makes guests; nothing of a test stays."""
    yield Guests(shared)
    shared.clear()
