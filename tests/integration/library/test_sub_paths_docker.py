"""Sub paths on real Docker: nobody exchanges them after the check, and they go with their containers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.core.faults import KeyFault
from minik8s_modules.module_utils.minik8s.install.garbage import RemovalRequest, collect
from minik8s_modules.module_utils.minik8s.pods import sub_paths
from minik8s_modules.module_utils.minik8s.pods.container_spec import Mount
from minik8s_modules.module_utils.minik8s.pods.containers import forget
from minik8s_modules.module_utils.minik8s.volumes import mounts as system_mounts
from tests.integration.library.test_containers_docker import only
from tests.support.node import TestNode


def test_a_sub_path_that_becomes_a_link_after_the_check_is_not_mounted(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "volume", tmp_path / "elsewhere"
    for folder in (root, elsewhere / "b"):
        folder.mkdir(parents=True)
    (root / "a").symlink_to(elsewhere)
    for source in ("a", "a/b"):
        mount = Mount(str(root / source), "/x", read_only=False, root=str(root), bound=str(tmp_path / "bound" / "0"))
        with pytest.raises(KeyFault, match="has become a symbolic link"):
            sub_paths.bind([mount])
    assert not (tmp_path / "bound" / "0").exists()


def test_a_mounted_sub_path_stays_what_it_was_and_goes_with_its_container(node: TestNode) -> None:
    sandboxes, _ = node.start_pod(7)
    pod = only(sandboxes)
    uid = pod["pod"]["uid"]
    node.run("volumes", {f"{uid}/data": {"kind": "emptyDir"}})
    data = Path(node.state_dir, "pods", uid, "volumes", "data")
    (data / "file").write_text("one")
    mounts: list[dict[str, Any]] = [
        {"volume": "data", "kind": "emptyDir", "target": "/part", "sub_path": "a/b"},
        {"volume": "data", "kind": "emptyDir", "target": "/file", "sub_path": "file", "read_only": True},
    ]
    key, entry = f"{uid}/app", node.container(pod, "app", mounts=mounts)
    result = node.run("containers", {key: entry})
    app = result["status"][key]["id"]
    (data / "a" / "b" / "x").write_text("two")
    (data / "a" / "b").rename(data / "c")
    (data / "a" / "b").symlink_to("/etc")
    node.docker.call("POST", f"/containers/{app}/restart", query={"t": "0"})
    assert node.execute(app, "cat", "/part/x", "/file") == "twoone"
    (data / "a" / "b").unlink()
    (data / "c").rename(data / "a" / "b")
    assert not node.run("containers", {key: entry})["changed"]
    bound = Path(node.run_dir, "sub-paths")
    assert len(list(bound.iterdir())) == 1
    node.run("containers", {})
    assert list(bound.iterdir()) == []
    assert (data / "a" / "b" / "x").read_text() == "two"


def test_sub_paths_that_a_boot_took_away_are_bound_anew(node: TestNode) -> None:
    sandboxes, _ = node.start_pod(7)
    pod = only(sandboxes)
    uid = pod["pod"]["uid"]
    node.run("volumes", {f"{uid}/data": {"kind": "emptyDir"}})
    mounts = [{"volume": "data", "kind": "emptyDir", "target": "/part", "sub_path": "a"}]
    key, entry = f"{uid}/app", node.container(pod, "app", mounts=mounts, restart_policy="Always")
    app = node.run("containers", {key: entry})["status"][key]["id"]
    node.execute(app, "touch", "/part/x")
    node.docker.kill(app, "SIGKILL")
    for mount in system_mounts.under(node.run_dir, system_mounts.mounts()):
        if "sub-paths" in mount.point:
            system_mounts.unmount(mount.point)
    again = node.run("containers", {key: entry}, context={"unattended": True})["status"][key]["id"]
    assert again != app
    assert node.execute(again, "ls", "/part") == "x\n"


def test_garbage_collection_leaves_nothing_of_a_container(node: TestNode) -> None:
    sandboxes, _ = node.start_pod(7)
    pod = only(sandboxes)
    uid = pod["pod"]["uid"]
    node.run("volumes", {f"{uid}/data": {"kind": "emptyDir"}})
    mounts = [{"volume": "data", "kind": "emptyDir", "target": "/part", "sub_path": "a"}]
    message = {"path": "/dev/termination-log", "policy": "File"}
    key, entry = f"{uid}/app", node.container(pod, "app", mounts=mounts, message=message)
    app = node.run("containers", {key: entry})["status"][key]["id"]
    node.docker.kill(app, "SIGKILL")
    kept = [Path(node.run_dir, "sub-paths"), Path(node.state_dir, "messages")]
    assert [len(list(folder.iterdir())) for folder in kept] == [1, 1]

    def gone(name: str) -> None:
        forget(node.state_dir, node.run_dir, name)

    found = collect(node.docker, node.name, RemovalRequest([app], [], 0), check=False, forget=gone)
    assert found.containers == [app]
    assert [len(list(folder.iterdir())) for folder in kept] == [0, 0]
