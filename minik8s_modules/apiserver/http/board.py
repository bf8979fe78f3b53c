"""What the workers of one API server tell each other, in memory and by sockets that are there before they are forked.

Each worker has a watch cache of its own, so one may not know yet what another has just written. So each puts up the
revision of what it has written before it tells the client, and looks at all of them before it answers anything: who was
told that a write has happened finds it on every connection, as with one worker. This holds for writes of this server's
workers only. Those of other API servers come by each worker's watch, to one some milliseconds before another. Each
number has one writer, so nothing is lost between two.
"""

from __future__ import annotations

import mmap
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

_BYTES = 8
_PAST = (1 << 64) - 1  # no process has this number


class Board:
    """Numbers of ``places`` workers, and a socket for each of them that they ask each other by."""

    def __init__(self, places: int) -> None:
        self.places = places
        self.written = memoryview(mmap.mmap(-1, places * _BYTES)).cast("Q")
        self.processes = memoryview(mmap.mmap(-1, places * _BYTES)).cast("Q")
        self.begun = memoryview(mmap.mmap(-1, places * _BYTES)).cast("Q")
        self.sockets = [_socket() for _ in range(places)]

    def leave(self, number: int, process: int) -> None:
        """Note that the worker of that number and process has ended; for who has forked it."""
        if self.processes[number] == process:
            self.processes[number] = 0

    def close(self) -> None:
        """Let go of the sockets."""
        for each in self.sockets:
            each.close()


def _socket() -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.bind("")  # the kernel gives it an abstract name: unix(7), autobind
    made.listen()
    return made


class Place:
    """One worker's place at the board; its number is another's only once the worker has ended."""

    def __init__(self, board: Board, number: int) -> None:
        self._board, self.number = board, number
        self._lock = threading.Lock()
        board.processes[number] = os.getpid()

    @property
    def socket(self) -> socket.socket:
        """The socket that others ask this worker by."""
        return self._board.sockets[self.number]

    def tell(self, revision: int) -> None:
        """Put up the revision of a write that a client is about to be told of."""
        with self._lock:
            self._board.written[self.number] = max(revision, self._board.written[self.number])

    def told(self) -> int:
        """Return the latest revision that a worker has told of."""
        return max(self._board.written)

    def forget(self) -> None:
        """Expect nothing that was told so far: the store has been replaced by an older one."""
        for number in range(self._board.places):
            self._board.written[number] = 0

    def begin(self) -> None:
        """Note that this worker takes connections from now on."""
        self._board.begun[self.number] = os.getpid()

    def end(self) -> None:
        """Note that this worker is about to end, so that nobody expects anything of it."""
        self._board.begun[self.number] = _PAST

    def begun(self) -> int:
        """Return how many places have, or had, a worker that takes connections."""
        return sum(1 for each in self._board.begun if each)

    def serves(self, number: int) -> bool:
        """Return whether the worker of that number lives, and takes connections."""
        process = self._board.processes[number]
        return process != 0 and self._board.begun[number] == process and _lives(process)

    def others(self) -> Iterator[tuple[int, str | bytes]]:
        """Yield the numbers and the sockets' names of the other workers that live."""
        for number, process in enumerate(self._board.processes):
            if number != self.number and process and _lives(process):
                yield number, self._board.sockets[number].getsockname()


def _lives(process: int) -> bool:
    with suppress(ProcessLookupError, PermissionError):  # the latter: it is another user's by now
        os.kill(process, 0)
        return True
    return False
