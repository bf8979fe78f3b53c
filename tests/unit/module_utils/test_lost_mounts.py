"""Which containers have lost what they mount."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from minik8s_modules.module_utils.minik8s.core.section import Context
from minik8s_modules.module_utils.minik8s.pods.containers import _mountless


def container(source: Path) -> dict[str, Any]:
    return {"Id": str(source), "Mounts": [{"Type": "bind", "Source": str(source)}]}


def test_a_folder_of_the_machine_called_mounts_is_no_mount_point_of_ours(tmp_path: Path) -> None:
    own, others = tmp_path / "state/pods/uid/mounts/data", tmp_path / "mounts/data"
    for folder in (own, others):
        folder.mkdir(parents=True)
    context = cast("Context", SimpleNamespace(state_dir=str(tmp_path / "state"), run_dir=str(tmp_path / "run")))
    containers: dict[str, list[Mapping[str, Any]]] = {}
    containers["uid/app"] = [container(own), container(others), container(tmp_path / "mounts/none")]
    assert _mountless(context, containers) == {str(own), str(tmp_path / "mounts/none")}
