"""Who holds a flock: the kernel tells, so a holder writes nothing and one that hangs is found all the same.

Source: proc_locks(5), proc_pid_stat(5).
"""

from __future__ import annotations

import os
import time
from typing import Any

_PID, _PLACE, _FIELDS = 4, 5, 6
_STARTED = 19  # of /proc/PID/stat, counted behind the name, which may hold spaces
_SHOWN = 3


def pids_of(locks: str, device: int, inode: int) -> list[int]:
    """Return who holds flocks on a file, from the text of /proc/locks; 0 is a process of another PID namespace."""
    place = f"{os.major(device):02x}:{os.minor(device):02x}:{inode}"
    found = [line.split() for line in locks.splitlines() if "->" not in line]  # with an arrow: it waits
    return sorted(
        {int(one[_PID]) for one in found if len(one) > _FIELDS and one[1] == "FLOCK" and one[_PLACE] == place}
    )


def holder_of(lock: Any) -> str:
    """Return in words who holds the flock of an open file, since when it runs and how to end it."""
    try:
        about = os.fstat(lock.fileno())
        with open("/proc/locks", encoding="ascii") as file:
            pids = pids_of(file.read(), about.st_dev, about.st_ino)
    except OSError:
        pids = []
    known = [pid for pid in pids if pid > 0]
    if not known:
        return "/proc/locks does not name the holder"
    remedy = f"if it hangs, end it on this node: kill {' '.join(map(str, known))}"
    return f"{' and '.join(map(_described, known[:_SHOWN]))}; {remedy}"


def _described(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().decode("utf-8", "replace").split("\0")
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            ticks = int(file.read().rpartition(")")[2].split()[_STARTED])
    except OSError:
        return f"process {pid}"
    # of its arguments only the program that an interpreter runs: others may be secret
    named = [os.path.basename(word) for word in words[:2] if word and not word.startswith("-")]
    what = "".join(mark if mark.isprintable() else "?" for mark in " ".join(named))
    up_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    began_s = time.time() - up_s + ticks / os.sysconf("SC_CLK_TCK")
    return f"process {pid} ({what}), which runs since {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(began_s))}"
