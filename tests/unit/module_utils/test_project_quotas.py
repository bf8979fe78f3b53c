"""Which file systems enforce sizes of folders, and which projects folders get."""

from __future__ import annotations

import os

import pytest

from minik8s_modules.module_utils.minik8s.volumes.project_quotas import blocks_of, enforces, project_of

MOUNTS = (
    "22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
    "30 22 7:0 / /srv rw,relatime shared:2 - ext4 /dev/loop0 rw,prjquota\n"
    "31 22 7:1 / /data rw - xfs /dev/loop1 rw,attr2,inode64,prjquota\n"
    "32 22 7:2 / /other rw - xfs /dev/loop2 rw,pqnoenforce\n"
)


@pytest.mark.parametrize(
    ("device", "found"), [((254, 1), False), ((7, 0), True), ((7, 1), True), ((7, 2), False), ((8, 0), False)]
)
def test_a_file_system_says_by_its_mount_whether_it_enforces(device: tuple[int, int], found: bool):  # noqa: FBT001
    assert enforces(MOUNTS, os.makedev(*device)) is found


def test_each_volume_has_a_project_of_its_own():
    first = project_of("u1", frozenset())
    assert first == project_of("u1", frozenset())
    assert project_of("u1", {first}) != first
    assert 1 << 30 <= project_of("u2", frozenset()) < 1 << 31


def test_limits_are_rounded_up():
    assert [blocks_of(size) for size in (0, 1, 1024, 1025)] == [0, 1, 1, 2]
