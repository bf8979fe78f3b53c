"""The head that answers a proxied request, whoever answers it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import h11

SWITCHING = 101


async def answered(
    next_event: Callable[[], Awaitable[h11.Event | None]],
) -> h11.Response | h11.InformationalResponse:
    """Return the answer's head, without what is told before it (100 Continue, 103 Early Hints).

    Raises:
        h11.RemoteProtocolError: it ended before its answer.
    """
    while True:
        event = await next_event()
        if isinstance(event, h11.Response):
            return event
        if isinstance(event, h11.InformationalResponse):
            if event.status_code == SWITCHING:
                return event
            continue
        raise h11.RemoteProtocolError("it ended before its answer")
