"""A container is never created before what it mounts stands, whatever became of the section before."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.volumes import mounts as system_mounts
from tests.integration.library.test_containers_docker import only
from tests.support.node import TestNode

CONFIG: dict[str, Any] = {"kind": "configMap", "files": {"app.ini": {"data": "b25l", "mode": 0o644}}}
MEMORY: dict[str, Any] = {"kind": "emptyDir", "medium": "Memory", "size_bytes": 1 << 20}
SCRATCH: dict[str, Any] = {"kind": "emptyDir", "medium": "", "size_bytes": None}


class Killed(BaseException):
    """A stand-in for SIGKILL."""


class Pod:
    """A pod whose sandbox stands, and whose container mounts one volume."""

    def __init__(self, node: TestNode, volume: dict[str, Any], **mount: Any) -> None:
        sandboxes, first = node.start_pod(7)
        sandbox = only(sandboxes)
        uid = sandbox["pod"]["uid"]
        declared = {"volume": "data", "kind": volume["kind"], "target": "/data", **mount}
        self.key = f"{uid}/late"
        self.volumes = {f"{uid}/data": volume}
        self.containers = {**first, self.key: node.container(sandbox, "late", mounts=[declared])}
        self.path = Path(node.state_dir, "pods", uid, "volumes", "data")


def waits(node: TestNode, pod: Pod) -> None:
    """Expect that the container is not created, and told to wait for its volume."""
    result = node.run("containers", pod.containers)
    assert {key: error["reason"] for key, error in result["errors"].items()} == {pod.key: "VolumeMissing"}
    assert not result["changed"]


def comes_up(node: TestNode, pod: Pod) -> str:
    """Expect that both sections are realized; return what the container has mounted."""
    assert not node.run("volumes", pod.volumes)["errors"]
    result = node.run("containers", pod.containers)
    assert not result["errors"]
    return node.execute(result["status"][pod.key]["id"], "sh", "-c", "grep ' /data ' /proc/mounts; ls /data")


@pytest.mark.parametrize("volume", [CONFIG, MEMORY, SCRATCH])
def test_a_volume_that_the_pass_put_off(node: TestNode, volume: dict[str, Any]) -> None:
    pod = Pod(node, volume)
    late = node.run("volumes", pod.volumes, context={"budget_s": 0.0})
    assert [due["reason"] for due in late["due"]] == ["PassBudget"]
    waits(node, pod)
    assert comes_up(node, pod)


def test_a_sub_path_is_not_made_for_a_volume_that_does_not_stand(node: TestNode) -> None:
    pod = Pod(node, SCRATCH, sub_path="a/b")
    waits(node, pod)
    assert not pod.path.exists()
    assert comes_up(node, pod)


def test_files_that_a_killed_pass_left_half_written(node: TestNode) -> None:
    pod = Pod(node, CONFIG)

    def kill(effect: str) -> None:
        if effect == "turn ..data":
            raise Killed

    with pytest.raises(Killed):
        node.run("volumes", pod.volumes, context={"checkpoint": kill, "threads": 1})
    assert pod.path.is_dir()
    waits(node, pod)
    assert "app.ini" in comes_up(node, pod)


def test_a_volume_in_memory_that_could_not_be_mounted(node: TestNode, monkeypatch: pytest.MonkeyPatch) -> None:
    pod = Pod(node, MEMORY)

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(12, os.strerror(12))

    with monkeypatch.context() as patched:
        patched.setattr(system_mounts, "mount_tmpfs", refuse)
        assert node.run("volumes", pod.volumes)["errors"]
    waits(node, pod)
    assert comes_up(node, pod).startswith("tmpfs /data tmpfs")


def test_a_host_path_that_is_still_to_be_made(node: TestNode) -> None:
    host = str(Path(node.state_dir, "host"))
    pod = Pod(node, {"kind": "hostPath", "path": host, "type": ""}, host_path=host)
    waits(node, pod)
    assert comes_up(node, pod)


def test_a_check_takes_volumes_for_made(node: TestNode) -> None:
    pod = Pod(node, CONFIG)
    result = node.run("containers", pod.containers, check=True)
    assert not result["errors"]
    assert [step["action"] for step in result["steps"]] == ["create", "start"]
