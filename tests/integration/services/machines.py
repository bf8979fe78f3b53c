"""Machines on which the section ``services`` is tried: a network namespace here, and a lab node with its own kernel."""

from __future__ import annotations

import base64
import io
import json
import subprocess
import sys
import tarfile
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from minik8s_modules.api.objects import JsonObject
from tests.lab.lab import Lab

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "tests" / "support" / "servers" / "services_machine.py"
PACKAGE = ROOT / "minik8s_modules" / "module_utils" / "minik8s"
PODS = {f"pod{number}": f"10.32.0.{number}" for number in (2, 3, 4)}


class Shell(Protocol):
    """Runs a command on the machine with ``text`` as input and returns what it printed."""

    def __call__(self, argv: list[str], text: str = "") -> str:
        """Return the output; a failure raises."""


class Machine:
    """One machine with a bridge and three pods; ``mode`` is the backend that is tried."""

    def __init__(self, shell: Shell, folder: str, mode: str, node_ip: str, python: str) -> None:
        self.shell, self.folder, self.mode, self.node_ip = shell, folder, mode, node_ip
        self.python = python
        self.entries: JsonObject = {}

    @property
    def plane(self) -> JsonObject:
        """The entry ``dataplane``."""
        return {
            "mode": self.mode,
            "table": "minik8s",
            "service_cidr": "100.0.0.0/16",
            "cluster_cidr": "10.32.0.0/16",
            "pod_cidr": "10.32.0.0/24",
            "bridge": "mk8s-br0",
            "gateway": "10.32.0.1",
            "node_ip": self.node_ip,
        }

    def call(self, what: str, **options: Any) -> Any:
        """Run a subcommand of services_machine.py."""
        text = self.shell([self.python, f"{self.folder}/services_machine.py", what], json.dumps(options))
        return json.loads(text) if text.strip() else None

    def pass_(self, **options: Any) -> JsonObject:
        """Run one pass."""
        return dict(self.call("apply", folder=self.folder, **options))

    def declare(self, **services: JsonObject) -> JsonObject:
        """Converge on exactly these services, which must succeed; names become keys ``default/<name>``."""
        self.entries = {"dataplane": self.plane, **{f"default/{name}": entry for name, entry in services.items()}}
        result = self.pass_(entries=self.entries)
        assert result["errors"] == {}, result
        return result

    def ask(self, address: str, port: int, *, count: int = 1, protocol: str = "TCP", pod: str = "", **more: Any) -> Any:
        """Return {who: how often} of ``count`` requests from the machine or one of its pods."""
        asked = {"address": address, "port": port, "count": count, "protocol": protocol, "from": pod, **more}
        return self.call("ask", **asked)["counts"]

    def clients(self, address: str, port: int, pod: str = "", count: int = 1) -> Any:
        """Return the client addresses that the servers saw."""
        asked = {"address": address, "port": port, "count": count, "protocol": "TCP", "from": pod}
        return self.call("ask", **asked)["clients"]

    def each(self, places: list[tuple[str, int]]) -> list[str]:
        """Return who answered at each place, asked once from the machine over TCP."""
        return list(self.call("each", places=places))

    def lines(self, *argv: str) -> list[str]:
        """Return the lines that a command prints, one blank between words."""
        return [" ".join(line.split()) for line in self.shell([*argv]).splitlines()]


def entry(address: str, *pods: str, **more: Any) -> JsonObject:
    """Return the entry of a service at port 80 with these pods behind it."""
    ends = [[PODS[name], 8080] for name in pods]
    return {"protocol": "TCP", "address": address, "port": 80, "endpoints": ends, **more}


@contextmanager
def namespace(mode: str) -> Iterator[Machine]:
    """Give a machine that is a network namespace of this one."""
    name = f"mk8t-{uuid.uuid4().hex[:6]}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    with tempfile.TemporaryDirectory(prefix="mk8s-") as folder:
        Path(folder, "minik8s").symlink_to(PACKAGE)
        Path(folder, "services_machine.py").write_bytes(SCRIPT.read_bytes())

        def shell(argv: list[str], text: str = "") -> str:
            inside = ["nsenter", f"--net=/run/netns/{name}", *argv]
            done = subprocess.run(inside, input=text, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
            return done.stdout

        machine = Machine(shell, folder, mode, "10.32.0.1", sys.executable)
        try:
            yield machine
        finally:
            machine.call("down")
            subprocess.run(["ip", "netns", "del", name], check=False)


def on_lab(lab: Lab, node: str, mode: str, kind: type[Machine] = Machine) -> Machine:
    """Return a lab node as a machine of a kind; the package and the script are copied to it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for path in sorted(PACKAGE.rglob("*.py")):
            archive.add(path, f"minik8s/{path.relative_to(PACKAGE)}")
        archive.add(SCRIPT, "services_machine.py")
    folder = "/root/services"
    text = base64.b64encode(packed.getvalue()).decode()
    lab.run(node, ["sh", "-c", f"mkdir -p {folder} && base64 -d | tar xz -C {folder}"], text=text)

    def shell(argv: list[str], text: str = "") -> str:
        return lab.run(node, argv, text=text, timeout_s=180)

    address = next(machine.address for machine in lab.machines() if machine.name == node)
    return kind(shell, folder, mode, address, "python3")
