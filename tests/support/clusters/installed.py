"""The cluster that ``make cluster`` installed on this machine: its API, its node, its processes, its service manager.

cluster = Installed()
cluster.kill("etcd")            # -9, whichever process plays that part right now
cluster.until(cluster.whole)    # every part is there once
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.kinds import CONFIG_MAP, EVENT, NAMESPACE, POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.http.settings import workers_of
from minik8s_modules.base.config import load
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.client.api import ApiClient
from minik8s_modules.module_utils.minik8s.core import labels
from minik8s_modules.module_utils.minik8s.core.docker import Docker
from tests.support.waiting import nap

KUBECONFIG = Path("/etc/minik8s/admin.kubeconfig")
KUBECTL = "/opt/minik8s/bin/kubectl"
MINIK8S = "/opt/minik8s/venv/bin/minik8s"
STORE = "/opt/minik8s/venv/bin/minik8s-store"
STATE, RUN, NODE_CODE = Path("/var/lib/minik8s"), Path("/run/minik8s"), Path("/usr/lib/minik8s")
IMAGE = "minik8s/busybox:1"
DAEMONS = ("apiserver", "scheduler", "controllers", "certificates", "gateway", "streams", "reconciler")
ONCE = (*DAEMONS, "etcd", "play")
CONFIGURATION = Path("/etc/minik8s/apiserver.yml")


def is_here(process: psutil.Process) -> bool:
    """Return whether a process is this machine's own, not one of a lab machine in namespaces of this kernel."""
    try:
        return Path(f"/proc/{process.pid}/ns/pid").readlink() == Path("/proc/self/ns/pid").readlink()
    except OSError:
        return False


def part_of(process: psutil.Process) -> str:
    """Return which part of the cluster a process plays, "" for none."""
    if not is_here(process):
        return ""
    argv = process.cmdline()
    words = " ".join(argv[:3])
    for name in DAEMONS:
        if f"/opt/minik8s/venv/bin/minik8s-{name}" in words:
            parent = process.parent()
            below = parent is not None and f"minik8s-{name}" in " ".join(parent.cmdline()[:3])
            return f"{name} worker" if below else name
    if "/etc/minik8s/etcd.yml" in " ".join(argv):
        return "etcd"
    if "/opt/minik8s/share/playbooks/reconcile_node.yml" in argv:
        parent = process.parent()
        return "play worker" if parent is not None and parent.cmdline() == argv else "play"
    if argv[1:] == ["-I", "-"] and "python3" in argv[0]:
        return _warm_part(process)
    return ""


def _warm_part(process: psutil.Process) -> str:
    """Tell our warm interpreter (the process whose directory is below /run/minik8s-warm-*) from a test's."""
    paths = [str(connection.laddr) for connection in process.net_connections("unix")]
    return "warm interpreter" if any(path.startswith("/run/minik8s-warm-") for path in paths) else ""


