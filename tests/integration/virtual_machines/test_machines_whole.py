"""A VirtualMachine by the extension's controllers, on a real node: it answers behind a Service, and its claim stays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, SERVICE
from minik8s_modules.api.objects import JsonObject
from minik8s_virtual_machines import installation
from minik8s_virtual_machines.api.definitions import definitions
from minik8s_virtual_machines.api.kinds import VM
from tests.integration.reconcile.conftest import Cluster
from tests.integration.virtual_machines.conftest import BOOT_S, Guests
from tests.support.etcd import free_port
from tests.support.machines_world import Process
from tests.support.pki import write_kubeconfig


@pytest.fixture
def extension(shared: Cluster, tmp_path: Path) -> Iterator[None]:
    """Serve KubeVirt's kinds, and run their controllers; without webhooks, whose way needs a front proxy."""
    server = shared.server
    made = [*definitions(), *installation.roles()]
    server.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(made))
    own = server.identity("system:minik8s:virtual-machines")
    kubeconfig = write_kubeconfig(tmp_path / "machines.kubeconfig", server.url, server.authority.ca, own)
    serving = server.authority.issue("virt-api", "virt-api", names=(installation.SERVER_NAME,))
    served = {"listen": f"127.0.0.1:{free_port()}", "cert": str(serving.cert), "key": str(serving.key)}
    config = tmp_path / "machines.yml"
    config.write_text(yaml.safe_dump({"kubeconfig": str(kubeconfig), "serving": served}))
    daemon = Process("minik8s_virtual_machines.main", config).start()
    try:
        yield
    except BaseException:
        print(daemon.log.read_text()[-4000:])
        raise
    finally:
        daemon.stop()


def claimed(folder: Path) -> tuple[JsonObject, JsonObject]:
    """Return a volume in a folder of the node, and the claim that has it."""
    room, access = {"storage": "8Mi"}, ["ReadWriteOnce"]
    volume = {
        "metadata": {"name": "disk"},
        "spec": {"capacity": room, "accessModes": access, "hostPath": {"path": str(folder)}, "storageClassName": ""},
    }
    claim = {
        "metadata": {"name": "disk", "namespace": "default"},
        "spec": {"resources": {"requests": room}, "accessModes": access, "volumeName": "disk", "storageClassName": ""},
    }
    return volume, claim


@pytest.mark.usefixtures("extension")
def test_a_machine_serves_behind_a_service_and_finds_its_disk_again(guests: Guests, tmp_path: Path):
    cluster, admin = guests.cluster, guests.cluster.admin
    folder = tmp_path / "volume"
    folder.mkdir()
    volume, claim = claimed(folder)
    admin.create(PERSISTENT_VOLUME, volume)
    admin.create(PERSISTENT_VOLUME_CLAIM, claim)
    spec = guests.vmi("x", {"name": "data", "persistentVolumeClaim": {"claimName": "disk"}})["spec"]
    template = {"metadata": {"labels": {"app": "guest"}}, "spec": spec}
    vm = {"metadata": {"name": "one", "namespace": "default"}, "spec": {"runStrategy": "Always", "template": template}}
    admin.create(VM, vm)
    service = {
        "metadata": {"name": "guest", "namespace": "default"},
        "spec": {"selector": {"app": "guest"}, "ports": [{"port": 80}]},
    }
    admin.create(SERVICE, service)

    def status() -> str:
        return str(objects.status(admin.get(VM, "one", "default")).get("printableStatus") or "")

    def pod() -> str:
        found = cluster.kubectl("get", "pods", "-o", "name", "-l", "vm.kubevirt.io/name=one").stdout.split()
        return found[0].removeprefix("pod/") if found else ""

    cluster.until(lambda: status() == "Running", BOOT_S)
    first = pod()
    cluster.until(lambda: guests.http(first) == "guest\n", BOOT_S)
    address = admin.get(SERVICE, "guest", "default")["spec"]["clusterIP"]
    cluster.until(lambda: guests.ask(address) == "guest\n", BOOT_S)
    assert (folder / "disk.img").stat().st_size == 8 << 20
    guests.type(first, "printf kept > /tmp/x; dd if=/tmp/x of=/dev/ubdb conv=fsync,notrunc")

    admin.patch(VM, "one", "default", {"spec": {"runStrategy": "Halted"}})
    cluster.until(lambda: status() == "Stopped" and not pod(), BOOT_S)
    admin.patch(VM, "one", "default", {"spec": {"runStrategy": "Always"}})
    cluster.until(lambda: status() == "Running", BOOT_S)
    second = pod()
    assert second != first
    cluster.until(lambda: str(guests.http(second, "/ubdb") or "").startswith("kept"), BOOT_S)

    admin.delete(VM, "one", "default")
    cluster.until(lambda: not pod(), BOOT_S)
    admin.delete(PERSISTENT_VOLUME_CLAIM, "disk", "default")
    admin.delete(PERSISTENT_VOLUME, "disk")
