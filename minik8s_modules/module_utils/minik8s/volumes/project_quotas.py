"""Sizes of folders by the kernel's project quotas, which ext4 and XFS have where they are mounted with ``prjquota``.

A folder is in a project of its own, what is made in it inherits that, and the project has a limit. That takes no
program: two ioctls and ``quotactl_fd``, which is in Linux since 5.14. Sources: linux/fs.h, linux/quota.h, quotactl(2).
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
import struct
from collections.abc import Collection
from typing import Callable, NamedTuple

from ..core.faults import KeyFault

GET_ATTRIBUTES, SET_ATTRIBUTES = 0x801C581F, 0x401C5820  # FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR
INHERITED = 0x200  # FS_XFLAG_PROJINHERIT
_ATTRIBUTES = struct.Struct("=IIIII8x")  # fsxattr: flags, extent size, extents, project, extent size of copies
_QUOTA = struct.Struct("=8QI4x")  # if_dqblk: hard and soft limit of blocks, bytes used, ..., valid
_QUOTACTL_FD = 443  # the number of the system call on every architecture
_GET, _SET, _PROJECT, _OF_BLOCKS = 0x800007, 0x800008, 2, 1
BLOCK = 1024  # limits are told in these
_UNAVAILABLE = (
    "{} is on a file system without project quotas, so that no size can be enforced there: mount it with prjquota "
    "(ext4 also needs tune2fs -O quota,project), or use a StorageClass without the parameter quota"
)


class Limit(NamedTuple):
    """The project of a folder, 0 for none that is inherited, and its limit in bytes, 0 for none."""

    project: int
    size_bytes: int


class ProjectQuotas:
    """The machine's own."""

    def require(self, path: str, folder: int) -> None:
        """Raise KeyFault, QuotaUnavailable, unless the file system of the open ``folder`` enforces project quotas."""
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape", newline="\n") as source:
            if not enforces(source.read(), os.fstat(folder).st_dev):
                raise KeyFault("QuotaUnavailable", _UNAVAILABLE.format(path))

    def limit(self, folder: int) -> Limit:
        """Return what holds for an open folder."""
        flags, _, _, project, _ = _attributes(folder)
        if not flags & INHERITED or not project:
            return Limit(0, 0)
        try:
            return Limit(project, _quotactl(folder, _GET, project, bytes(_QUOTA.size))[0] * BLOCK)
        except OSError as error:
            if error.errno not in {errno.ENOENT, errno.ESRCH}:  # nothing was ever said of the project
                raise
            return Limit(project, 0)

    def place(self, folder: int, project: int) -> None:
        """Put an open folder, and what is in it, into a project; what was missed before a kill is done again."""
        try:
            for _path, folders, files, held in os.fwalk(".", topdown=False, dir_fd=folder):
                for name in (*folders, *files):
                    _place_below(name, held, project)
        except RecursionError:
            raise KeyFault("NodeError", "its folders are nested too deeply to be given a size") from None
        _place(folder, project)

    def set_limit(self, folder: int, project: int, size_bytes: int) -> None:
        """Limit a project of the file system of an open folder; 0 for no limit."""
        blocks = blocks_of(size_bytes)
        _quotactl(folder, _SET, project, _QUOTA.pack(blocks, blocks, 0, 0, 0, 0, 0, 0, _OF_BLOCKS))


def blocks_of(size_bytes: int) -> int:
    """Return a size in the blocks of limits, rounded up."""
    return -(-size_bytes // BLOCK)


def project_of(owner: str, taken: Collection[int]) -> int:
    """Return a number for the project of a volume that no other one has: of 30 bits, and above what people choose."""
    number = 0
    while True:
        digest = hashlib.sha256(f"{owner}{number or ''}".encode()).digest()
        found = int.from_bytes(digest[:4], "big") & 0x3FFFFFFF | 0x40000000
        if found not in taken:
            return found
        number += 1


def enforces(mountinfo: str, device: int) -> bool:
    """Return whether a file system, by its device, is mounted with limits of projects."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in mountinfo.split("\n"):  # all else that ends lines may be in a name
        words = line.split(" ")
        if words[2:3] == [wanted] and "prjquota" in words[-1].split(","):
            return True
    return False


def _attributes(held: int) -> tuple[int, ...]:
    found = bytearray(_ATTRIBUTES.size)
    fcntl.ioctl(held, GET_ATTRIBUTES, found)
    return _ATTRIBUTES.unpack(found)


def _place(held: int, project: int) -> None:
    flags, extents, count, before, copies = _attributes(held)
    is_folder = stat.S_ISDIR(os.fstat(held).st_mode)
    wanted = flags | INHERITED if is_folder else flags
    if (flags, before) != (wanted, project):
        fcntl.ioctl(held, SET_ATTRIBUTES, _ATTRIBUTES.pack(wanted, extents, count, project, copies))


def _place_below(name: str, folder: int, project: int) -> None:
    """Place a file or folder; no link is followed, and devices, sockets and pipes take no room."""
    try:
        held = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return
    try:
        mode = os.fstat(held).st_mode
        if stat.S_ISDIR(mode) or stat.S_ISREG(mode):
            _place(held, project)
    finally:
        os.close(held)


def _quotactl(held: int, command: int, project: int, block: bytes) -> tuple[int, ...]:
    import ctypes  # noqa: PLC0415  (6 ms, only where sizes are enforced)

    call: Callable[..., int] = ctypes.CDLL(None, use_errno=True).syscall
    room = ctypes.create_string_buffer(block, _QUOTA.size)
    asked = ctypes.c_uint((command << 8) | _PROJECT)
    if call(ctypes.c_long(_QUOTACTL_FD), ctypes.c_uint(held), asked, ctypes.c_uint(project), room) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"quotactl: {os.strerror(code)}")
    return _QUOTA.unpack(room.raw)
