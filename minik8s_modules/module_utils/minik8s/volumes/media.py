"""What an emptyDir may lie on instead of the disk: a tmpfs of its own, or a hugetlbfs of its own for huge pages.

The kernel changes nothing of a hugetlbfs that is mounted, so one that is not as declared makes way for another.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any

from ..core.faults import KeyFault
from ..core.section import Facets
from . import mounts

HUGETLBFS, HUGE_PAGES = "hugetlbfs", "HugePages"


def check(key: str, entry: Mapping[str, Any]) -> None:
    """Raise KeyFault (InvalidEntry) for pages or a size that cannot be."""
    huge = entry.get("medium") == HUGE_PAGES
    if huge and ((entry.get("page_bytes") or 0) <= 0 or (entry.get("size_bytes") or 0) <= 0):
        raise KeyFault("InvalidEntry", f"{key}: medium {HUGE_PAGES} needs page_bytes and size_bytes, both above 0")


def wanted(entry: Mapping[str, Any], before: Facets) -> dict[str, str]:
    """Return what ``seen`` tells of an emptyDir that is as declared; a tmpfs without a size has any."""
    if not entry.get("medium"):
        return {"directory": "present"}
    if entry["medium"] == HUGE_PAGES:
        page, size = entry["page_bytes"], entry["size_bytes"]
        unit = f"{page >> 20}M" if page >= 1 << 20 else f"{page >> 10}K"
        return {HUGETLBFS: f"pagesize={unit} size={size // page * page}"}
    size = _kilobytes(entry.get("size_bytes"))
    return {"tmpfs": before.get("tmpfs", size) if size == "default" else size}


def _kilobytes(size_bytes: int | None) -> str:
    return f"{-(-size_bytes // 4096) * 4}k" if size_bytes else "default"  # the kernel rounds up to pages


def seen(among: list[mounts.Mount]) -> dict[str, str]:
    """Return what an emptyDir lies on, of the mounts on its path."""
    if not among:
        return {"directory": "present"}
    options = among[-1].options.split(",")
    if among[-1].kind == HUGETLBFS:
        return {HUGETLBFS: " ".join(sorted(word for word in options if word.startswith(("pagesize=", "size="))))}
    sizes = [word[5:] for word in options if word.startswith("size=")]
    return {"tmpfs": sizes[0] if sizes else "default"}


def mount(path: str, entry: Mapping[str, Any], present: list[mounts.Mount]) -> None:
    """Have ``path``, with the mounts ``present`` on it, lie on its medium.

    Raises:
        KeyFault: NoHugePages, this kernel has none of the size.
        OSError: the kernel refuses.
    """
    if entry["medium"] != HUGE_PAGES:
        mounts.mount_tmpfs(path, "0777", entry.get("size_bytes") or 0, remount=bool(present))
        return
    left = list(present)
    while left and seen(left) != wanted(entry, {}):
        mounts.unmount(path)
        left.pop()
    if not left:
        _mount_huge(path, entry)


def _mount_huge(path: str, entry: Mapping[str, Any]) -> None:
    try:
        mounts.mount(HUGETLBFS, path, f"mode=0777,pagesize={entry['page_bytes']},size={entry['size_bytes']}")
    except OSError as error:
        if error.errno not in {errno.ENODEV, errno.EINVAL}:
            raise
        text = f"this kernel has no huge pages of {entry['page_bytes']} bytes: see /sys/kernel/mm/hugepages"
        raise KeyFault("NoHugePages", text) from error
