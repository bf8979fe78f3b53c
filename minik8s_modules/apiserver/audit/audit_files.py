"""The audit log's files: rotated by size and by age, at most so many former ones, none older than so many days."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import orjson

from minik8s_modules.base.clock import Clock, parse_rfc3339

_LOCK = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC


class LogFile:
    """A file that becomes ``FILE.1``, and so on, when it is full or its first event is ``max_age_days`` old.

    At most ``backups`` former files are kept, each no longer than ``max_age_days`` after its last event (0: for ever).
    All have mode 0600. Raises OSError when the file cannot be opened. Several processes may write one that is
    ``shared``, one at a time.
    """

    def __init__(
        self, path: Path, max_bytes: int, backups: int, max_age_days: int, clock: Clock, *, shared: bool = False
    ) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._backups = backups
        self._max_age = timedelta(days=max_age_days)
        self._clock = clock
        self._file = self._open()
        self._began = _first_event(path) or clock.now()
        self._torn = False  # the last line was cut by a full disk
        self._turn = os.open(path.with_name(f"{path.name}.lock"), _LOCK, 0o600) if shared else None

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, line: bytes) -> None:
        """Append a whole line; a line is never spread over two files. Raises OSError; what did not fit is lost."""
        with self._alone():
            self._append(line)

    def write_together(self, lines: Sequence[bytes]) -> bool:
        """Append whole lines in one step, all or none; return whether that is so: they may not fit into this file."""
        data = b"".join(lines)
        with self._alone():
            size = os.fstat(self._file).st_size
            if self._torn or size + len(data) > self._max_bytes:
                return False
            if os.write(self._file, data) == len(data):
                return True
            self._cut_off(size)
            return False

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other processes from writing, and go on in the file that one of them began."""
        if self._turn is None:
            yield
            return
        fcntl.flock(self._turn, fcntl.LOCK_EX)
        try:
            if not self._is_current():
                self._begin()
                self._began = _first_event(self._path) or self._clock.now()
            yield
        finally:
            fcntl.flock(self._turn, fcntl.LOCK_UN)

    def _is_current(self) -> bool:
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._file))
        except FileNotFoundError:
            return False

    def _append(self, line: bytes) -> None:
        size = os.fstat(self._file).st_size
        if size and size + len(line) > self._max_bytes:
            self._rotate()
            size = 0
        written = os.write(self._file, b"\n" + line if self._torn else line)
        self._torn = written < len(line) + self._torn
        if self._torn and self._turn is not None:  # others would not know that it ends within a line
            self._cut_off(size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        if self._torn:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))

    def _cut_off(self, size: int) -> None:
        """Take back what did not fit. Raises OSError where that is refused (``chattr +a``): the line stays torn."""
        self._torn = True
        os.ftruncate(self._file, size)
        self._torn = False

    def tidy(self) -> None:
        """Rotate a file whose first event is too old, and remove former files that are. Raises OSError."""
        if self._max_age:
            with self._alone():
                self._tidy()

    def _tidy(self) -> None:
        oldest = self._clock.now() - self._max_age
        if self._began < oldest and os.fstat(self._file).st_size:
            self._rotate()
        for number in range(1, self._backups + 1):
            former = self._numbered(number)
            if former.exists() and former.stat().st_mtime < oldest.timestamp():
                former.unlink()

    def _begin(self) -> None:
        """Go on in the file that has the log's name; where it cannot be opened, the former one stays open.

        A number that is closed already may soon be that of a client's connection, to which the log would be written.
        """
        former, self._file = self._file, self._open()
        self._torn = False
        os.close(former)

    def _rotate(self) -> None:
        if self._is_current():  # otherwise it was renamed before, but the next one could not be opened
            self._rename()
        self._begin()
        self._began = self._clock.now()

    def _rename(self) -> None:
        for number in range(self._backups - 1, 0, -1):
            former = self._numbered(number)
            if former.exists():
                former.replace(self._numbered(number + 1))
        if self._backups:
            self._path.replace(self._numbered(1))
        else:
            self._path.unlink()

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
        if self._turn is not None:
            os.close(self._turn)


def _first_event(path: Path) -> datetime | None:
    """Return when the first event of a file was received; None where it has none that can be read."""
    with path.open("rb") as file:
        line = file.readline()
    try:
        return parse_rfc3339(orjson.loads(line)["requestReceivedTimestamp"])
    except (ValueError, KeyError, TypeError):
        return None
