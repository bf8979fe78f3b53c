"""What containers answer to probes is read by ``minik8s-streams``, which has no rights (streams/answers.py).

It keeps one connection open to us. For each check it gets the dialled connection, what to send, and a channel to answer
on. While it is away nobody can tell how a check ended, and nothing is counted.
"""

from __future__ import annotations

import asyncio
import logging
import socket

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.gateway.errors import NobodyReads
from minik8s_modules.gateway.probing.checks import Check
from minik8s_modules.gateway.probing.wire import Cause, cause_of, request_of
from minik8s_modules.gateway.streams.reaching import Reached
from minik8s_modules.streams.passing import BadPacket, Channel, Packet, pair

log = logging.getLogger(__name__)

# it measures the time-out itself; this is how much later it may tell
_LATE_S = 5.0


class Answers:
    """The connection of whoever reads answers, and checks handed to it; of one asyncio loop."""

    def __init__(self) -> None:
        self._channel: Channel | None = None
        self._watching: asyncio.Task[None] | None = None

    def use(self, connected: socket.socket) -> None:
        """Ask over this connection from now on."""
        self.close()
        self._channel = Channel(connected)
        self._watching = asyncio.create_task(self._watch(self._channel))

    def close(self) -> None:
        """Ask nobody any more."""
        if self._watching is not None:
            self._watching.cancel()
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    async def of(self, check: Check, reached: Reached, timeout_s: float) -> Cause:
        """Return what is answered to ``check`` within ``timeout_s`` over the connection, which is given away.

        Raises:
            NobodyReads: there is nobody to read it.
        """
        if self._channel is None:
            raise NobodyReads("answers to probes cannot be read: minik8s-streams is not connected")
        request = {
            "kind": check.kind,
            "tls": check.action.get("scheme") == "https",
            "send": request_of(check).hex(),
            "timeout_s": timeout_s,
        }
        ours, theirs = pair()
        back = Channel(ours)
        try:
            await self._channel.send(request, [theirs.fileno(), *(end.fileno() for end in reached.ends)])
            for end in (theirs, *reached.ends):
                end.close()
            async with asyncio.timeout(timeout_s + _LATE_S):
                return _cause(await back.receive())
        except (OSError, BadPacket, TimeoutError) as error:
            raise NobodyReads(f"the answer to a probe could not be obtained: {error}") from error
        finally:
            theirs.close()
            back.close()

    async def _watch(self, channel: Channel) -> None:
        """Wait for the other end to go; it has nothing to say."""
        try:
            await channel.receive()
        except BadPacket as error:
            log.warning("minik8s-streams sent something invalid: %s", error)
        if self._channel is channel:
            self._channel = None
        channel.close()


def _cause(packet: Packet | None) -> Cause:
    if packet is None:
        raise NobodyReads("minik8s-streams went away while it read the answer to a probe")
    answer: JsonObject = packet.message
    return cause_of(answer.get("word"), answer.get("number"))
