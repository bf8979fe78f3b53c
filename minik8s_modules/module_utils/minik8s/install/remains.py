"""What a node keeps of minik8s when its daemons are gone: processes, containers, devices, rules and mounts.

:func:`plan_removal` orders what was found so that each step can succeed: what holds something goes before what is held.
"""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from ..core.docker import DockerError
from ..core.faults import KeyFault
from ..core.paths import KUBELET, WATCH_MARK, csi_staging, csi_target, split_key
from ..pods.pod_cgroup import left_over, slices_above
from ..services.announcing import marked
from ..volumes import csi
from ..volumes.mounts import parse_mountinfo, under, unmount

USERS = ("minik8s", "minik8s-node", "minik8s-etcd", "minik8s-streams")
# the Docker that the installation started removes containers and images first; the role stops it after that
SPARED = "minik8s-dockerd"
_ORDER = (
    "process",
    "container",
    "cgroup",
    "slice",
    "image",
    "link",
    "address",
    "table",
    "rule",
    "rule of IPv6",
    "switch",
    "mount",
)


class Remain(NamedTuple):
    """One thing that is left: its kind, the id that removes it, and words for people."""

    kind: str
    id: str
    detail: str = ""


def plan_removal(found: Sequence[Remain]) -> list[Remain]:
    """Return ``found`` in the order of removal: processes first, mounts last, deeper mounts before outer ones."""
    return sorted(dict.fromkeys(found), key=lambda item: (_ORDER.index(item.kind), -_depth(item)))


def remove_all(
    steps: Sequence[Remain], remove: Callable[[Remain], None], pause: Callable[[], None], tries: int
) -> list[str]:
    """Remove in order, each whatever becomes of the others; return for each that stays what it is, and why.

    What cannot be removed yet is tried again: Docker may be in the middle of removing a container, and a process that
    was killed be in its control group for a moment.
    """
    left = [(step, "") for step in steps]
    for turn in range(tries):
        if turn:
            pause()
        left = [(step, why) for step, _before in left if (why := _failure(step, remove))]
        if not left:
            break
    return [f"{step.kind} {step.id}: {why}" for step, why in left]


def _failure(step: Remain, remove: Callable[[Remain], None]) -> str:
    try:
        remove(step)
    except (OSError, DockerError, KeyFault) as error:
        return str(error) or type(error).__name__
    return ""


def _depth(item: Remain) -> int:
    return item.id.count("/") if item.kind == "mount" else 0


def processes(records: str, sockets: str) -> list[Remain]:
    """Return processes of our users, those that ``launch`` recorded (but Docker's), warm interpreters, and watches.

    Args:
        records: directory of the files ``<name>.pid`` that ``launch`` writes.
        sockets: a warm interpreter that a user of ours started listens on a socket whose path starts with this and the
            user's number; those of others (warm_ssh in an inventory) end by themselves.
    """
    found = {pid: f"of user {user}" for user in USERS for pid in _of_user(user)}
    recorded = Path(records).glob("*.pid") if Path(records).is_dir() else ()
    for record in (path for path in recorded if path.stem != SPARED):
        with contextlib.suppress(OSError, ValueError):
            pid, started = record.read_text(encoding="ascii").split()[:2]
            if _start_time(pid) == started:
                found[pid] = record.stem
    table = Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace")
    for uid in filter(None, map(_uid, USERS)):
        found.update(dict.fromkeys(_holders(_listening(table, f"{sockets}{uid}/")), "warm interpreter"))
    found.update(dict.fromkeys(_marked(f"{WATCH_MARK}=".encode()), "watch of changes"))
    return [Remain("process", pid, detail) for pid, detail in found.items() if pid != str(os.getpid())]


def _uid(user: str) -> int | None:
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return None


def _of_user(user: str) -> list[str]:
    uid, found = _uid(user), []
    if uid is None:
        return []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if process.stat().st_uid == uid:
                found.append(process.name)
    return found


def _start_time(pid: str) -> str:
    """Return the start time of a process (proc(5), stat, field 22)."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]


def _listening(table: str, prefix: str) -> set[str]:
    """Return the inodes of the sockets in ``table`` (/proc/net/unix) whose path starts with ``prefix``."""
    lines = (line.split(None, 7) for line in table.splitlines()[1:])
    return {fields[6] for fields in lines if len(fields) > 7 and fields[7].startswith(prefix)}  # noqa: PLR2004 - 8 columns


def _holders(inodes: set[str]) -> list[str]:
    wanted = {f"socket:[{inode}]" for inode in inodes}
    found = []
    for process in Path("/proc").glob("[0-9]*") if wanted else ():
        with contextlib.suppress(OSError):
            if any(os.readlink(entry) in wanted for entry in (process / "fd").iterdir()):
                found.append(process.name)
    return found


def _marked(mark: bytes) -> list[str]:
    """Return the processes that have a variable whose line begins with ``mark`` in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if any(line.startswith(mark) for line in (process / "environ").read_bytes().split(b"\0")):
                found.append(process.name)
    return found


def mounts(table: str, directories: Sequence[str]) -> list[Remain]:
    """Return the mounts of ``table`` (/proc/self/mountinfo) at or below ``directories``."""
    found = (mount for mount in parse_mountinfo(table) if any(under(directory, [mount]) for directory in directories))
    return [Remain("mount", mount.point) for mount in found]


def driver_mounts(table: str, state_dir: str) -> list[Remain]:
    """Return the mounts of ``table`` that drivers of others were asked for, as they are noted; of no others."""
    found: dict[str, str] = {}
    for key, record in csi.records(state_dir).items():
        name = f"volume of CSI driver {record.get('driver')}"
        found[csi_target(*split_key(key))] = name
        if record.get("staging"):
            found[csi_staging(str(record["driver"]), str(record["handle"]))] = name
    every = parse_mountinfo(table)
    return [Remain("mount", mount.point, name) for path, name in found.items() for mount in under(_real(path), every)]


def _real(path: str) -> str:
    """Return ``path`` without links above it; what is mounted there is not asked: its server may be away."""
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def take_driver_mount(point: str) -> None:
    """Unmount what a driver mounted; only empty folders go."""
    unmount(point)
    csi.tidy(point, 2 if point.startswith(f"{KUBELET}/plugins/") else 5)


def links(directory: str = "/sys/class/net", prefix: str = "mk8s-") -> list[Remain]:
    """Return the network devices whose names are ours."""
    return [Remain("link", path.name) for path in sorted(Path(directory).glob(f"{prefix}*"))]


def cgroups(node: str) -> list[Remain]:
    """Return the cgroups of the node's pods, by the pods' uids."""
    return [Remain("cgroup", uid) for uid in left_over(node, ())]


def slices(node: str) -> list[Remain]:
    """Return systemd's slices above those of the node's pods, the lower first."""
    return [Remain("slice", name) for name in slices_above(node)]


def addresses() -> list[Remain]:
    """Return the addresses of load balancers, by their mark."""
    return [Remain("address", f"{address} {device}") for address, device in marked()]


def tables(listing: str) -> list[Remain]:
    """Return our tables in the output of ``nft list tables``."""
    words = (line.split() for line in listing.splitlines())
    return [
        Remain("table", f"{row[1]} {row[2]}")
        for row in words
        if row[:1] == ["table"] and len(row) == 3 and row[2].startswith("minik8s")  # noqa: PLR2004 - table FAMILY NAME
    ]
