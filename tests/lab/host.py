"""Runs programs on the host, and holds the lock of a lab while it changes.

Every program started under a lock inherits the lock's descriptor: when ``lab-up`` is killed, its lock stays held until
the program it was running has ended, so whoever gets the lock next sees a state at rest.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.lab.errors import LabError


class HostCommandFailed(LabError):
    """A program on the host failed; the message holds its command line and last words."""


class Host:
    """Runs argv lists on this host."""

    def __init__(self) -> None:
        self._locks: list[int] = []

    def run(
        self,
        argv: Sequence[str | Path],
        *,
        text: str = "",
        check: bool = True,
        environment: Mapping[str, str] | None = None,
        timeout_s: float = 600,
    ) -> str:
        """Return what the program printed (both streams).

        Args:
            argv: Program and arguments.
            text: Its standard input.
            check: Raise HostCommandFailed when it ends with another status than 0.
            environment: Added to ours.
            timeout_s: It is killed then.
        """
        command = [str(word) for word in argv]
        done = subprocess.run(
            command,
            input=text,
            text=True,
            errors="replace",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=timeout_s,
            pass_fds=self._locks,
            env={**os.environ, **(environment or {})},
        )
        if check and done.returncode:
            shown = shlex.join(command) + (f" <<<{shlex.quote(text)}" if text else "")
            raise HostCommandFailed(f"{shown[:1000]}\nended with status {done.returncode}:\n{done.stdout[-3000:]}")
        return done.stdout

    def ip(self, lines: Sequence[str], *, namespace: str = "") -> None:
        """Run the lines by one ``ip -batch``, all of them or up to the first that fails."""
        if lines:
            self.run(ip_batch(namespace), text="\n".join(lines) + "\n")

    def spawn_supervisor(self, folder: Path, project: Path) -> int:
        """Start a node's supervisor, which records itself and then lets go of the lock it inherits; return its pid."""
        lock, log = self._locks[-1], str(folder / "console.log")
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-S", "-m", "tests.lab.supervisor", str(folder), str(lock)],
            {**os.environ, "PYTHONPATH": str(project)},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
                (os.POSIX_SPAWN_DUP2, lock, lock),  # the same number: it only stays open over exec
            ],
            setsid=True,
        )

    @contextlib.contextmanager
    def locked(self, path: Path) -> Iterator[None]:
        """Hold the lock file ``path``; waits for another holder. ``drop_lock`` may remove the file meanwhile."""
        handle = _lock(path)
        self._locks.append(handle)
        try:
            yield
        finally:
            self._locks.remove(handle)
            os.close(handle)

    @staticmethod
    def is_locked(path: Path) -> bool:
        """Tell whether somebody holds the lock file ``path``."""
        try:
            handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(handle)
        return False


def ip_batch(namespace: str = "") -> list[str]:
    """Return the command that reads ``ip`` lines from standard input, in a named network namespace or here."""
    return ["ip", *(["-netns", namespace] if namespace else []), "-batch", "-"]


def _lock(path: Path) -> int:
    """Return a descriptor that holds the lock of the file that is at ``path`` now, not of a removed one."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:  # the folder went between the two calls
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"lab: waiting for another lab command ({path})", file=sys.stderr, flush=True)
            fcntl.flock(handle, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_ino == os.fstat(handle).st_ino:
                return handle
        os.close(handle)


def drop_lock(path: Path) -> None:
    """Remove the lock file that the caller holds, and its folder where that is empty then."""
    path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        path.parent.rmdir()
