"""TLS over a connection that need not be a socket of ours (``ssh -W`` is a pipe), for HTTPS probes."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Protocol

_READ_BYTES = 16 * 1024


class Outer(Protocol):
    """What TLS is spoken over."""

    async def read(self) -> bytes:
        """Return what has come, b"" at the end."""

    async def write(self, data: bytes) -> None:
        """Write all; OSError when the other side is gone."""


def trusting() -> ssl.SSLContext:
    """Return a context that checks no certificate: a probe asks for life, not for identity (as kubelet's)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class Secured:
    """TLS over ``outer``; made by ``secured``."""

    def __init__(self, outer: Outer) -> None:
        self._outer = outer
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._inner = trusting().wrap_bio(self._incoming, self._outgoing)

    async def shake_hands(self) -> None:
        """Agree on keys.

        Raises:
            OSError: the other side is gone; ``ssl.SSLError``, one of them, where it does not speak TLS.
        """
        await self._until_done(self._inner.do_handshake)

    async def read(self) -> bytes:
        """Return what has come, b"" at the end."""
        found: list[bytes] = []
        try:
            await self._until_done(lambda: found.append(self._inner.read(_READ_BYTES)))
        except ssl.SSLError:
            return b""  # an end without the proper goodbye; what came before it counts
        return found[0]

    async def write(self, data: bytes) -> None:
        """Write all; OSError when the other side is gone."""
        self._inner.write(data)
        await self._flush()

    async def _until_done(self, act: Callable[[], None]) -> None:
        while True:
            try:
                act()
            except ssl.SSLWantReadError:
                await self._flush()
                data = await self._outer.read()
                if data:
                    self._incoming.write(data)
                else:
                    self._incoming.write_eof()
            else:
                await self._flush()
                return

    async def _flush(self) -> None:
        if self._outgoing.pending:
            await self._outer.write(self._outgoing.read())


async def secured(outer: Outer) -> Secured:
    """Return TLS over ``outer``; raises as ``Secured.shake_hands``."""
    made = Secured(outer)
    await made.shake_hands()
    return made
