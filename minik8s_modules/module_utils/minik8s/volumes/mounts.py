"""Mounts of this machine: what stands in /proc/self/mountinfo, and the two system calls that change it."""

from __future__ import annotations

import os
from typing import NamedTuple

MNT_DETACH = 2
MS_BIND = 4096
MS_NOSUID, MS_NODEV, MS_REMOUNT = 2, 4, 32
TMPFS_MAGIC = 0x01021994  # linux/magic.h
STATFS_BYTES = 512  # struct statfs, which begins with the type, has 120
FIELDS_BEFORE_OPTIONAL = 6  # proc(5): ID, parent, device, root, mount point, options


class Mount(NamedTuple):
    """A mount: where it is, its file system's type, the type's own options, and what is mounted."""

    point: str
    kind: str
    options: str
    source: str = ""


def unescape(text: str) -> str:
    """Undo the octal escapes of the kernel's tables (space, tab, newline, number sign, backslash)."""
    if "\\" not in text:  # of thousands of fields nearly all
        return text
    for code in ("040", "011", "012", "043", "134"):
        text = text.replace("\\" + code, chr(int(code, 8)))
    return text


def parse_mountinfo(text: str) -> list[Mount]:
    """Return the mounts in the order they were made (the last one over a path is the visible one)."""
    found = []
    for line in text.split("\n"):  # all else that ends lines may be in a name
        if not line:
            continue
        words = line.split(" ")
        dash = words.index("-", FIELDS_BEFORE_OPTIONAL)
        found.append(Mount(unescape(words[4]), words[dash + 1], words[dash + 3], unescape(words[dash + 2])))
    return found


def mounts() -> list[Mount]:
    """Return the mounts this process sees."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape", newline="\n") as source:
        return parse_mountinfo(source.read())


def at(path: str, among: list[Mount]) -> list[Mount]:
    """Return the mounts on exactly ``path``."""
    return [mount for mount in among if mount.point == path]


def under(path: str, among: list[Mount]) -> list[Mount]:
    """Return the mounts on ``path`` and below, deepest and newest first."""
    inside = [mount for mount in among if mount.point == path or mount.point.startswith(path.rstrip("/") + "/")]
    return sorted(inside, key=lambda mount: -mount.point.count("/"))


def is_tmpfs(path: str) -> bool:
    """Return whether ``path`` (links resolved) lies on a tmpfs; statfs(2) tells without a look at all mounts."""
    import ctypes  # noqa: PLC0415  (6 ms, only where there are secrets)

    found = ctypes.create_string_buffer(STATFS_BYTES)
    told = ctypes.CDLL(None).statfs(os.fsencode(path), found) == 0
    return told and ctypes.c_long.from_buffer(found).value == TMPFS_MAGIC


def _check(result: int, what: str) -> None:
    import ctypes  # noqa: PLC0415  (6 ms, only where something is mounted)

    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def mount(kind: str, path: str, options: str, flags: int = 0) -> None:
    """Mount a file system that lies on no device (nosuid, nodev)."""
    import ctypes  # noqa: PLC0415

    libc = ctypes.CDLL(None, use_errno=True)
    flag_word = ctypes.c_ulong(MS_NOSUID | MS_NODEV | flags)
    result = libc.mount(kind.encode(), os.fsencode(path), kind.encode(), flag_word, options.encode())
    _check(result, f"mounting {kind} on {path}")


def mount_tmpfs(path: str, mode: str, size_bytes: int, *, remount: bool = False) -> None:
    """Mount a tmpfs; ``size_bytes`` 0 leaves the kernel's half of the memory."""
    options = f"mode={mode}" + (f",size={size_bytes}" if size_bytes else "")
    mount("tmpfs", path, options, MS_REMOUNT if remount else 0)


def bind(source: str, path: str) -> None:
    """Have ``path`` show what ``source`` is (without what is mounted below that)."""
    import ctypes  # noqa: PLC0415

    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.mount(os.fsencode(source), os.fsencode(path), None, ctypes.c_ulong(MS_BIND), None)
    _check(result, f"binding {path}")


def unmount(path: str) -> None:
    """Take away the visible mount on ``path``; processes that still use it keep it until they end."""
    import ctypes  # noqa: PLC0415

    _check(ctypes.CDLL(None, use_errno=True).umount2(os.fsencode(path), MNT_DETACH), f"unmounting {path}")
