"""Secrets: on tmpfs only, healed, sealed, restored after a boot; and a canary that is found nowhere else."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.core import sealing
from minik8s_modules.module_utils.minik8s.core.faults import KeyFault, NodeFault
from minik8s_modules.module_utils.minik8s.volumes import mounts
from tests.integration.library.test_containers_docker import as_blob
from tests.support.node import TestNode, as_json

CANARY = "canary-3b9d1e77"
ENTRIES: dict[str, Any] = {"default/database": {"hmac": "a1", "keys": ["password", "user"]}}
BLOB = as_blob({"default/database": {"password": CANARY, "user": "root"}})


def value(node: TestNode) -> Path:
    """Return the file of the canary."""
    return Path(node.run_dir, "secrets", "default", "database", "password")


@pytest.mark.parametrize("by_command", [False, True])
def test_values_lie_on_tmpfs_and_in_nothing_else(
    node: TestNode, monkeypatch: pytest.MonkeyPatch, *, by_command: bool
) -> None:
    if by_command:
        monkeypatch.setattr(sealing, "_library", lambda: None)
    argvs: list[str] = []
    real = subprocess.run

    def recorded(argv: list[str], **options: Any) -> Any:
        argvs.append(" ".join(argv))
        return real(argv, **options)

    monkeypatch.setattr(subprocess, "run", recorded)  # the only door to argv
    result = node.run("secrets", ENTRIES, blob=BLOB)
    planned = node.run("secrets", {}, check=True)
    assert not result["errors"]
    assert value(node).read_text() == CANARY
    assert value(node).stat().st_mode & 0o777 == 0o400
    assert mounts.is_tmpfs(str(value(node)))
    assert CANARY not in as_json(result) + as_json(planned)
    assert bool(argvs) == by_command
    key = sealing.known_key(node.state_dir)
    assert not [argv for argv in argvs if CANARY in argv or key.hex() in argv]
    for path in Path(node.state_dir).rglob("*"):
        assert path.is_dir() or CANARY.encode() not in path.read_bytes(), path
    assert (Path(node.state_dir) / "node.key").stat().st_mode & 0o777 == 0o600


def test_a_second_run_finds_nothing_and_an_empty_set_leaves_nothing(node: TestNode) -> None:
    node.run("secrets", ENTRIES, blob=BLOB)
    assert not node.run("secrets", ENTRIES, blob=BLOB)["changed"]
    assert not node.run("secrets", ENTRIES)["changed"]
    node.run("secrets", {})
    assert not Path(node.run_dir, "secrets").exists()
    assert not Path(node.state_dir, "secrets.sealed").exists()
    assert node.traces()["mounts"] == []


@pytest.mark.parametrize("harm", ["edit", "delete", "extra", "tmpfs"])
def test_a_value_harmed_by_hand_comes_back_without_being_sent(node: TestNode, harm: str) -> None:
    node.run("secrets", ENTRIES, blob=BLOB)
    if harm == "edit":
        value(node).write_text("other")
    elif harm == "delete":
        value(node).unlink()
    elif harm == "extra":
        value(node).with_name("extra").write_text("x")
    else:
        mounts.unmount(str(Path(node.run_dir, "secrets")))
    result = node.run("secrets", ENTRIES)
    assert result["changed"]
    assert not result["errors"]
    assert value(node).read_text() == CANARY
    assert not value(node).with_name("extra").exists()
    assert not node.run("secrets", ENTRIES)["changed"]


def test_a_harmed_seal_is_made_again(node: TestNode) -> None:
    node.run("secrets", ENTRIES, blob=BLOB)
    sealed = Path(node.state_dir, "secrets.sealed")
    sealed.write_bytes(sealed.read_bytes()[:-1] + b"x")
    result = node.run("secrets", ENTRIES)
    assert [step["action"] for step in result["steps"]] == ["seal"]
    assert not node.run("secrets", ENTRIES)["changed"]


def test_a_value_that_was_never_sent_is_an_error_of_its_key(node: TestNode) -> None:
    entries = {**ENTRIES, "default/other": {"hmac": "b1", "keys": ["x"]}}
    result = node.run("secrets", entries, blob=BLOB)
    assert result["errors"]["default/other"]["reason"] == "SecretMissing"
    assert result["status"] == {"default/database": {"state": "present"}, "default/other": None}


def test_a_hole_does_not_cost_the_sealed_copy_its_older_values(node: TestNode) -> None:
    node.run("secrets", ENTRIES, blob=BLOB)
    mounts.unmount(str(Path(node.run_dir, "secrets")))
    newer = {"default/database": {"hmac": "a2", "keys": ["password", "user"]}}
    assert node.run("secrets", newer)["errors"]["default/database"]["reason"] == "SecretMissing"
    assert not node.run("secrets", ENTRIES)["errors"]
    assert value(node).read_text() == CANARY


def test_a_broken_seal_with_a_hole_is_replaced_by_what_is_known(node: TestNode) -> None:
    node.run("secrets", ENTRIES, blob=BLOB)
    Path(node.state_dir, "secrets.sealed").write_bytes(b"broken")
    entries = {**ENTRIES, "default/other": {"hmac": "b1", "keys": ["x"]}}
    assert set(node.run("secrets", entries)["errors"]) == {"default/other"}
    mounts.unmount(str(Path(node.run_dir, "secrets")))
    assert set(node.run("secrets", entries)["errors"]) == {"default/other"}
    assert value(node).read_text() == CANARY


def test_a_blob_that_is_none_fails_without_showing_it(node: TestNode) -> None:
    with pytest.raises(NodeFault) as caught:
        node.run("secrets", ENTRIES, blob=CANARY)
    assert CANARY not in str(caught.value)


def test_sealing_is_undone_only_by_the_same_key() -> None:
    sealed = sealing.seal(b"k" * 32, b"data" * 1000)
    assert b"data" not in sealed
    assert sealing.unseal(b"k" * 32, sealed) == b"data" * 1000
    assert sealing.seal(b"k" * 32, b"data") != sealing.seal(b"k" * 32, b"data")
    for key, broken in ((b"x" * 32, sealed), (b"k" * 32, sealed[:-1]), (b"k" * 32, b"x" + sealed), (b"k" * 32, b"")):
        with pytest.raises(KeyFault):
            sealing.unseal(key, broken)
