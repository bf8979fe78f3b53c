"""Driver weave on real pods, with a stand-in for the command that has Weave Net's documented behaviour."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.docker import weave_standin
from tests.support.node import SOCKET, TestNode, command

ROOT = Path(__file__).resolve().parents[4]
PASS = """
import json, sys
from minik8s_modules.module_utils.minik8s.network.network import Network
from minik8s_modules.module_utils.minik8s.pods.sandboxes import Sandboxes
from minik8s_modules.module_utils.minik8s.core.section import Request, context_for, run_pass
given = json.load(sys.stdin)
check, section = given.pop("check"), given.pop("section")
request = Request(given.pop("node"), **given)
made = {"network": Network, "sandboxes": Sandboxes}[section]()
print(json.dumps(run_pass(made, request, context_for(request, budget_s=60.0), check=check)))
"""


class Machine:
    """A node in a network namespace of its own, where the device ``weave`` is nobody else's."""

    def __init__(self, folder: Path, node: TestNode) -> None:
        self.node, self.state = node, folder / "weave"
        self.state.mkdir()
        self.netns = f"mk8t{uuid.uuid4().hex[:8]}"
        self.command = folder / "bin" / "weave"
        self.command.parent.mkdir()
        self.command.write_text(f'#!/bin/sh\nexec {sys.executable} {weave_standin.__file__} "$@"\n')
        self.command.chmod(0o755)

    def network(self, *peers: str) -> dict[str, Any]:
        """Return the entries of section network."""
        entry = {"driver": "weave", "bridge": self.node.bridge, "cluster_cidr": "10.32.0.0/12", "mtu": 1500}
        return {"pod-network": {**entry, "weave": {"command": str(self.command), "peers": list(peers)}}}

    def pod(self, number: int, **changes: Any) -> dict[str, Any]:
        """Return the entry of a sandbox."""
        nothing = {"ip": "", "prefix_length": 0, "gateway": "", "bridge": "", "mtu": 0}
        plugin = {"driver": "weave", "command": str(self.command)}
        return self.node.pod(number, **nothing, plugin=plugin, **changes)

    def run(self, section: str, entries: dict[str, Any], *, check: bool = False) -> Any:
        """Run a pass in the namespace."""
        given = {
            "node": self.node.name, "section": section, "entries": entries, "check": check,
            "state_dir": self.node.state_dir, "run_dir": self.node.run_dir, "docker_socket": SOCKET,
        }  # fmt: skip
        done = subprocess.run(
            ["ip", "netns", "exec", self.netns, sys.executable, "-c", PASS],
            input=json.dumps(given), capture_output=True, text=True, check=False, cwd=ROOT,
            env={**os.environ, "WEAVE_STATE": str(self.state)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def sandboxes(self, *pods: dict[str, Any], **options: Any) -> Any:
        """Run a pass over these."""
        return self.run("sandboxes", {pod["pod"]["uid"]: pod for pod in pods}, **options)

    def given(self) -> list[str]:
        """Return the containers that have addresses."""
        path = self.state / "addresses"
        found = json.loads(path.read_text()) if path.exists() else {}
        return sorted(name for name in found if name != "weave:expose")

    def calls(self) -> list[str]:
        """Return what the command was told, and forget it."""
        path = self.state / "calls"
        found = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return found

    def targets(self) -> list[str]:
        """Return the machines Weave is to connect to."""
        path = self.state / "targets"
        return sorted(json.loads(path.read_text())) if path.exists() else []


@pytest.fixture
def machine(tmp_path: Path, node: TestNode) -> Iterator[Machine]:
    made = Machine(tmp_path, node)
    command("ip", "netns", "add", made.netns)
    command("ip", "-n", made.netns, "link", "set", "lo", "up")
    try:
        yield made
    finally:
        for container in node.ids():
            node.docker.remove(container)
        with contextlib.suppress(AssertionError):
            command("ip", "netns", "del", made.netns)


def ready(machine: Machine, *pods: dict[str, Any]) -> Any:
    assert not machine.run("network", machine.network())["errors"]
    result = machine.sandboxes(*pods)
    assert not result["errors"], result["errors"]
    return result


def test_pods_have_the_addresses_weave_gave_and_give_them_back(machine: Machine) -> None:
    one, two = machine.pod(1), machine.pod(2)
    result = ready(machine, one, two)
    addresses = {uid: status["ip"] for uid, status in result["status"].items()}
    assert machine.given() == sorted(machine.node.ids("sandbox"))
    assert all(ip.startswith("10.32.0.") for ip in addresses.values())
    for ip in addresses.values():
        command("ip", "netns", "exec", machine.netns, "/bin/busybox", "ping", "-c1", "-W5", ip)
    # a pod reaches itself through a Service: its bridge sends frames back where they came from
    ports = command("ip", "-n", machine.netns, "-d", "link", "show", "master", "weave")
    assert ports.count("hairpin on") == len(addresses)
    assert not machine.sandboxes(one, two)["changed"]
    gone = machine.sandboxes()
    assert (gone["errors"], machine.given(), machine.node.ids()) == ({}, [], [])


def test_drift_is_healed_with_the_same_address(machine: Machine) -> None:
    pod = machine.pod(3)
    before = ready(machine, pod)["status"][pod["pod"]["uid"]]["ip"]
    pid = machine.node.docker.inspect(machine.node.ids("sandbox")[0])["State"]["Pid"]  # type: ignore[index]
    command("nsenter", f"--net=/proc/{pid}/ns/net", "ip", "link", "del", "ethwe")
    healed = machine.sandboxes(pod)
    assert [step["action"] for step in healed["steps"]] == ["plug"]
    assert (healed["errors"], healed["status"][pod["pod"]["uid"]]["ip"]) == ({}, before)


def test_machines_are_connected_and_forgotten_and_those_by_hand_are_left_alone(machine: Machine) -> None:
    (machine.state / "targets").write_text('{"192.0.2.99": ""}')
    planned = machine.run("network", machine.network("192.0.2.1", "192.0.2.2"), check=True)
    assert "peers: 192.0.2.1 192.0.2.2" in planned["diff"]["after"]
    assert machine.targets() == ["192.0.2.99"]
    machine.run("network", machine.network("192.0.2.1", "192.0.2.2"))
    assert machine.targets() == ["192.0.2.1", "192.0.2.2", "192.0.2.99"]
    assert not machine.run("network", machine.network("192.0.2.1", "192.0.2.2"))["changed"]
    machine.run("network", machine.network("192.0.2.2"))
    assert machine.targets() == ["192.0.2.2", "192.0.2.99"]
    (machine.state / "targets").write_text("{}")  # somebody's `weave forget`
    machine.run("network", machine.network("192.0.2.2"))
    assert machine.targets() == ["192.0.2.2"]
    machine.run("network", {})
    assert machine.targets() == []


def test_a_router_that_is_not_there_is_that_pods_own_error(machine: Machine) -> None:
    ready(machine)
    (machine.state / "broken").write_text("weave container is not present. Have you launched it?")
    pod = machine.pod(4)
    error = machine.sandboxes(pod)["errors"][pod["pod"]["uid"]]
    assert (error["reason"], "Have you launched it?" in error["message"]) == ("NetworkNotReady", True)
    broken = machine.run("network", machine.network("192.0.2.1"))["errors"]["pod-network"]
    assert "Have you launched it?" in broken["message"]
    (machine.state / "broken").unlink()
    assert machine.sandboxes(pod)["errors"] == {}


def test_a_node_without_the_command_says_so(machine: Machine) -> None:
    ready(machine)
    machine.command.unlink()
    pod = machine.pod(5)
    error = machine.sandboxes(pod)["errors"][pod["pod"]["uid"]]
    assert "is not installed on this node (Weave Net)" in error["message"]


def test_a_pod_whose_container_is_gone_can_be_deleted(machine: Machine) -> None:
    ready(machine, machine.pod(6))
    machine.calls()
    for container in machine.node.ids():
        machine.node.docker.remove(container)
    assert machine.sandboxes()["errors"] == {}
    assert not any(call.startswith("detach") for call in machine.calls())  # Weave frees what Docker knows no more
    assert not machine.sandboxes()["changed"]
