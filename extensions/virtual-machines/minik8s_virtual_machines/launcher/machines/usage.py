"""What a machine uses of its node: figures of its processes, by /proc, and of its guest, by the balloon."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
# proc_pid_stat(5): what stands behind the program's name, from its state on
_GROUP, _RESIDENT = 2, 21
_OWN_TIMES, _TIMES_OF_ENDED_CHILDREN = slice(11, 13), slice(13, 15)
_OF_BALLOON = {
    "stat-total-memory": "available_bytes",
    "stat-free-memory": "unused_bytes",
    "stat-available-memory": "usable_bytes",
}
"""QEMU's names of the guest's memory, and ours (KubeVirt's metrics: available, unused, usable)."""


def of_processes(leader: int, proc: Path = PROC) -> dict[str, float]:
    """Return CPU seconds of a machine's process group, and the resident bytes of its first process."""
    rows = {int(path.parent.name): found for path in proc.glob("[0-9]*/stat") if (found := _stat(path))}
    group = {pid: row for pid, row in rows.items() if int(row[_GROUP]) == leader}
    first = group.get(leader)
    if first is None:
        return {}
    ticks = sum(int(each) for row in group.values() for each in row[_OWN_TIMES])
    ticks += sum(int(each) for each in first[_TIMES_OF_ENDED_CHILDREN])
    return {"cpu_seconds": ticks / _TICKS, "resident_bytes": float(int(first[_RESIDENT]) * _PAGE)}


def _stat(path: Path) -> list[str]:
    """Return the fields after the program's name, which may hold spaces and parentheses."""
    try:
        return path.read_text(errors="replace").rpartition(")")[2].split()
    except OSError:  # it has ended meanwhile
        return []


def of_balloon(answer: Any) -> dict[str, float]:
    """Return what a guest's driver of the balloon says; nothing where there is none, or it has not said yet."""
    stats: Mapping[str, Any] = (answer or {}).get("stats") or {} if isinstance(answer, dict) else {}
    known: Iterable[tuple[str, Any]] = ((ours, stats.get(theirs)) for theirs, ours in _OF_BALLOON.items())
    return {name: float(each) for name, each in known if isinstance(each, int) and 0 <= each < 1 << 63}
