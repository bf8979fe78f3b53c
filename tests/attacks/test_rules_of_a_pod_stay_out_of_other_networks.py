"""Attack: a sandbox ends while its network is looked at, and a process of the machine gets the number of its process.

A pod's author may have its sandbox end whenever he likes, and start processes until numbers come round. The rules,
addresses and routes of his pod would then stand in the machine's own network, or in another pod's.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.core import labels
from minik8s_modules.module_utils.minik8s.core.docker import Docker
from minik8s_modules.module_utils.minik8s.core.faults import KeyFault
from minik8s_modules.module_utils.minik8s.network.sandbox_network import network_of
from tests.integration.library.conftest import node
from tests.support.node import TestNode

__all__ = ["node"]


@pytest.fixture
def entered(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Return what is run in networks of others."""
    found: list[list[str]] = []
    run = subprocess.run

    def noted(words: list[str], **options: Any) -> Any:
        found.extend([words] if words[0] == "nsenter" else [])
        return run(words, **options)

    monkeypatch.setattr(subprocess, "run", noted)
    return found


@pytest.fixture
def bystander() -> Iterator[int]:
    """Return the number of a process with a network of its own, which has nothing in it."""
    process = subprocess.Popen(["unshare", "--net", "sleep", "600"])
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def sandbox(node: TestNode) -> tuple[str, dict[str, Any]]:
    """Return a pod's uid and entry, once its sandbox runs."""
    entry = node.pod(7)
    uid = str(entry["pod"]["uid"])
    node.run("network", node.network())
    assert not node.run("sandboxes", {uid: entry})["errors"]
    return uid, entry


def lie(monkeypatch: pytest.MonkeyPatch, pid: int, times: int = 1) -> list[str]:
    """Have Docker tell another number the first times; return whom it is asked about."""
    inspect, asked = Docker.inspect, list[str]()

    def stale(docker: Docker, container: str) -> dict[str, Any] | None:
        result = inspect(docker, container)
        asked.append(container)
        if result is not None and len(asked) <= times:  # it was its process when Docker was asked
            result["State"]["Pid"] = pid
        return result

    monkeypatch.setattr(Docker, "inspect", stale)
    return asked


def test_no_rules_are_written_by_a_number_that_is_anothers(
    node: TestNode, monkeypatch: pytest.MonkeyPatch, entered: list[list[str]], bystander: int
) -> None:
    uid, entry = sandbox(node)
    (made,) = node.ids(labels.SANDBOX)
    asked = lie(monkeypatch, bystander)
    node.run("sidecars", {uid: {"attempt": entry["attempt"]}})
    assert asked[0].startswith(made)
    assert entered == []


def test_no_address_is_given_by_a_number_that_is_anothers(
    node: TestNode, monkeypatch: pytest.MonkeyPatch, bystander: int
) -> None:
    """The node finds the pod without a network then, and would make one."""
    uid, entry = sandbox(node)
    lie(monkeypatch, bystander)
    result = node.run("sandboxes", {uid: entry})
    assert result["errors"][uid]["reason"] == "SandboxGone"
    shown = ["nsenter", f"--net=/proc/{bystander}/ns/net", "ip", "-oneline", "link"]
    (loopback,) = subprocess.run(shown, capture_output=True, text=True, check=True).stdout.splitlines()
    assert "state DOWN" in loopback
    assert not node.run("sandboxes", {uid: entry})["errors"]


def test_the_machines_own_network_is_never_entered(node: TestNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long Docker takes to notice that the sandbox has ended."""
    sandbox(node)
    (made,) = node.ids(labels.SANDBOX)
    lie(monkeypatch, os.getpid(), times=9)
    inspect = node.docker.inspect(made)
    assert inspect is not None
    with pytest.raises(KeyFault, match="its node's network"), network_of(node.docker, inspect):
        pass
