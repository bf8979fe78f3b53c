"""Cgroups of nodes: one of the node's name at the top of each hierarchy that this host has mounted."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from tests.lab import processes, supervisor

CPUSET_FILES = ("cpuset.cpus", "cpuset.mems")


def hierarchies(mountinfo: str) -> list[Path]:
    """Return the mount points of cgroup hierarchies in the text of /proc/self/mountinfo (proc(5))."""
    found: dict[Path, None] = {}
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        if after.split(" ", 1)[0] in {"cgroup", "cgroup2"}:
            found[Path(before.split(" ")[4])] = None
    return list(found)


def host_hierarchies() -> list[Path]:
    """Return this host's hierarchies."""
    return hierarchies(Path("/proc/self/mountinfo").read_text(encoding="utf-8"))


def make(name: str) -> list[Path]:
    """Make the cgroups of this name, with a part for the node and one for what keeps it; return their folders."""
    made = [top / name for top in host_hierarchies()]
    for folder in made:
        _make(folder)
        for part in (supervisor.NODE, supervisor.KEEPER):
            _make(folder / part)
    return made


def _make(folder: Path) -> None:
    _delegate(folder.parent)
    folder.mkdir(exist_ok=True)
    for file in CPUSET_FILES:  # version 1: empty in a new group, and a process cannot join then
        above = folder.parent / file
        if above.exists() and (folder / file).exists():
            (folder / file).write_text(above.read_text(encoding="ascii"), encoding="ascii")


def _delegate(group: Path) -> None:
    """Version 2: hand the controllers to the children, which the limits of a node's containers need."""
    control = group / "cgroup.subtree_control"
    if not control.exists():
        return
    have = control.read_text(encoding="ascii").split()
    missing = [name for name in (group / "cgroup.controllers").read_text(encoding="ascii").split() if name not in have]
    for name in missing:
        with contextlib.suppress(OSError):  # a host that keeps one for itself: containers there have no such limit
            control.write_text(f"+{name}", encoding="ascii")


def of_name(name: str) -> list[Path]:
    """Return the cgroups of this name that exist."""
    return [folder for top in host_hierarchies() if (folder := top / name).is_dir()]


def members(name: str) -> list[processes.Mark]:
    """Return the processes in the cgroups of this name and below."""
    found: set[processes.Mark] = set()
    for top in of_name(name):
        for folder, _, _ in os.walk(top):
            with contextlib.suppress(OSError):  # a group that went meanwhile
                pids = Path(folder, "cgroup.procs").read_text(encoding="ascii").split()
                found.update(process for pid in pids if (process := processes.mark(int(pid))))
    return sorted(found)


def remove(name: str, timeout_s: float = 10) -> None:
    """Remove the cgroups of this name with all below; waits until their last processes have left.

    Raises:
        OSError: A cgroup is still in use after ``timeout_s``.
    """
    deadline = time.monotonic() + timeout_s
    for top in of_name(name):
        while True:
            try:
                for folder, _, _ in os.walk(top, topdown=False):
                    Path(folder).rmdir()
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)


def names(prefix: str) -> list[str]:
    """Return, without ``prefix``, the names of cgroups that begin with it."""
    found = {path.name.removeprefix(prefix) for top in host_hierarchies() for path in top.glob(f"{prefix}*")}
    return sorted(found)
