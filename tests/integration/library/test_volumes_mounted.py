"""Mounted volumes on a real kernel: mounted once, healed, killed at each step, taken away with nothing deleted.

Containers' machines have no NFS, so a program that mounts a tmpfs under the export's name stands where mount.nfs does;
the kernel, its table of mounts and Docker are real. Real servers: tests/lab.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.core.paths import volume_path
from minik8s_modules.module_utils.minik8s.volumes import mounts, nfs
from tests.integration.library.test_kill_at_every_step import MOST_EFFECTS, survives
from tests.support.node import TestNode

UID = "4ab1c2d3-0000-4000-8000-000000000001"
KEY = f"{UID}/data"
STUB = """#!/bin/sh
# mount.nfs's arguments: -o OPTIONS -- SOURCE TARGET
if [ "$4" = 127.0.0.1:/refused ]; then
  echo "Created symlink x." >&2
  echo "mount.nfs: access denied by server while mounting $4" >&2
  exit 32
fi
exec mount -t tmpfs "$4" "$5"
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Return the entry of a volume on a server that takes connections."""
    stub = tmp_path / "mount.stub"
    stub.write_text(STUB)
    stub.chmod(0o755)
    monkeypatch.setattr(nfs, "MOUNT", (str(stub),))  # this kernel has no NFS
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        yield {"kind": "nfs", "server": "127.0.0.1", "path": "/srv/shop", "options": [f"port={port}"]}


def point(node: TestNode) -> str:
    """Return where the volume is mounted."""
    return volume_path(node.state_dir, node.run_dir, UID, "data", "nfs")


def test_a_mount_is_made_once_healed_and_taken_away(node: TestNode, server: dict[str, Any]) -> None:
    entries = {KEY: server}
    planned = node.run("volumes", entries, check=True)
    assert planned["changed"]
    assert not Path(point(node)).exists(), "a check mounts nothing"
    made = node.run("volumes", entries)
    assert (made["steps"], made["errors"]) == (planned["steps"], {})
    assert made["status"] == {KEY: {"state": "present"}}
    assert [one.source for one in mounts.at(point(node), mounts.mounts())] == ["127.0.0.1:/srv/shop"]
    assert not node.run("volumes", entries)["changed"]
    mounts.unmount(point(node))
    healed = node.run("volumes", entries)
    assert "nfs: not mounted" in healed["diff"]["before"]
    other = node.run("volumes", {KEY: {**server, "path": "/srv/other"}})
    assert "127.0.0.1:/srv/other" in other["diff"]["after"]
    assert len(mounts.at(point(node), mounts.mounts())) == 1
    assert node.run("volumes", {})["changed"]
    assert not Path(node.state_dir, "pods", UID).exists()


def test_a_busy_mount_is_taken_away_and_ends_with_its_last_user(node: TestNode, server: dict[str, Any]) -> None:
    """A program of the machine's that stands in the volume keeps no Pod, and loses nothing that it has open."""
    node.run("volumes", {KEY: server})
    place = point(node)
    with Path(place, "file").open("w") as held, subprocess.Popen(["sleep", "60"], cwd=place) as stands:
        held.write("text")
        held.flush()
        assert not node.run("volumes", {})["errors"]
        assert mounts.at(place, mounts.mounts()) == []
        assert not Path(place).exists()
        assert Path(f"/proc/{stands.pid}/cwd/file").read_text() == "text"
        stands.kill()


def test_what_is_in_an_unmounted_mount_point_is_not_deleted(node: TestNode, server: dict[str, Any]) -> None:
    node.run("volumes", {KEY: server})
    mounts.unmount(point(node))
    data = Path(point(node), "kept")
    data.write_text("somebody wrote here")
    result = node.run("volumes", {})
    assert "not empty" in result["errors"][KEY]["message"]
    assert data.read_text() == "somebody wrote here"


def test_a_refused_or_unreachable_server_is_told_and_holds_its_volume_alone(
    node: TestNode, server: dict[str, Any]
) -> None:
    refused = node.run("volumes", {KEY: {**server, "path": "/refused"}, f"{UID}/scratch": {"kind": "emptyDir"}})
    text = "mount.nfs: access denied by server while mounting 127.0.0.1:/refused"
    assert refused["errors"] == {KEY: {"reason": "FailedMount", "message": text}}
    assert refused["status"][f"{UID}/scratch"] == {"state": "present"}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        closed = taken.getsockname()[1]
    away = node.run("volumes", {KEY: {**server, "options": [f"port={closed}"]}})
    text = "NFS server 127.0.0.1 cannot be reached: Connection refused"
    assert away["errors"][KEY] == {"reason": "FailedMount", "message": text}
    node.run("volumes", {})


