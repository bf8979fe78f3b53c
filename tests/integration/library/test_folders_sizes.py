"""Folders with a size: what is done to the kernel's project quotas, which few machines have, so a stand-in keeps them.

The kernel's own are tried in ``tests/machines/long/test_volume_sizes.py``.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.core.faults import KeyFault
from minik8s_modules.module_utils.minik8s.core.paths import folder_record_path
from minik8s_modules.module_utils.minik8s.volumes.folders import Folders
from minik8s_modules.module_utils.minik8s.volumes.project_quotas import Limit, ProjectQuotas
from tests.integration.library.test_folders_disk import KEY, NAME, OWNER, deleted, entry, names
from tests.integration.library.test_kill_at_every_step import MOST_EFFECTS, survives
from tests.support.node import SECTIONS, TestNode

MIB = 1 << 20
ATTRIBUTE = "user.project"


class Kept(ProjectQuotas):
    """Projects as an attribute of folders, limits in a file: both outlive a killed pass."""

    def __init__(self, file: Path) -> None:
        self.file, self.there = file, True

    def limits(self) -> dict[str, int]:
        """Return the limits by project."""
        return dict(json.loads(self.file.read_text())) if self.file.exists() else {}

    def require(self, path: str, _folder: int) -> None:
        """Raise where there are none."""
        if not self.there:
            raise KeyFault("QuotaUnavailable", path)

    def limit(self, folder: int) -> Limit:
        """Return what holds for a folder."""
        if ATTRIBUTE not in os.listxattr(folder):
            return Limit(0, 0)
        project = int(os.getxattr(folder, ATTRIBUTE))
        return Limit(project, self.limits().get(str(project), 0))

    def place(self, folder: int, project: int) -> None:
        """Put a folder into a project."""
        os.setxattr(folder, ATTRIBUTE, str(project).encode())

    def set_limit(self, _folder: int, project: int, size_bytes: int) -> None:
        """Limit a project."""
        found = {**self.limits(), str(project): size_bytes}
        self.file.write_text(json.dumps({name: size for name, size in found.items() if size}))


@pytest.fixture
def share(tmp_path: Path) -> Path:
    """The folder that volumes are made in; it is not there yet."""
    return tmp_path / "srv" / "share"


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kept:
    """The stand-in, which the node's section ``folders`` uses."""
    made = Kept(tmp_path / "limits.json")
    monkeypatch.setitem(SECTIONS, "folders", Folders(made))
    return made


def sized(share: Path, size_bytes: int) -> dict[str, Any]:
    """Return the entry of a folder with a size."""
    return {KEY: {**entry(share)[KEY], "size_bytes": size_bytes}}


def actions(result: Any) -> list[str]:
    return [step["action"] for step in result["steps"]]


def test_a_folder_has_its_size_from_the_beginning_and_grows(node: TestNode, share: Path, kept: Kept) -> None:
    assert actions(node.run("folders", sized(share, MIB), check=True)) == ["make"]
    assert actions(node.run("folders", sized(share, MIB))) == ["make"]
    assert [*kept.limits().values()] == [MIB]
    assert not node.run("folders", sized(share, MIB))["changed"]
    done = node.run("folders", sized(share, 2 * MIB), check=True)
    assert actions(done) == ["limit"]
    before, after = ({KEY: {"is": "directory", "size": str(size)}} for size in (MIB, 2 * MIB))
    assert done["differences"] == {"before": before, "after": after}
    assert not node.run("folders", sized(share, 2 * MIB))["errors"]
    assert [*kept.limits().values()] == [2 * MIB]


def test_a_limit_that_somebody_lifted_is_drift(node: TestNode, share: Path, kept: Kept) -> None:
    node.run("folders", sized(share, MIB))
    kept.file.write_text("{}")
    assert actions(node.run("folders", sized(share, MIB))) == ["limit"]
    os.removexattr(share / NAME, ATTRIBUTE)
    assert actions(node.run("folders", sized(share, MIB))) == ["limit"]
    assert not node.run("folders", sized(share, MIB))["changed"]


def test_a_folder_that_goes_leaves_no_limit(node: TestNode, share: Path, kept: Kept) -> None:
    node.run("folders", sized(share, MIB))
    assert deleted(node, share)["status"] == {KEY: {"state": "absent"}}
    assert kept.limits() == {}
    assert not Path(folder_record_path(node.state_dir, OWNER)).exists()


def test_without_quotas_no_folder_is_promised(node: TestNode, share: Path, kept: Kept) -> None:
    kept.there = False
    for _ in range(2):
        result = node.run("folders", sized(share, MIB))
        assert result["errors"][KEY]["reason"] == "QuotaUnavailable"
        assert result["status"] == {KEY: None}
        assert NAME not in names(share)


def test_the_kernel_of_this_machine_is_asked(node: TestNode, share: Path) -> None:
    """Without a stand-in: here there may be quotas or not, but never a folder that only seems to have a size."""
    result = node.run("folders", sized(share, MIB))
    if result["errors"]:
        assert result["errors"][KEY]["reason"] == "QuotaUnavailable"
        assert "prjquota" in result["errors"][KEY]["message"]
    assert (NAME in names(share)) == (not result["errors"])


def test_a_folder_of_somebody_else_gets_no_limit_and_is_not_put_on_record(
    node: TestNode, share: Path, kept: Kept
) -> None:
    (share / NAME).mkdir(parents=True)
    result = node.run("folders", sized(share, MIB))
    assert result["errors"][KEY]["reason"] == "NotOurs"
    assert kept.limits() == {}
    assert node.run("folders", entry(share, "absent"))["errors"][KEY]["reason"] == "NotOurs"


@pytest.mark.parametrize("before", [0, MIB])
def test_killed_at_any_step_the_folder_has_its_size(node: TestNode, share: Path, kept: Kept, before: int) -> None:
    for at in range(MOST_EFFECTS):
        deleted(node, share)
        if before:
            node.run("folders", sized(share, before))
        through = survives(node, at, "folders", {"entries": sized(share, 2 * MIB)})
        result = node.run("folders", sized(share, 2 * MIB))
        assert not result["errors"], (at, result["errors"])
        assert [*kept.limits().values()] == [2 * MIB], at
        assert names(share) == [NAME]
        if through:
            assert at >= 1, "the pass had no effects to be killed at"
            return
    pytest.fail(f"more than {MOST_EFFECTS} effects")


def test_a_size_of_nothing_is_refused(node: TestNode, share: Path) -> None:
    assert node.run("folders", sized(share, -1))["errors"][KEY]["reason"] == "InvalidEntry"
