"""Files of configMap and secret volumes, written as kubelet's atomic writer does (pkg/volume/util/atomic_writer.go).

<volume>/..2026_11_20_04_09_49.123456/a/b    the payload, complete before it is seen
<volume>/..data -> ..2026_11_20_04_09_49.123456    moved by one rename: an update is seen whole
<volume>/a -> ..data/a                       what the container opens
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import time
from typing import Callable, NamedTuple

from ..core.files import TEMPORARY


class File(NamedTuple):
    """One file: content, mode, owner and group."""

    data: bytes
    mode: int
    uid: int = 0
    gid: int = 0


Files = dict[str, File]  # by path in the volume
DATA, DATA_NEXT = "..data", "..data_tmp"
PUBLIC = 0o755  # the pod's user reads; parents are root's alone
Checkpoint = Callable[[str], None]


class Tree(NamedTuple):
    """What stands in a volume: its files as seen through ``..data``, the visible links, and what does not belong."""

    files: Files
    links: dict[str, str]
    leftovers: list[str]


def links_for(files: Files) -> dict[str, str]:
    """Return the links a container sees, by name in the volume's top directory."""
    return {path.partition("/")[0]: f"{DATA}/{path.partition('/')[0]}" for path in files}


def _payload(root: str) -> str:
    """Return the directory's name ``..data`` points to, "" when that is nothing the writer made."""
    try:
        name = os.readlink(os.path.join(root, DATA))
    except OSError:
        return ""
    made_by_us = name.startswith("..") and "/" not in name and name not in {"..", DATA, DATA_NEXT}
    real = made_by_us and stat.S_ISDIR(_mode(os.path.join(root, name)))
    return name if real else ""


def _mode(path: str) -> int:
    try:
        return os.lstat(path).st_mode
    except FileNotFoundError:
        return 0


def _read_file(path: str) -> File | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None  # a link, or gone: no file of ours
    with os.fdopen(descriptor, "rb") as source:
        found = os.fstat(source.fileno())
        if not stat.S_ISREG(found.st_mode):
            return None
        return File(source.read(), stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid)


def read_tree(root: str) -> Tree:
    """Return what stands in the volume at ``root``; links inside the payload are never followed."""
    payload = _payload(root)
    files: Files = {}
    if payload:
        base = os.path.join(root, payload)
        for folder, _, names in os.walk(base):
            for name in names:
                path = os.path.join(folder, name)
                files[os.path.relpath(path, base)] = _read_file(path) or File(b"", -1)
    links, leftovers = {}, []
    for name in _list(root):
        path = os.path.join(root, name)
        if name in {DATA, payload}:
            continue
        if name.startswith("..") or not os.path.islink(path):
            leftovers.append(name)
        else:
            links[name] = os.readlink(path)
    return Tree(files, links, leftovers)


def _list(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def write_tree(checkpoint: Checkpoint, root: str, files: Files) -> None:
    """Make the volume at ``root`` hold exactly ``files``; readers see the old or the new set, never a mixture."""
    checkpoint("make folder of volumes")
    os.makedirs(os.path.dirname(root), mode=0o700, exist_ok=True)
    checkpoint("make volume")
    if os.path.islink(root):
        os.unlink(root)
    if not os.path.isdir(root):
        os.mkdir(root)
        os.chmod(root, PUBLIC)
    current = _payload(root)
    if not current or read_tree(root).files != files:
        current = _put_payload(checkpoint, root, files)
    _fix_links(checkpoint, root, links_for(files))
    for name in _list(root):
        if name.startswith("..") and name not in {DATA, current}:
            checkpoint("remove old payload")
            _remove(os.path.join(root, name))


def _put_payload(checkpoint: Checkpoint, root: str, files: Files) -> str:
    """Build the payload beside the volume, where no container sees it, move it in, and turn ``..data`` to it."""
    building = os.path.join(os.path.dirname(root), TEMPORARY + os.path.basename(root))
    shutil.rmtree(building, ignore_errors=True)
    checkpoint("build payload")
    os.mkdir(building)
    os.chmod(building, PUBLIC)
    for path, file in files.items():
        target = os.path.join(building, path)
        os.makedirs(os.path.dirname(target), mode=PUBLIC, exist_ok=True)
        with open(target, "wb") as out:
            os.fchown(out.fileno(), file.uid, file.gid)
            os.fchmod(out.fileno(), file.mode)
            out.write(file.data)
    name = time.strftime("..%Y_%m_%d_%H_%M_%S.", time.gmtime()) + f"{time.time_ns() % 10**9:09d}"
    checkpoint("move payload in")
    os.rename(building, os.path.join(root, name))
    following = os.path.join(root, DATA_NEXT)
    with contextlib.suppress(FileNotFoundError):
        _remove(following)
    checkpoint("link payload")
    os.symlink(name, following)
    if stat.S_ISDIR(_mode(os.path.join(root, DATA))):
        _remove(os.path.join(root, DATA))  # a directory put there by hand cannot be renamed over
    checkpoint("turn ..data")
    os.rename(following, os.path.join(root, DATA))
    return name


def _fix_links(checkpoint: Checkpoint, root: str, wanted: dict[str, str]) -> None:
    for name in _list(root):
        path = os.path.join(root, name)
        right = os.path.islink(path) and os.readlink(path) == wanted.get(name)
        if not name.startswith("..") and not right:
            checkpoint("remove stale link")
            _remove(path)
    for name, target in wanted.items():
        if not os.path.islink(os.path.join(root, name)):
            checkpoint("make link")
            os.symlink(target, os.path.join(root, name))


def _remove(path: str) -> None:
    if stat.S_ISDIR(_mode(path)):
        shutil.rmtree(path)
    else:
        os.unlink(path)
