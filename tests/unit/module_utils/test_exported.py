"""What the kernel's table of exports says of a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from minik8s_modules.module_utils.minik8s.core.section import Request, Scope, context_for
from minik8s_modules.module_utils.minik8s.volumes.exported import clients
from minik8s_modules.module_utils.minik8s.volumes.folders import Folders, ObservedFolder

BLANK = "/srv/my\\040share\t10.0.0.1(rw)\n"
TABLE = BLANK + "/srv/minik8s\t10.0.0.1(rw,sync,root_squash)\n/srv/minik8s\t10.0.0.2(rw)\n# /srv/none 10.0.0.1(rw)\n"


@pytest.mark.parametrize(
    ("path", "exported"),
    [
        ("/srv/minik8s", True),
        ("/srv/minik8s/team", True),
        ("/srv/minik8s-other", False),
        ("/srv", False),
        ("/srv/none", False),
        ("/srv/my share", True),
        ("/srv/my", False),
    ],
)
def test_a_folder_is_exported_with_what_is_above_it(tmp_path: Path, path: str, exported: bool) -> None:  # noqa: FBT001
    (tmp_path / "etab").write_text(TABLE)
    assert bool(clients(path, str(tmp_path / "etab"))) is exported


def test_a_server_without_that_table_is_not_judged(tmp_path: Path) -> None:
    assert clients("/srv/minik8s", str(tmp_path / "etab")) is None


def test_a_plan_tells_whom_a_new_folder_is_exported_to(tmp_path: Path) -> None:
    (tmp_path / "etab").write_text(TABLE)
    whom = clients("/srv/minik8s/team", str(tmp_path / "etab"))
    assert whom == ["10.0.0.1", "10.0.0.2"]
    entry = {"root": "/srv/share", "name": "pvc-1", "owner": "u1", "state": "present", "exported": True}
    found = ObservedFolder("missing", aside=False, recorded=False, exported=tuple(whom))
    plan = Folders().plan(context_for(Request("n1")), {"pvc-1": entry}, {"pvc-1": found}, Scope())
    assert plan.after == {"pvc-1": {"is": "directory", "exported to": "10.0.0.1 10.0.0.2"}}


def test_a_folder_that_nobody_can_mount_is_made_and_told() -> None:
    entry = {"root": "/srv/share", "name": "pvc-1", "owner": "u1", "state": "present", "exported": True}
    found = ObservedFolder("missing", aside=False, recorded=False, exported=())
    plan = Folders().plan(context_for(Request("n1")), {"pvc-1": entry}, {"pvc-1": found}, Scope())
    assert [step.action for step in plan.steps] == ["make"]
    assert plan.errors["pvc-1"].reason == "NotExported"
    assert "nfs_server_paths" in str(plan.errors["pvc-1"])