def test_containers_share_a_mount_and_keep_it_until_the_last_has_ended(node: TestNode, server: dict[str, Any]) -> None:
    pod = node.pod(7)
    uid = pod["pod"]["uid"]
    mount = {"volume": "data", "kind": "nfs", "target": "/data"}
    entries = {
        f"{uid}/{name}": {**node.container(pod), "name": name, "mounts": [{**mount, "sub_path": sub}]}
        for name, sub in (("one", ""), ("two", "below"))
    }
    node.run("network", node.network())
    node.run("sandboxes", {uid: pod})
    early = node.run("containers", entries)
    assert {error["reason"] for error in early["errors"].values()} == {"VolumeMissing"}
    node.run("volumes", {f"{uid}/data": server})
    assert not node.run("containers", entries)["errors"]
    path = volume_path(node.state_dir, node.run_dir, uid, "data", "nfs")
    assert len(mounts.at(path, mounts.mounts())) == 1
    Path(path, "below", "file").write_text("shared")
    found = node.run("containers", entries)["status"][f"{uid}/two"]["id"]
    done = subprocess.run(["docker", "exec", found, "cat", "/data/file"], capture_output=True, check=True)
    assert done.stdout == b"shared"
    held = node.run("volumes", {})
    assert held["due"] == [{"key": f"{uid}/data", "after_s": 1.0, "reason": "PodStillRunning"}]
    node.run("containers", {})
    assert not node.run("volumes", {})["errors"]
    assert not mounts.at(path, mounts.mounts())


@pytest.mark.parametrize("change", ["made", "removed", "exchanged"])
def test_a_pass_killed_at_any_step_is_repaired_by_the_next(node: TestNode, server: dict[str, Any], change: str) -> None:
    one, other = {KEY: server}, {KEY: {**server, "path": "/srv/other"}}
    before, after = {"made": ({}, one), "removed": (one, {}), "exchanged": (one, other)}[change]
    wanted = [entry["path"] for entry in after.values()]
    for at in range(MOST_EFFECTS):
        node.run("volumes", before)
        through = survives(node, at, "volumes", {"entries": after})
        node.run("volumes", after)
        assert not node.run("volumes", after)["changed"], at
        found = [one.source for one in mounts.under(node.state_dir, mounts.mounts())]
        assert found == [f"127.0.0.1:{path}" for path in wanted], at
        if through:
            break
    assert at > 1
    node.run("volumes", {})


def test_a_local_volume_is_given_to_the_group_with_all_in_it(node: TestNode, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    (disk / "sub").mkdir(parents=True)
    (disk / "sub" / "file").write_text("data")
    outside = tmp_path / "outside"
    outside.write_text("not ours")
    (disk / "link").symlink_to(outside)
    entries = {KEY: {"kind": "local", "path": str(disk), "fs_group": 4321}}
    assert node.run("volumes", entries)["changed"]
    assert [path.stat().st_gid for path in (disk, disk / "sub", disk / "sub" / "file")] == [4321] * 3
    assert outside.stat().st_gid == 0
    assert (disk / "sub" / "file").stat().st_mode & 0o7777 == 0o664
    assert not node.run("volumes", entries)["changed"]
    assert not node.run("volumes", {})["changed"]
    assert (disk / "sub" / "file").read_text() == "data"
    missing = node.run("volumes", {KEY: {"kind": "local", "path": str(tmp_path / "none")}})
    assert missing["errors"][KEY]["message"] == f'path "{tmp_path}/none" does not exist'


def test_two_pods_do_not_take_a_local_volume_from_each_other(node: TestNode, tmp_path: Path) -> None:
    """The first gives it away; when it is gone, the other has its own group."""
    (tmp_path / "disk").mkdir()
    other = UID.replace("1", "2")
    first, second = (
        {f"{uid}/data": {"kind": "local", "path": str(tmp_path / "disk"), "fs_group": group}}
        for uid, group in ((UID, 2000), (other, 3000))
    )
    assert node.run("volumes", first)["status"] == {f"{UID}/data": {"state": "present"}}
    both = node.run("volumes", {**first, **second})
    assert both["status"] == {key: {"state": "present"} for key in (*first, *second)}
    assert not both["changed"]
    delta = node.run("volumes", mode="delta", base=both["digest"], upsert=second, delete=[])
    assert delta["status"] == {key: {"state": "present"} for key in second}
    assert (tmp_path / "disk").stat().st_gid == 2000
    node.run("volumes", second)
    assert (tmp_path / "disk").stat().st_gid == 3000


def test_a_mount_of_somebody_elses_whose_name_has_what_ends_lines_is_read(tmp_path: Path) -> None:
    point = tmp_path / "a\r\x0b\u2028#b"
    point.mkdir()
    mounts.mount_tmpfs(str(point), "0700", 4096)
    try:
        assert [each.kind for each in mounts.at(str(point), mounts.mounts())] == ["tmpfs"]
    finally:
        mounts.unmount(str(point))
