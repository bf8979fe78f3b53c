"""Limits as the kernel writes them, in both cgroup versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from minik8s_modules.module_utils.minik8s.pods import cgroups


def test_membership_is_read_by_controller() -> None:
    assert cgroups.parse_membership("4:cpu,cpuacct:/d/a\n0::/\n") == {"cpu": "/d/a", "cpuacct": "/d/a", "": "/"}


@pytest.mark.parametrize(("shares", "weight"), [(2, 1), (0, 1), (1024, 39), (262144, 10000), (102, 4)])
def test_shares_become_the_weight_runc_writes(shares: int, weight: int) -> None:
    assert cgroups.weight_of(shares) == weight


@pytest.mark.parametrize(
    ("files", "limits"),
    [
        ({"cpu.weight": "39", "cpu.max": "max 100000", "memory.max": "max", "pids.max": "max"}, (1024, 0, 0, 0)),
        (
            {"cpu.weight": "100", "cpu.max": "50000 100000", "memory.max": "8192", "pids.max": "70"},
            (2597, 50000, 8192, 70),
        ),
        ({"cpu.weight": "39", "cpu.max": "5000 10000"}, (1024, 50000, None, None)),
        ({}, (None, None, None, None)),
    ],
)
def test_version_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], limits: tuple[int | None, ...]
) -> None:
    monkeypatch.setattr(cgroups, "ROOT", str(tmp_path))
    (tmp_path / "pod").mkdir()
    for name, text in files.items():
        (tmp_path / "pod" / name).write_text(text + "\n")
    assert tuple(cgroups._version_2("/pod", 1024)) == limits


@pytest.mark.parametrize(
    ("files", "limits"),
    [
        (
            {
                "cpu.shares": "2",
                "cpu.cfs_quota_us": "-1",
                "cpu.cfs_period_us": "100000",
                "memory.limit_in_bytes": "4096",
                "pids.max": "4096",
            },
            (2, 0, 4096, 4096),
        ),
        ({"cpu.shares": "9", "memory.limit_in_bytes": str(cgroups.NO_MEMORY_LIMIT)}, (9, None, 0, None)),
    ],
)
def test_version_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], limits: tuple[int | None, ...]
) -> None:
    monkeypatch.setattr(cgroups, "ROOT", str(tmp_path))
    for name, text in files.items():
        folder = tmp_path / name.partition(".")[0] / "pod"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text + "\n")
    assert tuple(cgroups._version_1({"cpu": "/pod", "memory": "/pod", "pids": "/pod"})) == limits
