"""The control side of virtual machines on a real API server: the daemon as a process, guests that are played.

with World(folder) as world:
    world.apply(VM), world.virtctl("start", "one"), world.status("one")
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import API_SERVICE, POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.client.api import ApiClient
from minik8s_virtual_machines import installation
from minik8s_virtual_machines.api.kinds import VM, VMI
from tests.support.apiserver import Answer, ApiServerProcess
from tests.support.etcd import EtcdServer, free_port
from tests.support.extension import front_proxy
from tests.support.gotools import tool
from tests.support.pki import Certificate, write_kubeconfig
from tests.support.waiting import until
from tests.support.webhook import machine_address

ROOT = Path(__file__).resolve().parents[2]
EXTENSION = ROOT / "extensions" / "virtual-machines"
NODE = "far"


class Process:
    """A daemon as a process; it may be killed and started again."""

    def __init__(self, module: str, config: Path) -> None:
        self.argv = [sys.executable, "-m", module, "--config", str(config)]
        self.log = config.with_suffix(".log")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Process:
        """Start it."""
        env = {**os.environ, "PYTHONPATH": f"{ROOT}:{EXTENSION}"}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.argv, cwd=ROOT, stdout=log, stderr=log, env=env)
        return self

    def kill9(self) -> None:
        """Kill it."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(60)

    def stop(self) -> None:
        """End it."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            finally:
                self.process.kill()
                self.process.wait(60)


class Machines:
    """VirtualMachines of an API server that has the extension, by kubectl and by upstream's virtctl."""

    def __init__(self, folder: Path, server: ApiServerProcess, admin: ApiClient, host_disks: list[str]) -> None:
        self.folder, self.server, self.admin = folder, server, admin
        self.address, self.port = machine_address(), free_port()
        serving = server.authority.issue("virt-api", "virt-api", names=(installation.SERVER_NAME,))
        served = {"listen": f"{self.address}:{self.port}", "cert": str(serving.cert), "key": str(serving.key)}
        config = self.config("machines", "system:minik8s:virtual-machines", serving=served, host_disks=host_disks)
        self.daemon = Process("minik8s_virtual_machines.main", config)

    def config(self, name: str, user: str, *groups: str, **said: Any) -> Path:
        """Write the configuration of a daemon of this user."""
        config = self.folder / f"{name}.yml"
        kubeconfig = self.kubeconfig(name, user, *groups)
        config.write_text(yaml.safe_dump({"kubeconfig": str(kubeconfig), **said}))
        return config

    def kubeconfig(self, name: str, user: str, *groups: str) -> Path:
        """Write the kubeconfig of a user."""
        own = self.server.identity(user, *groups)
        return write_kubeconfig(self.folder / f"{name}.kubeconfig", self.server.url, self.server.authority.ca, own)

    def install(self) -> None:
        """Put the extension's objects into the cluster, start the daemon, and wait until it is asked."""
        authority = self.server.authority.ca.read_bytes()
        made = installation.objects([self.address], self.port, authority)
        self.server.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(made))
        self.daemon.start()
        name = "v1.subresources.kubevirt.io"
        until(
            lambda: (objects.condition(self.admin.get(API_SERVICE, name), "Available") or {}).get("status") == "True",
            120,
        )

    def virtctl(
        self, *arguments: str, kubeconfig: Path | None = None, check: bool = True, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run upstream's virtctl."""
        done = subprocess.run(
            self.virtctl_argv(*arguments, kubeconfig=kubeconfig),
            capture_output=True, text=True, timeout=120, check=False, input=stdin,
        )  # fmt: skip
        text = f"virtctl {' '.join(arguments)}: {done.stdout}{done.stderr}\n{self.daemon.log.read_text()[-3000:]}"
        assert not check or done.returncode == 0, text
        return done

    def virtctl_argv(self, *arguments: str, kubeconfig: Path | None = None) -> list[str]:
        """Return virtctl's command line."""
        return [str(tool("virtctl")), f"--kubeconfig={kubeconfig or self.server.kubeconfig}", *arguments]

    def act(self, name: str, action: str, body: JsonObject | None = None) -> Answer:
        """Ask for a subresource of a machine as virtctl does; it must be accepted."""
        path = f"/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/{name}/{action}"
        answer = self.server.request("PUT", path, body or {})
        assert answer.code == 202, answer.body
        return answer

    def type(self, name: str, text: str) -> None:
        """Type something on a guest's console, and wait until that ends."""
        pod = objects.name(self.pods(name)[0])
        self.kubectl(
            "exec", "-i", pod, "-c", "compute", "--", "/usr/bin/vmctl", "console", stdin=f"{text}\n", check=False
        )

    def kubectl(self, *arguments: str, stdin: str = "", check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run kubectl as the administrator."""
        return self.server.kubectl(*arguments, stdin=stdin, check=check)

    def apply(self, *manifests: JsonObject) -> None:
        """Apply manifests."""
        self.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(manifests))

    def vm(self, name: str) -> JsonObject:
        """Return a VirtualMachine, {} where there is none."""
        return self._get(VM, name)

    def vmi(self, name: str) -> JsonObject:
        """Return an instance, {} where there is none."""
        return self._get(VMI, name)

    def _get(self, kind: Any, name: str) -> JsonObject:
        try:
            return self.admin.get(kind, name, "default")
        except NotFound:
            return {}

    def pods(self, name: str) -> list[JsonObject]:
        """Return the launcher's pods of an instance."""
        found = self.admin.list(POD, "default", label_selector=f"vm.kubevirt.io/name={name}").items
        return [each for each in found if objects.labels(each).get("kubevirt.io") == "virt-launcher"]

    def printable(self, name: str) -> str:
        """Return a machine's printable status."""
        return str(objects.status(self.vm(name)).get("printableStatus") or "")

    def wait(self, name: str, *statuses: str, timeout_s: float = 90) -> str:
        """Wait for a printable status, and return it."""
        try:
            found: str = until(lambda: (now := self.printable(name)) in statuses and now, timeout_s)
        except AssertionError as error:
            text = f"{name} is {self.printable(name)}, not {statuses}: {self.vm(name)}\n{self.vmi(name)}"
            raise AssertionError(f"{text}\n{self.pods(name)}\n{self.daemon.log.read_text()[-3000:]}") from error
        return found


class World(Machines):
    """See the top of this file."""

    def __init__(self, folder: Path) -> None:
        self.etcd = EtcdServer(folder / "etcd").start()
        self.proxies, self.proxy = front_proxy(folder)
        callers = folder / "api" / "pki"
        server = ApiServerProcess(
            folder / "api",
            self.etcd.endpoint,
            front_proxy={"cert": str(self.proxy.cert), "key": str(self.proxy.key), "ca": str(self.proxies.ca)},
            reconciler_client={
                "cert": str(callers / "caller.crt"), "key": str(callers / "caller.key"),
                "ca": str(callers / "cluster.crt"),
            },
        )  # fmt: skip
        server.authority.issue("caller", "system:minik8s:apiserver")
        server.start()
        admin = ApiClient(server.url, server.authority.ca, server.admin.cert, server.admin.key)
        super().__init__(folder, server, admin, ["/srv/disks"])
        self.guests = self._guests()
        self.scheduler = Process("minik8s_modules.scheduler.main", self.config("scheduler", "system:kube-scheduler"))

    def _guests(self) -> Process:
        own: Certificate = self.server.authority.issue(
            "far-serving", f"system:node:{NODE}", names=(f"{NODE}.node.minik8s.internal",)
        )
        served = {
            "listen": f"{self.address}:{free_port()}", "cert": str(own.cert), "key": str(own.key),
            "client_ca": str(self.server.authority.ca),
        }  # fmt: skip
        nodes = [{"name": NODE, "provider": "guests", "taint": False, "config": {"pods": "100"}}]
        config = self.config(
            "guests", f"system:node:{NODE}", "system:nodes", serving=served, internal_ip=self.address, nodes=nodes
        )
        return Process("tests.support.guests", config)

    def __enter__(self) -> World:
        """Install the extension, and wait until it is served."""
        try:
            self.guests.start()
            self.scheduler.start()
            self.install()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop everything."""
        self.stop()

    def stop(self) -> None:
        """End everything."""
        for each in (self.daemon, self.guests, self.scheduler):
            each.stop()
        self.admin.close()
        self.server.stop()
        self.etcd.stop()


def machine(name: str, strategy: str = "Always", **spec: Any) -> JsonObject:
    """Return a VirtualMachine of User-Mode Linux."""
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {
            "domain": {"machine": {"type": "uml"}, "memory": {"guest": "64Mi"}, "devices": {}},
            "volumes": [{"name": "root", "containerDisk": {"image": "guest:1"}}],
            **spec,
        },
    }
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"runStrategy": strategy, "template": template},
    }
