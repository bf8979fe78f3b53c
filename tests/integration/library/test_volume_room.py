"""How full volumes are: of this machine's disks, of a driver, and of what does not answer."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.volumes import room
from minik8s_modules.module_utils.minik8s.volumes.csi_registration import register
from tests.support.node import TestNode
from tests.support.servers.csi_driver import Running, csi_driver


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Running]:
    with csi_driver(f"t{uuid.uuid4().hex[:10]}.csi.test", tmp_path) as running:
        yield running


def asked(node: TestNode, *names: str, uid: str = "u") -> dict[str, dict[str, int]]:
    return room.rooms(node.state_dir, node.run_dir, [f"{uid}/{name}" for name in names])


def test_a_folder_has_the_room_of_its_file_system(node: TestNode, tmp_path: Path):
    disk = {"kind": "local", "path": str(tmp_path)}
    node.run("volumes", {"u/disk": disk, "u/host": {"kind": "hostPath", "path": str(tmp_path), "type": ""}})
    found = asked(node, "disk", "host", "unknown")
    here = os.statvfs(tmp_path)
    assert found["u/disk"].keys() == found["u/host"].keys() == {*room.Room._fields}
    assert found["u/disk"]["capacity_bytes"] == here.f_blocks * here.f_frsize
    assert found["u/disk"]["inodes"] == here.f_files
    assert "u/unknown" not in found
    tmp_path.rename(tmp_path.with_name("moved"))
    assert asked(node, "disk").keys() <= {"u/disk"}
    tmp_path.with_name("moved").rename(tmp_path)


def test_an_nfs_volume_that_is_not_mounted_says_nothing(node: TestNode):
    entry = {"kind": "nfs", "server": "192.0.2.1", "path": "/srv"}
    node.run("volumes", {"u/far": entry})
    assert asked(node, "far") == {}


def test_a_driver_is_asked_about_what_it_has_published_and_calls_are_noted(node: TestNode, driver: Running):
    register()
    uid = str(uuid.uuid4())
    entry: dict[str, Any] = {"kind": "csi", "driver": driver.name, "handle": "h-1"}
    result = node.run("volumes", {f"{uid}/data": entry})
    assert not result["errors"], result["errors"]
    methods = [call["method"] for call in result["calls"]]
    assert methods == [
        f"/csi.v1.Node/{name}" for name in ("NodeGetCapabilities", "NodeStageVolume", "NodePublishVolume")
    ]
    assert {(call["driver"], call["code"]) for call in result["calls"]} == {(driver.name, "OK")}
    try:
        assert asked(node, "data", uid=uid) == {
            f"{uid}/data": {
                "capacity_bytes": 100, "available_bytes": 40, "used_bytes": 60, "inodes": 9, "inodes_free": 0,
                "inodes_used": 9,
            }
        }  # fmt: skip
        (driver.folder / "fail-NodeGetVolumeStats").touch()
        assert asked(node, "data", uid=uid) == {}
        (driver.folder / "fail-NodeUnpublishVolume").touch()
        assert node.run("volumes", {})["calls"][-1]["code"] == "Internal"
        (driver.folder / "fail-NodeUnpublishVolume").unlink()
    finally:
        assert not node.run("volumes", {})["errors"]
