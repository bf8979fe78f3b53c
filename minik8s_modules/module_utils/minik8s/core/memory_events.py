"""Whether a container was killed for memory, which Docker does not reliably tell with cgroup version 2.

containerd's shim watches ``memory.events`` of the container's cgroup by inotify. The kernel sends one notification in
10 ms (CGROUP_FILE_NOTIFY_MIN_INTV of kernel/cgroup/cgroup.c): the first is for the limit that was met, and by the next
the container has ended and its cgroup is gone. Of 30 kills 24 were not told, by Docker 20.10 and 26.1 alike. So each
container of a pod has there a cgroup of its own between the pod's and the one Docker makes. It holds no limits, counts
what the kernel kills below it, and stays until the container is removed.

Version 1 counts kills nowhere but in the cgroup that goes with the container, and the shim hears of them by an eventfd.
On a busy machine it may hear of the end first: of 30 kills beside six busy loops Docker's inspection left out two. One
of them it told by an event after the end, which the gateway takes; of the other it told nothing.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from typing import Any

ROOT = "/sys/fs/cgroup"
SLICE = ".slice"
OWN = re.compile(r"(?:.+-)?c[0-9a-f]{12}(?:\.slice)?")
ENDED = frozenset({"exited", "dead"})


def is_version_2() -> bool:
    """Return whether this machine has the one hierarchy of version 2."""
    return os.path.exists(f"{ROOT}/cgroup.controllers")


def is_own(directory: str) -> bool:
    """Return whether a directory's name is that of a container's own cgroup; Docker's are scopes and whole ids."""
    return bool(OWN.fullmatch(os.path.basename(directory)))


def own_parent(pod: str, name: str) -> str:
    """Return the parent to ask Docker for: ``pod`` is the pod's, a slice or a path, ``name`` the container's."""
    part = "c" + hashlib.sha256(name.encode()).hexdigest()[:12]
    return f"{pod.removesuffix(SLICE)}-{part}{SLICE}" if pod.endswith(SLICE) else f"{pod}/{part}"


def path_of(parent: str) -> str:
    """Return the path of a cgroup that Docker was asked for as a parent; a dash in a slice is a level."""
    if not parent.endswith(SLICE):
        return parent
    words = parent.removesuffix(SLICE).split("-")
    return "".join("/" + "-".join(words[: at + 1]) + SLICE for at in range(len(words)))


def events_file(inspect: Mapping[str, Any]) -> str:
    """Return the node's file that counts kills of the container that Docker told of, "" where there is none."""
    parent = str((inspect.get("HostConfig") or {}).get("CgroupParent") or "")
    return f"{ROOT}{path_of(parent)}/memory.events" if is_own(parent) else ""


def tells_kill(events: bytes) -> bool:
    """Return whether a ``memory.events`` counts a process that was killed for memory, see cgroup-v2.rst."""
    counts = dict(line.split()[:2] for line in events.splitlines() if len(line.split()) > 1)
    return counts.get(b"oom_kill", b"0") != b"0"


def is_open(observation: Mapping[str, Any]) -> bool:
    """Return whether an observation leaves open why its container ended, and a file can tell."""
    return bool(observation["state"] in ENDED and observation["oom_source"] and not observation["oom_killed"])
