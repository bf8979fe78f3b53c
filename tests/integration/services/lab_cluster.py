"""A cluster whose node is a lab machine with a kernel and Docker of its own; the control plane is here, behind ssh."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import yaml

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.reconcile.network.services import kubernetes_address
from tests.integration.reconcile.conftest import IMAGE
from tests.integration.services.conftest import Cluster
from tests.lab.lab import Lab
from tests.support.apiserver import ApiServerProcess
from tests.support.docker.pause import pause_image
from tests.support.node import SOCKET

NODE = "node1"
# every container, virtual server, address and rule that a cluster leaves on its machine
TIDY = """
docker ps --all --quiet | xargs --no-run-if-empty docker rm --force
ipvsadm --clear; ip link del minik8s-dummy; ip link del "$1"
nft list tables | grep minik8s | while read -r _ family name; do nft delete table "$family" "$name"; done
rm -rf /var/lib/mk8s-lab /run/mk8s-lab
"""


class LabCluster(Cluster):
    """As ``Cluster``, with ``proxy_mode`` of the reconciler; requests are made on the machine or in its pods."""

    def __init__(self, folder: Path, lab: Lab, proxy_mode: str) -> None:
        self.lab, self.proxy_mode = lab, proxy_mode
        self.address = next(machine.address for machine in lab.machines() if machine.name == NODE)
        self.here = f"{self.address.rpartition('.')[0]}.1"
        self._load_images()
        super().__init__(folder)

    def _load_images(self) -> None:
        archive = self.lab.folder / "share" / "images.tar"
        argv = ["docker", "-H", f"unix://{SOCKET}", "save", "-o", str(archive), IMAGE, pause_image(SOCKET)]
        subprocess.run(argv, check=True)
        self.lab.run(NODE, ["docker", "load", "--quiet", "--input", "/mnt/host/images.tar"], timeout_s=180)
        archive.unlink()

    def _server(self) -> ApiServerProcess:
        super()._server()  # makes the certificates of what it asks; not started
        service = kubernetes_address(self.node.services).rpartition(":")[0]
        return ApiServerProcess(
            self.folder / "lab-api",
            self.etcd.endpoint,
            addresses=(self.here, service),
            listen_address="0.0.0.0",
            advertise_address=self.here,
            service_cidr=self.node.services,
            reconciler_client=self._asks_for_plans(),
        )

    def _asks_for_plans(self) -> dict[str, str]:
        """Return what an API server asks the reconciler with."""
        made = self.folder / "plans"
        return {"cert": str(made / "caller.crt"), "key": str(made / "caller.key"), "ca": str(self.plan_ca)}

    def _configs(self) -> dict[str, JsonObject]:
        configs = super()._configs()
        of_lab = yaml.safe_load(self.lab.inventory.read_text())["all"]["vars"]
        variables = {
            "ansible_connection": "warm_ssh",
            "ansible_host": self.address,
            "ansible_user": "root",
            "ansible_ssh_private_key_file": of_lab["ansible_ssh_private_key_file"],
            "ansible_python_interpreter": of_lab["ansible_python_interpreter"],
            "minik8s_known_hosts": str(self.lab.folder / "known_hosts"),
            "minik8s_state_dir": "/var/lib/mk8s-lab",
            "minik8s_run_dir": "/run/mk8s-lab",
            "minik8s_docker_socket": "/var/run/docker.sock",
        }
        inventory = {"all": {"hosts": {self.node.name: variables}}}
        Path(configs["gateway"]["inventory"]).write_text(yaml.safe_dump(inventory))
        configs["reconcile"]["proxy_mode"] = self.proxy_mode
        return configs

    def close(self) -> None:
        """End everything, and leave the machine to the next one."""
        super().close()
        self.lab.run(NODE, ["sh", "-c", TIDY, "tidy", self.node.bridge], timeout_s=120)

    def inside(self, pod: str, *argv: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the first container of a pod."""
        container = self.container(pod)["containerID"].rpartition("/")[2]
        text = self.lab.run(NODE, ["docker", "exec", container, *argv], timeout_s=120)
        return subprocess.CompletedProcess(argv, 0, text, "")

    def ask(self, place: str, count: int, pod: str = "") -> Counter[str]:
        """Return who answered ``count`` requests to ADDRESS:PORT, "" for none, from the machine or a pod."""
        if pod:
            one = "printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 10 $0 $1 | tail -n 1"
            script = f"for i in $(seq {count}); do echo $({one}); done"
            text = self.inside(pod, "sh", "-c", script, *place.split(":")).stdout
        else:
            script = f"for i in $(seq {count}); do echo $(curl -s -m 10 http://$0/); done"
            text = self.lab.run(NODE, ["sh", "-c", script, place], timeout_s=120)
        return Counter(text.split("\n")[:-1])

    def listing(self) -> list[str]:
        """Return the lines of ``ipvsadm -ln``, one blank between words."""
        return [" ".join(line.split()) for line in self.lab.run(NODE, ["ipvsadm", "-ln"]).splitlines()]
