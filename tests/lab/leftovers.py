"""What of a lab there is on this host, found without its records: by name, folder and namespace, in the kernel's lists.

Tests and people compare it before ``lab-up`` and after ``lab-down``.
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.lab import groups
from tests.lab.network import NETNS
from tests.lab.places import Places
from tests.lab.records import Names


def find(places: Places, lab: str) -> list[str]:
    """Return one line for each thing of the lab: processes, namespaces, mounts, cgroups, devices, disks, files."""
    name, folder = Names(lab).network, str(places.lab(lab))
    return [
        *_processes(name, folder),
        *_mounts(folder, name),
        *(f"namespace {path}" for path in sorted(Path(NETNS).glob(f"{name}*")) if path.name in _own(name, path)),
        *(f"device {path.name}" for path in Path("/sys/class/net").glob(name)),
        *(f"cgroup {top / path}" for top in groups.host_hierarchies() for path in top.glob(f"{name}-*")),
        *(f"loop {path}" for path in Path("/sys/block").glob("loop*/loop/backing_file") if folder in _read(path)),
        *(f"file {path}" for path in (places.lab(lab), places.state / f"{lab}.lock") if path.exists()),
    ]


def _own(name: str, path: Path) -> set[str]:
    """Leave out the namespaces of a lab whose name only begins like ours."""
    return {path.name} if path.name == name or path.name.startswith(f"{name}-") else set()


def _processes(name: str, folder: str) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        words = _read(entry / "cmdline").replace("\0", " ").strip()
        # A shared SSH connection names its socket; a shell that merely mentions the lab's name is none of ours.
        if f"{folder}/" in words or f"{NETNS}/{name}" in words:
            found.append(f"process {entry.name}: {words[:100]}")
    return found


def _mounts(folder: str, name: str) -> list[str]:
    """Mounts of this namespace, and of the processes that have another one."""
    texts = {_read(entry / "mounts") for entry in Path("/proc").iterdir() if entry.name.isdigit()}
    lines = {line for text in texts for line in text.splitlines()}
    return sorted(f"mount {line[:150]}" for line in lines if f"{folder}/" in line or f"{NETNS}/{name} " in line)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
