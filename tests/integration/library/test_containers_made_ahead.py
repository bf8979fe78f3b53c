"""Containers that are made before their turn, on real Docker: they wait, and are what is declared when they start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.integration.library.test_containers_docker import only
from tests.support.node import TestNode


def ahead(node: TestNode, **changes: Any) -> tuple[str, dict[str, Any]]:
    """Bring up a pod with one container that runs; return the key of another one, and entries with it made ahead."""
    sandboxes, first = node.start_pod(7)
    sandbox = only(sandboxes)
    key = f"{sandbox['pod']['uid']}/later"
    return key, {**first, key: node.container(sandbox, "later", state="made", **changes)}


def let_go(key: str, entries: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return the entries with the container to run."""
    return {**entries, key: {**entries[key], "state": "running", **changes}}


def test_it_waits_until_it_is_told_to_run(node: TestNode) -> None:
    key, entries = ahead(node)
    made = node.run("containers", entries)
    assert [(step["action"], step["key"]) for step in made["steps"]] == [("create", key)]
    assert made["status"][key]["state"] == "created"
    assert not node.run("containers", entries)["changed"]
    started = node.run("containers", let_go(key, entries))
    assert [step["action"] for step in started["steps"]] == ["start"]
    assert (started["status"][key]["state"], started["status"][key]["id"]) == ("running", made["status"][key]["id"])


def test_what_starts_in_the_same_pass_starts_first(node: TestNode) -> None:
    key, entries = ahead(node)
    other = key.replace("/later", "/other")
    both = {**entries, other: {**entries[key], "name": "other", "state": "running"}}
    words: list[str] = []
    result = node.run("containers", both, context={"checkpoint": words.append, "threads": 1})
    assert not result["errors"]
    assert [word for word in words if word.endswith("container")] == [
        "create container", "start container", "create container",
    ]  # fmt: skip
    assert [result["status"][each]["state"] for each in (other, key)] == ["running", "created"]


def test_what_has_changed_by_its_turn_has_it_made_anew(node: TestNode) -> None:
    key, entries = ahead(node, env=[["A", "1"]], links=[["WEB_SERVICE_HOST", "100.0.0.7"]])
    node.run("containers", entries)
    running = let_go(key, entries, env=[["A", "2"]], links=[["WEB_SERVICE_HOST", "100.0.0.8"]])
    result = node.run("containers", running)
    assert [step["action"] for step in result["steps"]] == ["remove", "create", "start"]
    shown = node.execute(result["status"][key]["id"], "sh", "-c", "echo $A $WEB_SERVICE_HOST")
    assert shown == "2 100.0.0.8\n"


def test_a_path_of_the_node_is_looked_at_again_when_it_starts(node: TestNode, tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.mkdir()
    mount = {"volume": "data", "kind": "hostPath", "target": "/data"}
    key, entries = ahead(node, mounts=[{**mount, "host_path": str(path), "host_type": "Directory"}])
    assert not node.run("containers", entries)["errors"]
    path.rmdir()
    path.write_text("")
    result = node.run("containers", let_go(key, entries))
    assert result["errors"][key]["message"].endswith(f"hostPath type check failed: {path} is not a directory")
    assert result["status"][key]["state"] == "created"
    path.unlink()
    path.mkdir()
    assert node.run("containers", let_go(key, entries))["status"][key]["state"] == "running"


def test_nobody_starts_it_while_the_node_is_unattended(node: TestNode) -> None:
    key, entries = ahead(node)
    node.run("containers", entries)
    result = node.run("containers", entries, context={"unattended": True})
    assert (result["steps"], result["status"][key]["state"]) == ([], "created")
