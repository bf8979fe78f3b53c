"""Limits of huge pages in a pod's cgroup: what the pod requests of each size, and nothing of the others, as by kubelet.

systemd knows no controller ``hugetlb``, so its files are written with either of Docker's cgroup drivers. In the hybrid
layout, where version 1 limits CPU and memory, it is of version 2 if nobody has mounted it. Where no hierarchy has it,
nothing but the scheduler keeps pods from each other's pages.

No kernel takes a limit below what is in use. A pod that has pages it does not request, as from before there were any
limits, gets no more of them, and its limit follows as it gives them back.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import os
from collections.abc import Iterator, Mapping

from ..core.files import read_bytes

CONTROLLER = "hugetlb"
UNIFIED = "unified"
"""Where systemd and runc have version 2 in the hybrid layout."""


def directory(root: str, paths: Mapping[str, str]) -> str:
    """Return the cgroup among ``paths``, by controller ("" for version 2), that the controller may limit, else ""."""
    if CONTROLLER in paths:
        return f"{root}/{CONTROLLER}{paths[CONTROLLER]}"
    if "" not in paths:
        return ""
    return f"{root}/{UNIFIED}{paths['']}" if "cpu" in paths else root + paths[""]


def different(directory: str, declared: Mapping[str, int]) -> dict[str, int] | None:
    """Return the limits by size of page in bytes, -1 for none, None where they are as declared."""
    found: dict[str, int] = {}
    for size, path, text in _limits(directory):
        limit, wanted = int(text) if text.isdigit() else -1, declared.get(str(size), 0)
        if limit > wanted and limit == _least(path, wanted):
            limit = wanted
        # a size has two limits: one that is as declared must not hide the other one
        if found.setdefault(str(size), limit) == wanted:
            found[str(size)] = limit
    return None if all(limit == declared.get(size, 0) for size, limit in found.items()) else found


def write(directory: str, declared: Mapping[str, int]) -> None:
    """Limit the cgroup, where its kernel can.

    Raises:
        OSError: the kernel refuses a limit.
    """
    if not glob.glob(f"{directory}/{CONTROLLER}.*"):
        _turn_on(os.path.dirname(directory))
    for size, path, _ in _limits(directory):
        try:
            with open(path, "w", encoding="ascii") as target:
                target.write(str(_least(path, declared.get(str(size), 0))))
        except OSError as error:
            if error.errno != errno.EBUSY:  # it took more meanwhile: the next look sees to it
                raise


def _least(path: str, wanted: int) -> int:
    """Return the limit nearest to ``wanted`` that the kernel takes."""
    above, _, name = path.rpartition(".")
    used = (read_bytes(f"{above}.{_USED[name]}") or b"").decode().strip()
    return max(wanted, int(used) if used.isdigit() else 0)


def _turn_on(above: str) -> None:
    """Have the cgroups from the root to ``above`` pass the controller on; those of version 2 alone have to."""
    root = above
    while os.path.exists(f"{os.path.dirname(root)}/cgroup.controllers"):
        root = os.path.dirname(root)
    words = (read_bytes(f"{root}/cgroup.controllers") or b"").split()
    if CONTROLLER.encode() not in words:
        return
    steps = os.path.relpath(above, root).split("/")
    with contextlib.suppress(OSError):  # somebody else's cgroup between them holds processes
        for depth in range(len(steps) + 1):
            with open("/".join([root, *steps[:depth], "cgroup.subtree_control"]), "w", encoding="ascii") as target:
                target.write(f"+{CONTROLLER}")


def _limits(directory: str) -> Iterator[tuple[int, str, str]]:
    """Yield size of page, file and content of each limit; those of reserved pages (``rsvd``) among them."""
    for name in _USED:
        for path in sorted(glob.glob(f"{glob.escape(directory)}/{CONTROLLER}.*.{name}")):
            size = _bytes_of(os.path.basename(path).split(".")[1])
            yield size, path, (read_bytes(path) or b"").decode().strip()


_USED = {"max": "current", "limit_in_bytes": "usage_in_bytes"}
"""What limits are called in version 2 and 1, and what tells how much is used."""
_UNITS = {"KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}


def _bytes_of(size: str) -> int:
    return int(size[:-2]) * _UNITS[size[-2:]]
