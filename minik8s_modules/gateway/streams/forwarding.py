"""port-forward: connections to any port of one pod, each handed over on a channel of its own; proxy: to one port.

While one connection is being made others go on, and its end is the end of what made it (``ssh -W``).
"""

from __future__ import annotations

import asyncio
import contextlib

from minik8s_modules.api.errors import BadRequest, ServiceUnavailable, StatusError
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.gateway.streams import finding
from minik8s_modules.gateway.streams.conversing import converse
from minik8s_modules.gateway.streams.dockerd import Dockerd
from minik8s_modules.gateway.streams.opening import Given, Opening, numbers
from minik8s_modules.gateway.streams.reaching import NodeRoute, Reached, reach, words
from minik8s_modules.streams import passing
from minik8s_modules.streams.requests import StreamRequest

_LARGEST_PORT = 65535
# ssh ends with the connection it carried; its words are there by then
_WORDS_S = 1.0


class Forwarding:
    """The connections of one port-forward."""

    def __init__(self, route: NodeRoute, address: str) -> None:
        self._route = route
        self._address = address
        self._running: set[asyncio.Task[None]] = set()

    @classmethod
    async def of(cls, docker: Dockerd, request: StreamRequest, route: NodeRoute) -> Opening:
        """Find the pod; ``connect`` makes connections to it. Raises StatusError, as Dockerd."""
        made = cls(route, await finding.address(docker, request))
        return Opening(Given({}), {"connect": made.connect}, made.close)

    async def connect(self, message: JsonObject) -> Given:
        """Hand over the channel on which the connection will come."""
        (port,) = numbers(message, port=_LARGEST_PORT)
        ours, theirs = passing.pair()
        task = asyncio.create_task(self._carry(passing.Channel(ours), port))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return Given({}, [theirs])

    async def close(self) -> None:
        """End all."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _carry(self, channel: passing.Channel, port: int) -> None:
        await converse(channel, lambda: _opened(self._route, self._address, port))


async def of_proxy(docker: Dockerd, request: StreamRequest, route: NodeRoute) -> Opening:
    """Hand over a connection to the one port that is asked for. Raises StatusError, as Dockerd."""
    port = request.text("ports")
    if not (port.isascii() and port.isdecimal() and 0 < int(port) <= _LARGEST_PORT):
        raise BadRequest(f"ports must be one number from 1 to {_LARGEST_PORT}, not {port!r}")
    try:
        return await _opened(route, await finding.address(docker, request), int(port))
    except StatusError as error:
        raise ServiceUnavailable(f"error trying to reach service: {error}") from error


async def _opened(route: NodeRoute, address: str, port: int) -> Opening:
    try:
        reached = await reach(route, address, port)
    except OSError as error:
        raise ServiceUnavailable(words(error)) from error

    async def failure(message: JsonObject) -> Given:
        numbers(message)
        return Given({"words": await _failure(reached)})

    return Opening(Given({}, reached.ends), {"failure": failure}, reached.close)


async def _failure(reached: Reached) -> str:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_WORDS_S):
            return await reached.failure()
    return ""
