"""Who holds a Lease: a name that tells host, boot, pid namespace, pid and start time of a process.

With it a candidate on the same machine can see that a holder is dead. From any other machine, boot or pid
namespace nothing can be said, and the Lease's duration decides alone.
"""

from __future__ import annotations

import functools
import os
import socket
from pathlib import Path
from typing import NamedTuple

_FIELDS = 5
_START_TIME_FIELD = 19  # of /proc/PID/stat after the command's closing parenthesis: field 22 of proc(5)


class _Holder(NamedTuple):
    host: str
    boot: str
    pid_namespace: str
    pid: str
    start_time: str


@functools.cache
def _place() -> tuple[str, str, str]:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    namespace = Path("/proc/self/ns/pid").readlink().name.strip("pid:[]")
    return socket.gethostname(), boot[:8], namespace


def process_identity(pid: int | None = None) -> str:
    """Return ``<host>_<boot>_<pid namespace>_<pid>_<start time>`` of this process, or of ``pid``."""
    pid = pid or os.getpid()
    return "_".join([*_place(), str(pid), start_time(pid) or "0"])


def holder_is_dead(identity: str) -> bool:
    """Return whether ``identity`` names a process of this boot and pid namespace that is gone."""
    parts = identity.rsplit("_", _FIELDS - 1)
    if len(parts) != _FIELDS:
        return False
    holder = _Holder(*parts)
    if (holder.host, holder.boot, holder.pid_namespace) != _place() or not holder.pid.isdigit():
        return False
    return start_time(int(holder.pid)) != holder.start_time


def start_time(pid: int) -> str:
    """Return the process's start in clock ticks since boot; empty when it is gone or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] in {"Z", "X"} else fields[_START_TIME_FIELD]
