"""A node of its own on the shared machine: unique label, directories, bridge, addresses; all removed at the end."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import uuid
from pathlib import Path
from typing import Any

from minik8s_modules.module_utils.minik8s.core import labels
from minik8s_modules.module_utils.minik8s.core.docker import Docker
from minik8s_modules.module_utils.minik8s.core.section import AnySection, Request, context_for, run_pass
from minik8s_modules.module_utils.minik8s.network.netlink import Netlink
from minik8s_modules.module_utils.minik8s.reapplying import SECTION_OBJECTS
from minik8s_modules.module_utils.minik8s.volumes import mounts
from tests.support.waiting import until

SOCKET = os.environ.get("MINIK8S_TEST_DOCKER_SOCKET", "/var/run/docker.sock")
OF_PROCESSES = 8
# on a busy machine two seconds end a pass in its middle: a bridge without its address, say, and no error
PATIENT: dict[str, Any] = {"budget_s": 600.0}
_process = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
_numbers = itertools.count(uuid.uuid4().int)


def second_octet() -> int:
    """Return that of the next node's range, 200 to 239; processes that share the tests have eight each."""
    number = next(_numbers)
    return 200 + (int(_process) % 5 * OF_PROCESSES + number % OF_PROCESSES if _process else number % 40)


SECTIONS: dict[str, AnySection] = SECTION_OBJECTS


class TestNode:
    """Runs passes for one node and removes everything of it afterwards."""

    __test__ = False

    def __init__(self, root: Path) -> None:
        self.name = f"test-{uuid.uuid4().hex[:10]}"
        self.state_dir, self.run_dir = str(root / "state"), str(root / "run")
        self.docker = Docker(SOCKET)
        number = uuid.uuid4().int
        self.range = f"10.{second_octet()}.{(number >> 8) % 250}"
        self.bridge = f"mk8t-{uuid.uuid4().hex[:8]}"
        # each of this machine's clusters has a range of its own for services; 100.64.0.0/10 is nobody's
        self.services = f"100.{64 + number % 64}.{(number >> 16) % 250}.0/24"

    def network(self) -> dict[str, Any]:
        """Return the network section's entries."""
        entry = {"driver": "bridge", "bridge": self.bridge, "cidr": f"{self.range}.0/24", "gateway": f"{self.range}.1"}
        return {"pod-network": {**entry, "cluster_cidr": f"{self.range.rsplit('.', 1)[0]}.0.0/16", "mtu": 1500}}

    def pod(self, number: int = 7, **changes: Any) -> dict[str, Any]:
        """Return a sandbox entry; the pod's uid, name and address come from ``number``."""
        uid = str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{self.name}-{number}"))
        return {
            "pod": {"uid": uid, "name": f"pod-{number}", "namespace": "default"},
            "attempt": 0,
            "image": "minik8s/pause:1",
            "hostname": f"pod-{number}",
            "host_network": False,
            "ip": f"{self.range}.{number}",
            "prefix_length": 24,
            "gateway": f"{self.range}.1",
            "bridge": self.bridge,
            "mtu": 1500,
            "dns": {"nameservers": [f"{self.range}.1"], "searches": ["default.svc"], "options": ["ndots:5"]},
            **changes,
        }

    def container(self, pod: dict[str, Any], name: str = "app", **changes: Any) -> dict[str, Any]:
        """Return a container entry of a pod (its sandbox entry)."""
        return {
            "pod": pod["pod"],
            "name": name,
            "type": "app",
            "attempt": 0,
            "sandbox_attempt": pod["attempt"],
            "state": "running",
            "image": "minik8s/busybox:1",
            "entrypoint": ["sleep", "3600"],
            **changes,
        }

    def run(self, section: str, entries: dict[str, Any] | None = None, *, check: bool = False, **options: Any) -> Any:
        """Run one pass, however long it takes, and return its result; ``context`` overrides fields of the context."""
        context = {**PATIENT, **options.pop("context", {})}
        request = Request(
            self.name,
            entries=entries,
            state_dir=self.state_dir,
            run_dir=self.run_dir,
            docker_socket=SOCKET,
            **options,
        )
        made = context_for(request, **{"docker": self.docker, **context})
        return run_pass(SECTIONS[section], request, made, check=check)

    def start_pod(self, number: int = 7, **changes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Bring up the network, one sandbox and one container; return both sections' entries."""
        pod = self.pod(number)
        container = self.container(pod, **changes)
        sandboxes = {pod["pod"]["uid"]: pod}
        containers = {f"{pod['pod']['uid']}/{container['name']}": container}
        for section, entries in (("network", self.network()), ("sandboxes", sandboxes), ("containers", containers)):
            result = self.run(section, entries)
            assert not result["errors"], result["errors"]
        return sandboxes, containers

    def ids(self, kind: str = "") -> list[str]:
        """Return the ids of this node's containers."""
        wanted = {labels.NODE: self.name, **({labels.TYPE: kind} if kind else {})}
        return sorted(each["Id"] for each in self.docker.containers(wanted))

    def execute(self, container: str, *argv: str) -> str:
        """Run a command in a container and return its output."""
        return command(*self.inside(container), *argv)

    def inside(self, container: str) -> list[str]:
        """Return the command that runs another one in a container."""
        return ["docker", "-H", f"unix://{SOCKET}", "exec", container]

    def links(self) -> set[str]:
        """Return this node's devices."""
        with Netlink() as netlink:
            return {name for name, link in netlink.links().items() if self.name in link.alias.split(" ")}

    def traces(self) -> dict[str, Any]:
        """Return everything of this node that is outside its state directory."""
        return {
            "containers": self.ids(),
            "links": self.links(),
            "mounts": [mount.point for mount in mounts.under(self.run_dir, mounts.mounts())]
            + [mount.point for mount in mounts.under(self.state_dir, mounts.mounts())],
            "nft": self.bridge in command("nft", "list", "ruleset"),
            "iptables": self.bridge in command("iptables", "-S", "FORWARD"),
        }

    def close(self) -> None:
        """Remove what is left."""
        for container in self.ids():
            self.docker.remove(container)
        for section in ("services", "sandboxes", "policies", "network", "secrets"):
            self.run(section, {})
        for folder in (self.run_dir, self.state_dir):
            for mount in mounts.under(folder, mounts.mounts()):
                mounts.unmount(mount.point)
            shutil.rmtree(folder, ignore_errors=True)
        self.docker.close()


def command(*argv: str) -> str:
    """Run a command that must succeed and return its output."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{argv}: {done.stderr}"
    return done.stdout


def assert_answers(address: str, *inside: str) -> None:
    """Fail where an address answers no ping, though it is asked again; the first may be lost on a busy machine.

    Args:
        address: who is asked.
        inside: the command that runs another one where it is asked from; nothing is this machine.
    """
    argv = [*inside, "/bin/busybox", "ping", "-c1", "-W5", address]
    until(lambda: subprocess.run(argv, capture_output=True, check=False).returncode == 0)


def as_json(result: Any) -> str:
    """Return a result as text, for searches."""
    return json.dumps(result)
