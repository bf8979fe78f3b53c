"""Huge pages of this machine's kernel: volumes that lie on them, and what a pod's cgroup allows."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.core import labels
from minik8s_modules.module_utils.minik8s.core.paths import volume_path
from minik8s_modules.module_utils.minik8s.pods import cgroups, huge_pages, pod_cgroup
from minik8s_modules.module_utils.minik8s.volumes import mounts
from tests.support.huge_pages import FOLDER, SIZE, set_aside
from tests.support.node import TestNode

UID = "4ab1c2d3-0000-4000-8000-000000000001"
KEY = f"{UID}/huge"
CGROUP = {"cpu_shares": 2, "cpu_quota_us": 0, "memory_bytes": 0, "pids": 0}


@pytest.fixture
def pages() -> Iterator[None]:
    with set_aside(4):
        yield


def volume(pages: int, **changes: Any) -> dict[str, Any]:
    """Return the entry of an emptyDir on so many huge pages."""
    return {"kind": "emptyDir", "medium": "HugePages", "page_bytes": SIZE, "size_bytes": pages * SIZE, **changes}


def take(path: Path, pages: int) -> None:
    """Have a file take pages."""
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, pages * SIZE)


@pytest.mark.usefixtures("pages")
def test_a_volume_on_huge_pages_holds_as_many_as_it_may_and_gives_them_back(node: TestNode) -> None:
    entries = {KEY: volume(2, fs_group=4321)}
    assert not node.run("volumes", entries)["errors"]
    path = Path(volume_path(node.state_dir, node.run_dir, UID, "huge", "emptyDir"))
    (mount,) = mounts.at(str(path), mounts.mounts())
    assert (mount.kind, path.stat().st_gid, path.stat().st_mode & 0o7777) == ("hugetlbfs", 4321, 0o2777)
    assert not node.run("volumes", entries)["changed"]
    free = int((FOLDER / "free_hugepages").read_text())
    take(path / "two", 2)
    with pytest.raises(OSError, match="No space") as caught:
        take(path / "third", 1)
    assert caught.value.errno == errno.ENOSPC
    assert int((FOLDER / "free_hugepages").read_text()) <= free - 2
    assert node.run("volumes", {})["changed"]
    assert not path.exists()
    assert int((FOLDER / "free_hugepages").read_text()) >= free - 1  # another test may take one meanwhile


@pytest.mark.usefixtures("pages")
def test_what_was_done_to_a_volume_on_huge_pages_by_hand_is_put_right(node: TestNode) -> None:
    entries = {KEY: volume(1)}
    node.run("volumes", entries)
    path = Path(volume_path(node.state_dir, node.run_dir, UID, "huge", "emptyDir"))
    take(path / "kept", 1)
    mounts.mount_tmpfs(str(path), "0777", 0)  # over it
    planned = node.run("volumes", entries, check=True)
    assert "tmpfs" in planned["diff"]["before"]
    assert f"pagesize=2M size={SIZE}" in planned["diff"]["after"]
    assert node.run("volumes", entries)["changed"]
    assert (path / "kept").stat().st_size == SIZE
    mounts.unmount(str(path))
    assert node.run("volumes", entries)["changed"]
    assert [one.kind for one in mounts.at(str(path), mounts.mounts())] == ["hugetlbfs"]
    assert not node.run("volumes", entries)["changed"]


def test_a_size_of_pages_that_the_kernel_has_not_is_an_error_of_its_volume(node: TestNode) -> None:
    result = node.run("volumes", {KEY: volume(1, page_bytes=3 << 20, size_bytes=3 << 20)})
    assert result["errors"][KEY]["reason"] == "NoHugePages"
    assert "no huge pages of 3145728 bytes" in result["errors"][KEY]["message"]
    path = Path(volume_path(node.state_dir, node.run_dir, UID, "huge", "emptyDir"))
    assert not path.exists()


@pytest.mark.usefixtures("pages")
def test_a_pod_gets_the_huge_pages_it_requests_and_another_one_none(node: TestNode) -> None:
    asking = {**node.pod(7), "cgroup": {**CGROUP, "huge_pages": {str(SIZE): 2 * SIZE}}}
    other = {**node.pod(8), "cgroup": CGROUP}
    sandboxes = {one["pod"]["uid"]: one for one in (asking, other)}
    volumes = {f"{uid}/huge": volume(4) for uid in sandboxes}
    mount = {"volume": "huge", "kind": "emptyDir", "target": "/huge"}
    containers = {f"{uid}/app": node.container(one, mounts=[mount]) for uid, one in sandboxes.items()}
    node.run("network", node.network())
    assert not node.run("volumes", volumes)["errors"]
    assert not node.run("sandboxes", sandboxes)["errors"]
    assert not node.run("containers", containers)["errors"]
    if not limits_of(node, asking):
        pytest.skip("the controller hugetlb is in no hierarchy that Docker uses here")
    assert limits_of(node, asking)["hugetlb.2MB.max"] == str(2 * SIZE)
    assert {*limits_of(node, other).values()} == {"0"}
    app = running(node, asking)
    node.execute(app, "fallocate", "-l", str(2 * SIZE), "/huge/two")
    with pytest.raises(AssertionError, match=r"No space|Cannot allocate"):
        node.execute(app, "fallocate", "-l", str(SIZE), "/huge/third")
    with pytest.raises(AssertionError, match=r"No space|Cannot allocate"):
        node.execute(running(node, other), "fallocate", "-l", str(SIZE), "/huge/one")
    # a limit that somebody raised is put right
    file = Path(directory_of(node, other), "hugetlb.2MB.max")
    file.write_text(str(4 * SIZE))
    planned = node.run("sandboxes", sandboxes, check=True)
    assert [step["action"] for step in planned["steps"]] == ["limits"]
    assert node.run("sandboxes", sandboxes)["changed"]
    assert file.read_text() == "0\n"
    assert not node.run("sandboxes", sandboxes)["changed"]


def running(node: TestNode, pod: dict[str, Any], kind: str = "app") -> str:
    """Return the id of a pod's container."""
    marks = {labels.NODE: node.name, labels.POD_UID: pod["pod"]["uid"], labels.TYPE: kind}
    return str(node.docker.containers(marks)[0]["Id"])


def directory_of(node: TestNode, pod: dict[str, Any]) -> Path:
    """Return the directory of a pod's cgroup in the hierarchy that has the controller, or may have it."""
    pause = node.docker.inspect(running(node, pod, labels.SANDBOX))
    assert pause
    paths = pod_cgroup.paths_of(node.name, pod["pod"]["uid"], pause["State"]["Pid"])
    return Path(huge_pages.directory(cgroups.ROOT, paths))


def limits_of(node: TestNode, pod: dict[str, Any]) -> dict[str, str]:
    """Return what the kernel holds for a pod, by file."""
    return {one.name: one.read_text().strip() for one in directory_of(node, pod).glob("hugetlb.*.max")}
