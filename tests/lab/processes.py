"""Processes known by pid *and* start time: a pid alone may be another process by now.

Everything is read from /proc; a process is signalled through a pidfd opened before its start time was compared, so the
signal cannot reach a later process of the same id. Standard library only: the supervisor imports this.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Mark(NamedTuple):
    """One process of one boot of this host; ``start`` in clock ticks since that boot."""

    pid: int
    start: int
    boot: str

    def to_json(self) -> str:
        """Return the mark as it stands in a file."""
        return json.dumps(self._asdict())


def mark(pid: int) -> Mark | None:
    """Return the mark of the living process ``pid``; None where there is none, or only its zombie."""
    fields = _stat(pid)
    if fields is None or fields[0] in {"Z", "X"}:
        return None
    return Mark(pid, int(fields[19]), boot_id())


def _stat(pid: int) -> list[str] | None:
    """Return the fields of proc_pid_stat(5) from the third, the state, on."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name, in parentheses, may hold spaces and parentheses itself.
    return text.rpartition(")")[2].split()


def boot_id() -> str:
    """Return what tells this boot of the host from any other."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def alive(process: Mark) -> bool:
    """Tell whether exactly this process still runs."""
    return mark(process.pid) == process


def read_mark(path: Path) -> Mark | None:
    """Return the living process that the file names."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    found = Mark(int(fields["pid"]), int(fields["start"]), str(fields["boot"]))
    return found if alive(found) else None


def descendants(process: Mark) -> list[Mark]:
    """Return all processes below this one."""
    children = children_by_parent()
    found: list[Mark] = []
    queue = [process.pid]
    while queue:
        below = children.get(queue.pop(), [])
        found += [child for pid in below if (child := mark(pid))]
        queue += below
    return found


def children_by_parent() -> dict[int, list[int]]:
    """Return the pids of the children of every process that has some (not every kernel has /proc/<pid>/children)."""
    found: dict[int, list[int]] = {}
    for pid in all_pids():
        if fields := _stat(pid):
            found.setdefault(int(fields[1]), []).append(pid)
    return found


def all_pids() -> list[int]:
    """Return the pids of all processes."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def kill(process: Mark) -> None:
    """Send SIGKILL to exactly this process; an ended one is no error."""
    with contextlib.suppress(ProcessLookupError):
        handle = os.pidfd_open(process.pid)
        try:
            if alive(process):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)


def in_network_namespace(path: Path) -> list[Mark]:
    """Return the processes whose network namespace is the one bound to ``path``; empty where there is none."""
    try:
        wanted = path.stat()
    except FileNotFoundError:
        return []
    same = (wanted.st_dev, wanted.st_ino)
    pids = [pid for pid in all_pids() if _namespace(Path(f"/proc/{pid}")) == same]
    return [process for pid in pids if (process := mark(pid))]


def _namespace(entry: Path) -> tuple[int, int] | None:
    try:
        status = (entry / "ns" / "net").stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def wait_ended(processes: Iterable[Mark], timeout_s: float) -> list[Mark]:
    """Wait until the processes have ended and return those that have not after ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    left = list(processes)
    while left and time.monotonic() < deadline:
        _reap(left)
        left = [process for process in left if alive(process)]
        if left:
            time.sleep(0.02)
    return left


def _reap(processes: Iterable[Mark]) -> None:
    """Collect those that are our own children, so that no zombies stay while a test goes on."""
    for process in processes:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(process.pid, os.WNOHANG)
