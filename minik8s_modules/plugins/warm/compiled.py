"""Compiled code of archives, kept for the next interpreter: Python compiles twice each file it imports from a zip file.

That is most of an interpreter's start, which each observation of an idle node and the first Pod after a pause wait for.
The file lies beside the socket, for who may open that, and is known by Python's version and by the CRC of each source.
A module's own code stays with the template, so that no call compiles it. Standard library only, Python 3.8 and newer:
it travels with `server.py`. Before 3.10 zipimport compiles all the same.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import marshal
import os
import sys
import zipfile
import zipimport
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any

MOST_BYTES = 4 << 20  # of the code of all releases; one has 1.5 MB
OURS = "minik8s_"


@functools.lru_cache(maxsize=128)
def sources(archive: str) -> dict[str, tuple[str, int]]:
    """Return the place of each Python file of ``archive``, and its CRC, by its module's name."""
    with zipfile.ZipFile(archive) as file:
        found = {info.filename: info.CRC for info in file.infolist()}
    suffixes = ("/__init__.py", ".py")
    return {
        name[: -len(suffix)].replace("/", "."): (name, crc)
        for name, crc in found.items()
        for suffix in suffixes
        if name.endswith(suffix) and (suffix == suffixes[0] or not name.endswith(suffixes[0]))
    }


def checksums(archive: str) -> dict[str, int]:
    """Return the CRC of each Python file of ``archive`` by its module's name."""
    return {name: crc for name, (_, crc) in sources(archive).items()}


class Compiled:
    """Gives out code by its source; what is new goes to the file ``path``, unless that is ""."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._kept: dict[str, bytes] = {}
        self._modules: dict[str, CodeType] = {}
        self._is_importing = self._has_new = False

    def install(self) -> None:
        """Have imports from archives ask here."""
        give = self._code

        class Importer(zipimport.zipimporter):
            def get_code(self, fullname: str) -> CodeType:
                return give(self.archive, fullname, super().get_code)

            def get_filename(self, fullname: str) -> str:  # zipimport's own compiles the file to find its name
                place, _ = sources(self.archive).get(fullname, ("", 0))
                return f"{self.archive}/{place}" if place else super().get_filename(fullname)

        sys.path_hooks.insert(0, Importer)
        sys.path_importer_cache.clear()

    @contextlib.contextmanager
    def importing(self, archive: str) -> Iterator[None]:
        """Know what is in the file for as long as ``archive`` is imported; write it again if something was not."""
        self._kept, self._is_importing, self._has_new = _read(self._path), True, False
        try:
            yield
            self._take_modules(archive)
            if self._has_new and self._path:
                _write(self._path, self._kept)
        finally:
            self._kept, self._is_importing = {}, False
            _give_back()

    def _take_modules(self, archive: str) -> None:
        for name in sources(archive):
            if name.rpartition(".")[2].startswith(OURS) and not name.startswith("ansible.module_utils."):
                with contextlib.suppress(Exception):  # the call itself will say what is wrong
                    loader: Any = getattr(importlib.util.find_spec(name), "loader", None)
                    loader.get_code(name)

    def _code(self, archive: str, name: str, made: Callable[[str], CodeType]) -> CodeType:
        _, crc = sources(archive).get(name, ("", None))
        key = f"{name} {crc}"
        if crc is None or not (self._is_importing or key in self._modules):
            return made(name)
        if key in self._modules:
            return self._modules[key]
        if key in self._kept:
            code: CodeType = marshal.loads(self._kept[key])  # noqa: S302  a file that nobody else can write
        else:
            code = made(name)
            self._kept[key], self._has_new = marshal.dumps(code), True
        if not name.startswith("ansible.module_utils."):
            self._modules[key] = code
        return code


def _give_back() -> None:
    """Give whole pages that importing freed back to the system: 2 MB, which the children would have, too."""
    with contextlib.suppress(ImportError, OSError, AttributeError):  # another C library, say
        import ctypes  # noqa: PLC0415

        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))


def _read(path: str) -> dict[str, bytes]:
    """Return what a file of this Python's has; nothing where it is not ours, or of another one."""
    if not path:
        return {}
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            found = os.fstat(fd)
            data = file.read() if found.st_uid == os.geteuid() and not found.st_mode & 0o077 else b""
        magic = importlib.util.MAGIC_NUMBER
        kept = marshal.loads(data[len(magic) :]) if data.startswith(magic) else {}  # noqa: S302  see above
    except (OSError, EOFError, ValueError, TypeError):
        return {}
    return kept if isinstance(kept, dict) and len(data) < MOST_BYTES else {}


def clear(path: str) -> None:
    """Take away what processes left beside the file ``path`` that were killed while they wrote it."""
    for left in Path(path).parent.glob(f"{Path(path).name}.*"):
        if left.suffix[1:].isdecimal() and not Path(f"/proc/{left.suffix[1:]}").exists():
            left.unlink(missing_ok=True)


def _write(path: str, kept: dict[str, bytes]) -> None:
    temporary = f"{path}.{os.getpid()}"
    with contextlib.suppress(OSError):  # a full disk, say: the next one compiles as this one did
        Path(temporary).unlink(missing_ok=True)  # of a process that had this number, and was killed
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(importlib.util.MAGIC_NUMBER + marshal.dumps(kept))
        Path(temporary).replace(path)
