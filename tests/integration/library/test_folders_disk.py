"""Folders of volumes that are made for claims: made, deleted with all in them, and nothing else ever deleted."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.core.paths import folder_record_path
from minik8s_modules.module_utils.minik8s.volumes import folders
from tests.integration.library.test_kill_at_every_step import MOST_EFFECTS, survives
from tests.support.node import TestNode

KEY, OWNER, NAME = "pvc-1", "4ab1c2d3-0000-4000-8000-000000000001", "pvc-6cd39e13"
DEEPER_THAN_PYTHON_RECURSES = 1500


@pytest.fixture
def share(tmp_path: Path) -> Path:
    """The folder that volumes are made in; it is not there yet."""
    return tmp_path / "srv" / "share"


def entry(share: Path, state: str = "present", **changes: str) -> dict[str, Any]:
    return {KEY: {"root": str(share), "name": NAME, "owner": OWNER, "state": state, **changes}}


def names(folder: Path) -> list[str]:
    """Return what is in a folder."""
    return sorted(each.name for each in folder.iterdir())


def made(node: TestNode, share: Path) -> Path:
    """Have the folder made, with a file in it; return it."""
    result = node.run("folders", entry(share))
    assert not result["errors"], result["errors"]
    (share / NAME / "file").write_text("data")
    return share / NAME


def deleted(node: TestNode, share: Path) -> Any:
    """Run passes until nothing is due; return the last one's result."""
    for _ in range(600):
        result = node.run("folders", entry(share, "absent"))
        if not result["due"]:
            return result
        time.sleep(0.1)
    pytest.fail("it never ends")


def test_a_folder_is_open_to_whoever_knows_its_name(node: TestNode, share: Path) -> None:
    old = os.umask(0o077)
    try:
        result = node.run("folders", entry(share))
    finally:
        os.umask(old)
    assert result["status"] == {KEY: {"state": "present"}}
    assert [stat.S_IMODE(each.stat().st_mode) for each in (share, share / NAME)] == [0o711, 0o777]
    assert not node.run("folders", entry(share))["changed"]
    (share / NAME).chmod(0o700)  # a database wants its own so
    assert not node.run("folders", entry(share))["changed"]


def test_what_is_declared_no_more_stays(node: TestNode, share: Path) -> None:
    folder = made(node, share)
    assert not node.run("folders", {})["changed"]
    assert (folder / "file").read_text() == "data"


def test_a_folder_that_somebody_removed_is_told_and_made_again(node: TestNode, share: Path) -> None:
    folder = made(node, share)
    (folder / "file").unlink()
    folder.rmdir()
    done = node.run("folders", entry(share), check=True)
    assert [step["action"] for step in done["steps"]] == ["make"]
    assert not folder.exists()
    assert node.run("folders", entry(share))["changed"]


def test_a_folder_goes_with_all_that_is_in_it(node: TestNode, share: Path, tmp_path: Path) -> None:
    folder, other = made(node, share), tmp_path / "other"
    other.mkdir()
    (other / "file").write_text("kept")
    (folder / "link").symlink_to(other)
    (share / "pvc-of-others").mkdir()
    held = os.open(folder, os.O_RDONLY)
    for _ in range(DEEPER_THAN_PYTHON_RECURSES):
        os.mkdir("d", dir_fd=held)
        inner = os.open("d", os.O_RDONLY, dir_fd=held)
        os.close(held)
        held = inner
    os.close(held)
    done = node.run("folders", entry(share, "absent"), check=True)
    assert [step["action"] for step in done["steps"]] == ["remove"]
    assert folder.exists()
    result = deleted(node, share)
    assert result["status"] == {KEY: {"state": "absent"}}
    assert names(share) == ["pvc-of-others"]
    assert (other / "file").read_text() == "kept"
    assert not Path(folder_record_path(node.state_dir, OWNER)).exists()
    assert not node.run("folders", entry(share, "absent"))["changed"]


