"""What has come for one stream and was not yet taken: a bounded buffer between two tasks."""

from __future__ import annotations

import asyncio

from minik8s_modules.streams.connections import BUFFER_BYTES


class Inbox:
    """Bytes in order; putting waits while ``limit`` bytes are held, taking waits while there are none."""

    def __init__(self, limit: int = BUFFER_BYTES) -> None:
        self._limit = limit
        self._held = bytearray()
        self._ended = False
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    async def put(self, data: bytes) -> None:
        """Add ``data`` and wait until there is room again; after the end it is dropped."""
        if self._ended:
            return
        self._held += data
        self._changed.set()
        if len(self._held) >= self._limit:
            self._room.clear()
            await self._room.wait()

    def end(self) -> None:
        """Say that nothing more comes."""
        self._ended = True
        self._changed.set()
        self._room.set()

    async def take(self) -> bytes:
        """Return what has come, b"" after the end."""
        while not self._held and not self._ended:
            self._changed.clear()
            await self._changed.wait()
        data = bytes(self._held)
        self._held.clear()
        self._room.set()
        return data
