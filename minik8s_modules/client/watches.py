"""A watch: JSON lines of one HTTP answer as events, until either side ends it.

Read by one thread, closed by any: closing shuts the socket's reading side down, which wakes the reader.
Lines are split from whatever arrives, so one read may carry many events and an event many reads.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Generator, Iterator
from typing import Any, NamedTuple, Protocol

import orjson
from urllib3.exceptions import HTTPError
from urllib3.response import BaseHTTPResponse

from minik8s_modules.api.errors import from_status
from minik8s_modules.client.errors import ApiUnreachable

log = logging.getLogger(__name__)

# A server that sends this much without a newline does not speak the protocol; objects are limited to 2 MB
_LINE_LIMIT = 16 * 1024 * 1024


class WatchEvent(NamedTuple):
    """``type`` is ADDED, MODIFIED, DELETED or BOOKMARK (whose object has only a resourceVersion)."""

    type: str
    object: dict[str, Any]


class EventStream(Protocol):
    """What an informer needs of a watch."""

    def __iter__(self) -> Iterator[WatchEvent]:
        """Return itself: a watch is read once."""

    def __next__(self) -> WatchEvent:
        """Return the next event, waiting for it."""

    def close(self) -> None:
        """End the watch from any thread."""


class Watch:
    """Iterator of ``WatchEvent``; ends when the server ends the watch or ``close`` was called.

    Iterating raises the ``StatusError`` of an ERROR event, and ``ApiUnreachable`` when the stream was cut.
    """

    def __init__(self, response: BaseHTTPResponse) -> None:
        self._response = response
        self._events = self._read()
        self._reading = threading.Lock()
        self._closed = False

    def __iter__(self) -> Iterator[WatchEvent]:
        """Return itself: a watch is read once."""
        return self

    def __next__(self) -> WatchEvent:
        """Return the next event, waiting for it."""
        with self._reading:
            return next(self._events)

    def close(self) -> None:
        """End the watch; the iterating thread stops. May be called from any thread and more than once."""
        self._closed = True
        try:
            self._response.shutdown()
        except (OSError, RuntimeError, ValueError):
            log.debug("a watch had ended before it was closed")
        # a reader closes the connection when it wakes; where nobody reads, it is done here
        if self._reading.acquire(blocking=False):
            try:
                self._events.close()
                self._response.close()
            finally:
                self._reading.release()

    def _read(self) -> Generator[WatchEvent, None, None]:
        try:
            yield from self._lines()
        except (HTTPError, OSError, AttributeError, KeyError, TypeError, ValueError) as error:
            # beyond HTTP and sockets: events that are none, and ssl caught between two steps by a shutdown
            if not self._closed:
                raise ApiUnreachable(f"the watch was cut: {error}") from error
        finally:
            self._response.close()

    def _lines(self) -> Iterator[WatchEvent]:
        rest = b""
        while not self._closed and (data := self._response.read1()):
            *lines, rest = (rest + data).split(b"\n")
            if len(rest) > _LINE_LIMIT:
                raise ApiUnreachable(f"the watch sent {len(rest)} bytes without a newline")
            yield from (_event(line) for line in lines if line)


def _event(line: bytes) -> WatchEvent:
    event = orjson.loads(line)
    if event["type"] == "ERROR":
        raise from_status(event["object"])
    return WatchEvent(event["type"], event["object"])