@pytest.mark.parametrize("whose", [{"owner": "somebody-else"}, {"name": "pvc-of-others"}])
def test_what_was_not_made_for_the_volume_is_never_deleted(node: TestNode, share: Path, whose: dict[str, str]) -> None:
    made(node, share)
    (share / "pvc-of-others").mkdir()
    result = node.run("folders", entry(share, "absent", **whose))
    assert result["errors"][KEY]["reason"] == "NotOurs"
    assert result["status"] == {KEY: None}
    assert names(share) == ["pvc-6cd39e13", "pvc-of-others"]


def test_a_folder_that_was_there_before_is_used_and_never_deleted(node: TestNode, share: Path) -> None:
    (share / NAME).mkdir(parents=True)
    assert not node.run("folders", entry(share))["changed"]
    assert node.run("folders", entry(share, "absent"))["errors"][KEY]["reason"] == "NotOurs"
    assert (share / NAME).exists()


@pytest.mark.parametrize("state", ["present", "absent"])
def test_no_link_on_the_way_is_followed(node: TestNode, share: Path, tmp_path: Path, state: str) -> None:
    """Who may write beside the folders could else have others' files deleted, or made open to all."""
    made(node, share)
    share.rename(tmp_path / "moved")
    share.symlink_to(tmp_path / "moved")
    result = node.run("folders", entry(share, state))
    assert result["errors"][KEY]["reason"] == "InvalidEntry"
    assert (tmp_path / "moved" / NAME / "file").read_text() == "data"


def test_a_link_in_the_place_of_a_folder_leads_nowhere(node: TestNode, share: Path, tmp_path: Path) -> None:
    folder, other = made(node, share), tmp_path / "other"
    folder.rename(other)
    folder.symlink_to(other)
    assert "symbolic link" in node.run("folders", entry(share))["errors"][KEY]["message"]
    deleted(node, share)  # the link itself goes
    assert not folder.is_symlink()
    assert (other / "file").read_text() == "data"
    (share / f".minik8s-made-{OWNER}").symlink_to(other)
    other.chmod(0o700)
    assert node.run("folders", entry(share))["errors"]
    assert stat.S_IMODE(other.stat().st_mode) == 0o700


def test_a_long_deletion_goes_on_after_its_pass(node: TestNode, share: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "WAIT_S", 0.0)
    made(node, share)
    assert deleted(node, share)["status"] == {KEY: {"state": "absent"}}
    assert names(share) == []


def test_a_pass_waits_for_no_deletion(node: TestNode, share: Path) -> None:
    """Whoever deletes has the record locked; that may last for hours."""
    folder = made(node, share)
    with Path(folder_record_path(node.state_dir, OWNER)).open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        for _ in range(2):
            result = node.run("folders", entry(share, "absent"))
            assert (result["status"], result["errors"]) == ({KEY: None}, {})
            assert [due["reason"] for due in result["due"]] == ["DeletesFolder"]
        assert not folder.exists()
        assert len(names(share)) == 1
    assert deleted(node, share)["status"] == {KEY: {"state": "absent"}}
    assert names(share) == []


@pytest.mark.parametrize(
    "changes",
    [{"root": "srv"}, {"root": "/"}, {"root": "/srv/../etc"}, {"name": ".."}, {"name": "a/b"}, {"owner": "a/b"}],
)
def test_a_path_that_leads_elsewhere_is_refused(node: TestNode, share: Path, changes: dict[str, str]) -> None:
    assert node.run("folders", entry(share, **changes))["errors"][KEY]["reason"] in {"InvalidEntry", "InvalidName"}


@pytest.mark.parametrize("state", ["present", "absent"])
def test_killed_at_any_step_it_converges(node: TestNode, share: Path, state: str) -> None:
    for at in range(MOST_EFFECTS):
        if state == "absent":
            made(node, share)
        else:
            deleted(node, share)
        through = survives(node, at, "folders", {"entries": entry(share, state)})
        result = deleted(node, share) if state == "absent" else node.run("folders", entry(share))
        assert not result["errors"], (at, result["errors"])
        assert result["status"] == {KEY: {"state": state}}
        assert names(share) == ([NAME] if state == "present" else []), at
        if through:
            assert at >= 3, "the pass had no effects to be killed at"
            return
    pytest.fail(f"more than {MOST_EFFECTS} effects")
