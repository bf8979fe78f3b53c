"""Attack: a sandbox ends while its rules are looked at, and a process of the machine gets the number of its process.

A pod's author may have its sandbox end whenever he likes, and start processes until numbers come round. The rules of
his pod would then stand in the machine's own network, or in another pod's.
"""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.core import labels
from minik8s_modules.module_utils.minik8s.core.docker import Docker
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


def test_no_network_is_entered_by_a_number_that_is_anothers(
    node: TestNode, monkeypatch: pytest.MonkeyPatch, entered: list[list[str]]
) -> None:
    entry = node.pod(7)
    uid = entry["pod"]["uid"]
    node.run("network", node.network())
    assert not node.run("sandboxes", {uid: entry})["errors"]
    (sandbox,) = node.ids(labels.SANDBOX)
    bystander = subprocess.Popen(["unshare", "--net", "sleep", "600"])
    try:
        inspect, asked = Docker.inspect, []

        def stale(docker: Docker, container: str) -> dict[str, Any] | None:
            told = inspect(docker, container)
            asked.append(container)
            if told is not None and len(asked) == 1:  # it was its process when Docker was asked
                told["State"]["Pid"] = bystander.pid
            return told

        monkeypatch.setattr(Docker, "inspect", stale)
        node.run("sidecars", {uid: {"attempt": entry["attempt"]}})
    finally:
        bystander.kill()
        bystander.wait()
    assert asked[0].startswith(sandbox)
    assert entered == []
