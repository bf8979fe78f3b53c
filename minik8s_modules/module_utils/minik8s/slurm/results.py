"""Files that jobs leave behind as their results, read from ``work`` in their folders.

The program may have put anything there: links out of the folder, pipes, files without end. Each part of a path is
opened below the one before without following links, and only plain files are read, up to a limit for all of a job's.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import fnmatch
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..core.faults import KeyFault
from ..core.paths import relative
from . import folders

BYTES = 1 << 20
"""What a ConfigMap holds."""
PASS_BYTES = 2 << 20
"""Of all jobs in one answer, which travels in one piece; the others are asked for once more."""
FILES = 200
LOOKS = 20_000
"""At entries of folders."""
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO})
"""Nothing is there, or a link, or a socket."""
_DENIED = frozenset({errno.EACCES, errno.EPERM})
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class NotReadNow(KeyFault):
    """Files could not be read, which may pass, as with a file server that does not answer."""


def collect(state_dir: str, wanted: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Any]]:
    """Return ``files`` (base64 by path) or ``error`` of each job; who finds no room in this answer is left out.

    An error is ``temporary`` where reading again may help.
    """
    found: dict[str, dict[str, Any]] = {}
    size = 0
    for uid in sorted(wanted):
        if size and size + BYTES > PASS_BYTES:
            break
        try:
            files = files_of(os.path.join(folders.job_dir(state_dir, uid), "work"), wanted[uid])
        except KeyFault as fault:
            temporary = isinstance(fault, NotReadNow)
            found[uid] = {"error": {"reason": fault.reason, "message": str(fault), "temporary": temporary}}
            continue
        size += sum(map(len, files.values()))
        found[uid] = {"files": {path: base64.b64encode(data).decode() for path, data in files.items()}}
    return found


def files_of(folder: str, patterns: Sequence[str]) -> dict[str, bytes]:
    """Return the plain files below ``folder`` whose paths match one of ``patterns``, part by part.

    Raises:
        KeyFault: a pattern leads elsewhere, a file may not be read, or there is too much.
        NotReadNow: reading failed.
    """
    found: dict[str, bytes] = {}
    looks = _Looks()
    with _if_there("the job's folder"), _opened(folder, _FOLDER) as root:
        for pattern in patterns:
            for path, data in _matching(root, _parts(pattern), "", looks):
                found[path] = data
                size = sum(map(len, found.values()))
                if size > BYTES or len(found) > FILES:
                    text = f"{len(found)} files have {size} bytes or more; {FILES} files of {BYTES} bytes are copied"
                    raise KeyFault("ResultsTooLarge", text)
    return found


def _parts(pattern: Any) -> list[str]:
    if not isinstance(pattern, str):
        raise KeyFault("InvalidResults", f"{pattern!r:.80} must be text")
    return relative(pattern).split("/")


class _Looks:
    """Counts entries that were looked at, so that a folder of millions holds up no pass."""

    def __init__(self) -> None:
        self._left = LOOKS

    def one(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise KeyFault("ResultsTooLarge", f"more than {LOOKS} entries of folders would be looked through")


def _matching(folder: int, parts: Sequence[str], before: str, looks: _Looks) -> Iterator[tuple[str, bytes]]:
    first, rest = parts[0], parts[1:]
    for name in _named(folder, first, looks):
        path = f"{before}{name}"
        with _if_there(path), _opened(name, _FOLDER if rest else _FILE, folder) as one:
            if rest:
                yield from _matching(one, rest, f"{path}/", looks)
            elif stat.S_ISREG(os.fstat(one).st_mode):
                yield path, _content(one)


def _named(folder: int, pattern: str, looks: _Looks) -> list[str]:
    """Return the names that match, as a shell's pattern does: no hidden ones, unless it begins with a dot."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            looks.one()
            if any("\udc80" <= one <= "\udcff" for one in entry.name):
                raise KeyFault("InvalidResults", f"{entry.name!a:.80} is no name in UTF-8; delete or rename it")
            hidden = entry.name.startswith(".") and not pattern.startswith(".")
            if not hidden and fnmatch.fnmatchcase(entry.name, pattern):
                found.append(entry.name)
    return sorted(found)


def _content(file: int) -> bytes:
    with os.fdopen(os.dup(file), "rb") as source:
        return source.read(BYTES + 1)


@contextlib.contextmanager
def _if_there(path: str) -> Iterator[None]:
    """Pass over what is not there, and only that: a file that cannot be read is not one that does not exist."""
    try:
        yield
    except OSError as error:
        if error.errno in _DENIED:
            raise KeyFault("InvalidResults", f"{path} may not be read: {error.strerror}") from error
        if error.errno not in _ABSENT:
            raise NotReadNow("ResultsNotRead", f"{path} cannot be read now: {error.strerror}") from error


@contextlib.contextmanager
def _opened(path: str, how: int, folder: int | None = None) -> Iterator[int]:
    number = os.open(path, how, dir_fd=folder)
    try:
        yield number
    finally:
        os.close(number)