class Installed:
    """The installed cluster, seen as its administrator and as root."""

    node = "node1"

    def __init__(self) -> None:
        self.admin = ApiClient.from_kubeconfig(KUBECONFIG, user_agent="fault-tests")
        self.docker = Docker()

    def close(self) -> None:
        """Close connections."""
        self.admin.close()
        self.docker.close()

    # commands

    def kubectl(self, *arguments: str, stdin: str = "", check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run kubectl as the administrator."""
        argv = [KUBECTL, "--kubeconfig", str(KUBECONFIG), "--request-timeout=30s", *arguments]
        done = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=90, check=False)
        assert not check or done.returncode == 0, (arguments, done.stderr)
        return done

    def minik8s(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run our own client as the administrator."""
        environment = {**os.environ, "KUBECONFIG": str(KUBECONFIG)}
        argv = [MINIK8S, *arguments]
        return subprocess.run(
            argv, input=stdin, capture_output=True, text=True, timeout=90, check=False, env=environment
        )

    def service(self, verb: str, *names: str) -> None:
        """Have the service manager ``start`` or ``stop`` daemons, by their names without ``minik8s-``."""
        units = [f"minik8s-{name}" for name in names]
        manager = "systemctl" if Path("/run/systemd/system").exists() else "supervisorctl"
        done = subprocess.run([manager, verb, *units], capture_output=True, text=True, timeout=90, check=False)
        assert done.returncode == 0 or "already started" in done.stdout, done.stdout + done.stderr

    def reapply(self) -> list[JsonObject]:
        """Run what the node's own timer runs every minute; return what it says it did."""
        argv = ["/bin/sh", str(NODE_CODE / "minik8s" / "reapply.sh"), str(RUN)]
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": str(NODE_CODE)}
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    # processes

    def parts(self) -> dict[str, list[psutil.Process]]:
        """Return the processes of each part."""
        found: dict[str, list[psutil.Process]] = {}
        for process in psutil.process_iter():
            try:
                if part := part_of(process):
                    found.setdefault(part, []).append(process)
            except (psutil.Error, IndexError):
                continue
        return found

    def whole(self) -> bool:
        """Return whether every part is there, once, the API server with all its workers, and answers."""
        parts = self.parts()
        counts = {**dict.fromkeys(ONCE, 1), "apiserver worker": workers_of(load(CONFIGURATION))}
        as_many = all(len(parts.get(name, [])) == count for name, count in counts.items())
        return as_many and self.admin.raw("GET", "/readyz").status == 200

    def kill(self, part: str, wait_s: float = 60.0) -> int:
        """Kill -9 one process of ``part``, waiting for there to be one; return its id, 0 when none came."""
        deadline = time.monotonic() + wait_s
        while not (found := self.parts().get(part)):
            if time.monotonic() > deadline:
                return 0
        found[0].kill()
        return found[0].pid

    # objects

    def pod(self, name: str, namespace: str, command: list[str] | None = None, **spec: Any) -> JsonObject:
        """Create a pod with one container and return it."""
        container = {"name": "app", "image": IMAGE, "command": command or ["sleep", "36000"]}
        body = {"metadata": {"name": name, "namespace": namespace}, "spec": {"containers": [container], **spec}}
        return self.admin.create(POD, body)

    def pods(self, namespace: str) -> dict[str, JsonObject]:
        """Return the pods of a namespace by name."""
        return {one["metadata"]["name"]: one for one in self.admin.list(POD, namespace).items}

    def ready(self, name: str, namespace: str) -> bool:
        """Return whether the pod is Ready."""
        return is_ready(self.admin.get(POD, name, namespace))

    def events(self, namespace: str) -> list[JsonObject]:
        """Return the events of a namespace."""
        return self.admin.list(EVENT, namespace).items

    def containers(self, uid: str = "", *, alive: bool = False) -> dict[str, str]:
        """Return the node's containers, id by name, of one pod or all."""
        wanted = {labels.NODE: self.node, **({labels.POD_UID: uid} if uid else {})}
        listed = self.docker.containers(wanted)
        return {one["Names"][0]: one["Id"] for one in listed if not alive or one["State"] == "running"}

    def execute(self, container: str, *argv: str) -> str:
        """Run a command in a container and return its output."""
        done = subprocess.run(["docker", "exec", container, *argv], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def epoch(self) -> int:
        """Return the cluster epoch."""
        return int(self.admin.get(CONFIG_MAP, "minik8s-cluster", "kube-system")["data"]["epoch"])

    def drop_namespace(self, name: str) -> None:
        """Delete a namespace with all pods at once, and wait until it is gone."""

        def gone() -> bool:
            for pod in self.pods(name):
                self.admin.delete(POD, pod, name, grace_s=0)
            return all(one["metadata"]["name"] != name for one in self.admin.list(NAMESPACE).items)

        self.until(lambda: self.admin.list(NAMESPACE).items)
        if any(one["metadata"]["name"] == name for one in self.admin.list(NAMESPACE).items):
            self.admin.delete(NAMESPACE, name)
        self.until(gone, 40)

    def until(self, condition: Callable[[], Any], timeout_s: float = 60.0, told: str = "") -> Any:
        """Wait until ``condition`` holds and return its value; refusals count as not yet."""
        begun, last = time.monotonic(), ""
        while time.monotonic() < begun + timeout_s:
            try:
                if value := condition():
                    return value
            except (StatusError, TemporaryError) as error:
                last = str(error)
            nap(begun)
        raise AssertionError(f"not within {timeout_s} s {told} {last}\n{self.report()}")

    def report(self) -> str:
        """Return what helps to understand a failure: processes, pods, ends of logs."""
        parts = {name: [one.pid for one in found] for name, found in self.parts().items()}
        pods = self.kubectl("get", "pods", "-A", "-o", "wide", check=False).stdout
        logs = "\n".join(f"--- {path.name}\n{path.read_text()[-1500:]}" for path in Path("/var/log/minik8s").glob("*"))
        return f"{parts}\n{pods}\n{logs if shutil.which('supervisorctl') else ''}"


def is_ready(pod: JsonObject) -> bool:
    """Return whether the pod says it is Ready."""
    conditions = pod.get("status", {}).get("conditions") or []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
