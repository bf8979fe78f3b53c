"""A TCP connection to an address as the node sees it: directly from this machine, or through the node's ssh master."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import NamedTuple, Protocol

from minik8s_modules.gateway.streams.connections import BUFFER_BYTES, READ_BYTES, Connection

CONNECT_S = 10.0


class Door(NamedTuple):
    """The way to a node: its Docker socket here, and the command whose stdin and stdout reach an address there.

    Without a command the node is this machine.
    """

    docker_socket: str
    reach: Callable[[str, int], list[str]] | None


Doors = Callable[[str], Door | None]
"""Returns the door of a node, None for a node that is not reached from here now."""


class Reached(Protocol):
    """A connection to a port of a pod."""

    async def read(self) -> bytes:
        """Return what has come, b"" at the end."""

    async def write(self, data: bytes) -> None:
        """Write all and wait until it is taken; OSError when the other side is gone."""

    def end_writing(self) -> None:
        """Say that nothing more will be written."""

    def close(self) -> None:
        """End it."""

    async def failure(self) -> str:
        """Return why it could not be made, "" when it could; meant to be asked after its end."""


class Direct:
    """A socket of this machine's own."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.read = connection.read
        self.write = connection.write
        self.end_writing = connection.end_writing
        self.close = connection.abort

    async def failure(self) -> str:
        """Return "": it was made."""
        return ""


class ThroughSsh:
    """The stdin and stdout of ``ssh -W``."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def read(self) -> bytes:
        """Return what has come, b"" at the end."""
        return await self._process.stdout.read(READ_BYTES) if self._process.stdout else b""

    async def write(self, data: bytes) -> None:
        """Write all and wait until it is taken; OSError when the other side is gone."""
        if self._process.stdin is None:
            raise ConnectionResetError("ssh has no stdin")
        self._process.stdin.write(data)
        await self._process.stdin.drain()

    def end_writing(self) -> None:
        """Say that nothing more will be written."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    def close(self) -> None:
        """End ssh."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def failure(self) -> str:
        """Return ssh's words when it failed."""
        if not await self._process.wait() or self._process.stderr is None:
            return ""
        told = (await self._process.stderr.read(READ_BYTES)).decode("utf-8", "replace").strip()
        return told.splitlines()[0] if told else ""


async def reach(door: Door, host: str, port: int) -> Reached:
    """Return a connection to ``host``:``port`` from the node; OSError when there is none.

    Through ssh a refusal shows only at the end of what is read: ask ``failure`` then.
    """
    if door.reach is None:
        async with asyncio.timeout(CONNECT_S):
            return Direct(Connection(*await asyncio.open_connection(host, port, limit=BUFFER_BYTES)))
    pipe = asyncio.subprocess.PIPE
    return ThroughSsh(
        await asyncio.create_subprocess_exec(
            *door.reach(host, port), stdin=pipe, stdout=pipe, stderr=pipe, limit=BUFFER_BYTES, start_new_session=True
        )
    )
