"""Between a connection of asyncio and a provider's thread: a pair of sockets, so that the kernel makes each side wait.

Whoever is slower holds up the other; whoever goes is noticed: a provider then reads b"" and writes into a broken pipe.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from minik8s_modules.streams.connections import Connection, adopt

Result = TypeVar("Result")
MOST_THREADS = 256
"""Calls of providers under way for requests: each stream is one."""


class Threads:
    """The threads in which providers answer requests."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="virtual-serving")

    async def run(self, call: Callable[[], Result]) -> Result:
        """Return what ``call`` returns; raises what it raises. Cancelling waits for nothing: the call goes on."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    def stop(self) -> None:
        """Take no more calls; those under way end with their connections."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class End:
    """A provider's side: ``Input``, ``Output`` and ``Duplex`` of the provider's interface."""

    def __init__(self, own: socket.socket) -> None:
        self._own = own

    def read(self, size: int, /) -> bytes:
        """Return at most ``size`` bytes; b"" at the end, and when the client has gone."""
        try:
            return self._own.recv(size)
        except OSError:
            return b""

    def write(self, data: bytes, /) -> int:
        """Send all of it. Raises BrokenPipeError when the client has gone."""
        try:
            self._own.sendall(data)
        except OSError as error:
            raise BrokenPipeError("the client has gone") from error
        return len(data)

    def close_write(self) -> None:
        """Say that nothing more will be written."""
        try:
            self._own.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def is_gone(self) -> bool:
        """Return whether the client has gone; of no use where it sends something."""
        try:
            return not self._own.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        """End it."""
        self._own.close()


async def bridge() -> tuple[Connection, End]:
    """Return the two sides of a new bridge: the loop's, and the thread's."""
    ours, theirs = socket.socketpair()
    return await adopt(ours), End(theirs)
