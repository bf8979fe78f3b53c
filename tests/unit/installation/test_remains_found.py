"""What is left of minik8s on a node, and in which order it goes."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from minik8s_modules.module_utils.minik8s.core.docker import DockerError
from minik8s_modules.module_utils.minik8s.core.paths import WATCH_MARK, csi_staging, csi_target
from minik8s_modules.module_utils.minik8s.install.remains import (
    Remain,
    driver_mounts,
    links,
    mounts,
    plan_removal,
    processes,
    remove_all,
    tables,
)
from tests.support.waiting import until

MOUNTS = """\
22 1 0:20 / / rw - ext4 /dev/vda rw
40 22 0:41 / /run/minik8s rw - tmpfs tmpfs rw
41 40 0:42 / /run/minik8s/secrets rw - tmpfs tmpfs rw
42 22 0:43 / /run/minik8s-other rw - tmpfs tmpfs rw
43 22 0:44 / /var/lib/minik8s/a\\040b rw - tmpfs tmpfs rw
"""


def test_mounts_of_ours_are_found_and_no_neighbours() -> None:
    found = mounts(MOUNTS, ["/run/minik8s", "/var/lib/minik8s"])
    assert [item.id for item in found] == ["/run/minik8s", "/run/minik8s/secrets", "/var/lib/minik8s/a b"]


def test_mounts_of_drivers_are_found_by_what_was_noted_and_no_others_beside_them(tmp_path: Path) -> None:
    record = tmp_path / "csi" / "uid-1" / "data.json"
    record.parent.mkdir(parents=True)
    staging = csi_staging("d.example.com", "h")
    record.write_text(json.dumps({"driver": "d.example.com", "handle": "h", "staging": staging}), encoding="utf-8")
    target = csi_target("uid-1", "data")
    points = [target, staging, csi_target("uid-2", "data"), csi_staging("d.example.com", "other"), f"{target}/inner"]
    table = "".join(f"{at} 1 0:{at} / {point} rw - ext4 /dev/vdb rw\n" for at, point in enumerate(points))
    found = plan_removal(driver_mounts(table, str(tmp_path)))
    assert [item.id for item in found] == [f"{target}/inner", target, staging]
    assert {item.detail for item in found} == {"volume of CSI driver d.example.com"}
    assert driver_mounts(table, str(tmp_path / "none")) == []


def test_inner_mounts_go_before_outer_ones_and_processes_first() -> None:
    found = [
        *mounts(MOUNTS, ["/run/minik8s"]),
        Remain("link", "mk8s-br0"),
        Remain("container", "c"),
        Remain("process", "7"),
    ]
    order = [item.id for item in plan_removal(found)]
    assert order == ["7", "c", "mk8s-br0", "/run/minik8s/secrets", "/run/minik8s"]


def test_only_tables_of_ours_are_found() -> None:
    listing = "table ip nat\ntable ip minik8s\ntable inet minik8s-hosts\ntable ip notminik8s\n"
    assert [item.id for item in tables(listing)] == ["ip minik8s", "inet minik8s-hosts"]


def test_only_links_of_ours_are_found(tmp_path: Path) -> None:
    for name in ("lo", "mk8s-br0", "eth0", "docker0"):
        (tmp_path / name).mkdir()
    assert links(str(tmp_path)) == [Remain("link", "mk8s-br0")]


def test_recorded_daemons_are_found_but_docker_which_removes_the_containers(tmp_path: Path) -> None:
    parent = os.getppid()
    started = Path(f"/proc/{parent}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    for name in ("minik8s-scheduler", "minik8s-dockerd"):
        (tmp_path / f"{name}.pid").write_text(f"{parent} {started} 0\n", encoding="ascii")
    assert Remain("process", str(parent), "minik8s-scheduler") in processes(str(tmp_path), "/nowhere/")
    (tmp_path / "minik8s-scheduler.pid").unlink()
    assert not [item for item in processes(str(tmp_path), "/nowhere/") if item.id == str(parent)]


def test_programs_that_tell_of_changes_are_found_by_their_mark(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"], env={**os.environ, WATCH_MARK: "1"}) as watch:
        # Popen returns when the old program's files are closed, which is before the new one's environment can be read
        until(lambda: WATCH_MARK.encode() in Path(f"/proc/{watch.pid}/environ").read_bytes())
        found = processes(str(tmp_path), "/nowhere/")
        watch.kill()
    assert Remain("process", str(watch.pid), "watch of changes") in found


def test_what_cannot_be_removed_yet_is_tried_again_and_keeps_nothing_else_from_it() -> None:
    removed: list[str] = []
    refusals: dict[str, list[Exception]] = {
        "half": [DockerError(500, "device or resource busy")] * 2,
        "held": [OSError("busy")] * 9,
    }

    def remove(step: Remain) -> None:
        if refusals.get(step.id):
            raise refusals[step.id].pop()
        removed.append(step.id)

    steps = [
        Remain("container", "half"),
        Remain("container", "whole"),
        Remain("cgroup", "held"),
        Remain("link", "mk8s-a"),
    ]
    pauses: list[None] = []
    left = remove_all(steps, remove, lambda: pauses.append(None), 3)
    assert removed == ["whole", "mk8s-a", "half"]
    assert left == ["cgroup held: busy"]
    assert len(pauses) == 2
    refusals.clear()
    assert remove_all(steps, remove, lambda: pauses.append(None), 3) == []
    assert len(pauses) == 2
