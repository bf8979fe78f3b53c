"""One cluster with the launcher's image and a guest of User-Mode Linux as a container disk."""

from __future__ import annotations

import contextlib
import copy
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, POD, SECRET
from minik8s_modules.api.objects import JsonObject
from minik8s_virtual_machines import installation
from minik8s_virtual_machines.api.kinds import VM
from minik8s_virtual_machines.pods import Settings, launcher_pod, launcher_secrets
from tests.integration.reconcile.conftest import Cluster, running
from tests.support.docker.virt_launcher import launcher_image
from tests.support.docker.vm_guests import UML_DISK, disk_image, uml_disk
from tests.support.extension import front_proxy
from tests.support.machines_world import Machines
from tests.support.node import SOCKET
from tests.support.waiting import until

BOOT_S = 180.0
"""Seconds for a guest to boot on a machine that does much else; alone it takes one or two."""
_MACHINES = ("/usr/lib/uml/rebooted", "/bin/qemu-system")
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


class ClusterWithMachines(Cluster):
    """A cluster whose API server passes requests on to the extension's."""

    spaces = Cluster.spaces | {installation.NAMESPACE}

    def offers(self) -> dict[str, Any]:
        """Return the front proxy's certificate."""
        proxies, proxy = front_proxy(self.folder)
        return {"front_proxy": {"cert": str(proxy.cert), "key": str(proxy.key), "ca": str(proxies.ca)}}


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

    def machine(
        self,
        name: str,
        *volumes: JsonObject,
        strategy: str = "Always",
        image: str = UML_DISK,
        grace_s: int = 60,
        **domain: Any,
    ) -> JsonObject:
        """Create a VirtualMachine whose pods have the label ``app`` of its name, and return it."""
        spec = self.vmi(name, *volumes, terminationGracePeriodSeconds=grace_s)["spec"]
        spec["volumes"][0]["containerDisk"]["image"] = image
        spec["domain"] |= domain
        template = {"metadata": {"labels": {"app": name}}, "spec": spec}
        meta = {"name": name, "namespace": "default"}
        return self.cluster.admin.create(
            VM, {"metadata": meta, "spec": {"runStrategy": strategy, "template": template}}
        )

    def pod_of(self, machine: str) -> str:
        """Return the name of the one pod of a machine, "" while there is none."""
        found = self.cluster.admin.list(POD, "default", label_selector=f"vm.kubevirt.io/name={machine}").items
        assert len(found) < 2, [objects.name(each) for each in found]
        return objects.name(found[0]) if found else ""

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
        address = self.cluster.pod(name)["status"].get("podIP")
        return self.ask(address, path) if address else None

    def ask(self, address: str, path: str = "/") -> str | None:
        """Return what an address answers by HTTP, None where nobody does."""
        argv = ["curl", "-sf", "--max-time", "5", f"http://{address}{path}"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        return done.stdout if done.returncode == 0 else None

    def container(self, name: str) -> str:
        """Return the id of the pod's container ``compute``."""
        return str(self.cluster.container(name)["containerID"]).removeprefix("docker://")

    def launcher(self, name: str) -> int:
        """Return the process of the pod's launcher."""
        return int(self.cluster.node.docker.inspect(self.container(name))["State"]["Pid"])  # type: ignore[index]

    def kernel(self, name: str) -> int:
        """Return the process of the machine that the pod runs: a kernel of User-Mode Linux, or QEMU."""
        top = self.cluster.node.docker.call("GET", f"/containers/{self.container(name)}/top")
        rows = [dict(zip(top["Titles"], row, strict=False)) for row in top["Processes"]]
        return next(int(row["PID"]) for row in rows if row["CMD"].startswith(_MACHINES))

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
    with running(ClusterWithMachines) as made:
        yield made


@pytest.fixture
def guests(shared: Cluster) -> Iterator[Guests]:
    """Return what makes guests; nothing of a test stays."""
    yield Guests(shared)
    shared.clear()


@pytest.fixture(scope="package")
def extension(shared: Cluster) -> Iterator[Machines]:
    """Run the extension whole: kinds, webhooks, subresources, controllers."""
    made = Machines(shared.folder, shared.server, shared.admin, [tempfile.gettempdir()])
    try:
        made.install()
        # these tests make launchers' pods themselves; that nobody else may is shown by tests/attacks
        made.kubectl("delete", "validatingadmissionpolicybinding", "launchers.kubevirt.io")
        yield made
    finally:
        made.daemon.stop()


@pytest.fixture
def machines(extension: Machines, guests: Guests) -> Iterator[Machines]:
    """Return the extension without any machine; nothing of a test stays."""
    del guests  # what a machine leaves is cleared after the machine
    yield extension
    admin = extension.admin
    for each in admin.list(VM, "default").items:
        with contextlib.suppress(NotFound):
            admin.delete(VM, objects.name(each), "default")
    until(lambda: not admin.list(VM, "default").items, BOOT_S)
    for kind, space in ((PERSISTENT_VOLUME_CLAIM, "default"), (PERSISTENT_VOLUME, "")):
        for each in admin.list(kind, space).items:
            admin.delete(kind, objects.name(each), space)
