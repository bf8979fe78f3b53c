"""Termination messages on a node: the file is there for its container, is no drift, and goes with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from minik8s_modules.module_utils.minik8s.core.messages import message_file, message_source
from tests.support.node import TestNode

MESSAGE = {"path": "/dev/termination-log", "policy": "File"}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[TestNode]:
    made = TestNode(tmp_path)
    made.run("network", made.network())
    yield made
    made.close()


def test_a_container_writes_its_last_words_and_they_go_with_it(node: TestNode):
    pod = node.pod()
    uid = pod["pod"]["uid"]
    node.run("sandboxes", {uid: pod})
    command = ["sh", "-c", "echo -n bye >/dev/termination-log; exec sleep 3600"]
    entry = node.container(pod, entrypoint=command, message=MESSAGE, user="1000:1000")
    made = node.run("containers", {f"{uid}/app": entry})
    status = made["status"][f"{uid}/app"]
    path = message_file(node.state_dir, status["name"])
    assert status["message_source"] == f"File:{path}"
    assert status["message"] is None
    found = node.docker.inspect(status["id"])
    assert found is not None
    assert message_source(found) == f"File:{path}"
    node.docker.call("POST", f"/containers/{status['id']}/stop", query={"t": "0"})
    assert Path(path).read_text() == "bye"
    assert node.run("containers", {f"{uid}/app": entry})["changed"] is False
    node.run("containers", {})
    assert list(Path(path).parent.iterdir()) == []


def test_the_file_goes_with_its_container_when_the_pass_is_killed_between(node: TestNode, monkeypatch):
    pod = node.pod()
    uid = pod["pod"]["uid"]
    node.run("sandboxes", {uid: pod})
    entry = node.container(pod, message=MESSAGE, entrypoint=["true"])
    done = node.run("containers", {f"{uid}/app": entry})["status"][f"{uid}/app"]
    remove = node.docker.remove

    def removed_and_killed(container: str) -> None:
        remove(container)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(node.docker, "remove", removed_and_killed)
        with pytest.raises(KeyboardInterrupt):
            node.run("containers", {})
    node.run("containers", {})
    assert not Path(message_file(node.state_dir, done["name"])).exists()


def test_a_container_made_without_the_file_is_left_alone(node: TestNode):
    pod = node.pod()
    uid = pod["pod"]["uid"]
    node.run("sandboxes", {uid: pod})
    node.run("containers", {f"{uid}/app": node.container(pod)})
    assert node.run("containers", {f"{uid}/app": node.container(pod, message=MESSAGE)})["changed"] is False


def test_a_volume_that_is_mounted_there_goes_before_the_file(node: TestNode, tmp_path: Path):
    (tmp_path / "mine").write_text("")
    pod = node.pod()
    uid = pod["pod"]["uid"]
    node.run("sandboxes", {uid: pod})
    own = {"volume": "v", "kind": "hostPath", "target": "/dev/termination-log", "host_path": str(tmp_path / "mine")}
    entry = node.container(pod, message=MESSAGE, mounts=[own])
    made = node.run("containers", {f"{uid}/app": entry})
    assert made["errors"] == {}
    assert made["status"][f"{uid}/app"]["message_source"] == ""
