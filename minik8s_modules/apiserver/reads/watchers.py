"""A watch as the hub sees it: the connection taken from the intake, bytes to send, the stream it follows."""

from __future__ import annotations

import math
import socket
from collections import deque
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, Protocol

from minik8s_modules.apiserver.intake.limits import Holder
from minik8s_modules.store.cache import CacheEvent

BUFFER_BYTES = 16 * 1024 * 1024
BOOKMARK_S = 60.0
# bookmarks go at multiples of it, so that those of an idle server wake it and its clients twice a minute
TOGETHER_S = 30.0
# but those of watches beyond so many at times of their own: the hub delivers no event while it writes them
TOGETHER = 1000
HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nTransfer-Encoding: chunked\r\n"
    b"Cache-Control: no-cache, private\r\nConnection: close\r\n\r\n"
)
LAST_CHUNK = b"0\r\n\r\n"
TAKE = "minik8s.take"  # the key of a WSGI environment under which the intake gives the connection away


class Taken(NamedTuple):
    """A connection that never blocks, and what its client has sent after its request."""

    sock: socket.socket
    ahead: bytes


class Stream(Protocol):
    """What all watches that see the same bytes share."""

    @property
    def key(self) -> Hashable:
        """Return what tells this stream from others."""

    @property
    def resource(self) -> str:
        """Return the key prefix of the kind's objects."""

    @property
    def topic(self) -> str:
        """Return the key prefix of the events it wants: the resource's, or a namespace's within it."""

    @property
    def lane(self) -> str:
        """Return which lane writes its events: they may wait for a program outside; "" where they cannot."""

    def prepare(self, events: Sequence[CacheEvent]) -> None:
        """Ask that program about many events at once. Raises Minik8sError when it fails."""

    def encode(self, event: CacheEvent) -> bytes:
        """Return the events (JSON lines) for ``event``; empty when the selectors leave it out."""

    def bookmark(self, revision: int) -> bytes:
        """Return a bookmark event."""

    def expired(self, message: str) -> bytes:
        """Return the ERROR event that sends the client back to a list."""

    def failed(self, error: Exception) -> bytes:
        """Return the ERROR event that says why ``prepare`` failed."""


class Join(NamedTuple):
    """A watch for the hub: the socket, the bytes to begin with, and how it goes on.

    Attributes:
        prelude: response head and initial events, as they go over the wire.
        after: changes up to this revision are known to the client or in the prelude.
        timeout_s: how long the watch lasts.
        bookmarks: whether the client asked for them.
        holder: whose it is.
    """

    sock: socket.socket
    stream: Stream
    prelude: bytes
    after: int
    timeout_s: float
    bookmarks: bool
    holder: Holder


class Watcher:
    """One watch: its socket, what was not yet sent, and when it ends."""

    __slots__ = (
        "after",
        "bookmark_at",
        "deadline",
        "holder",
        "limit",
        "pending",
        "pending_bytes",
        "sock",
        "stream",
        "writing",
    )

    def __init__(self, join: Join, now: float, beside: int = 0) -> None:
        self.sock = join.sock
        self.stream = join.stream
        self.holder = join.holder
        self.after = join.after
        self.deadline = now + join.timeout_s
        self.bookmark_at = bookmark_at(now, beside) if join.bookmarks else float("inf")
        self.pending: deque[bytes] = deque()
        self.pending_bytes = 0
        self.limit = BUFFER_BYTES + len(join.prelude)
        self.writing = False

    @property
    def due(self) -> float:
        """When it ends or has a bookmark, whichever is first; its second is over then."""
        return math.ceil(min(self.deadline, self.bookmark_at))


def bookmark_at(now: float, watches: int = 0) -> float:
    """Return when one of so many watches that begins, or has a bookmark, ``now`` has the next: within BOOKMARK_S."""
    return now + BOOKMARK_S if watches > TOGETHER else (now + BOOKMARK_S) // TOGETHER_S * TOGETHER_S


def take_socket(environ: dict[str, Any]) -> Taken:
    """Take the connection of a request away from the intake; nothing else will read from it or write to it."""
    taken: Taken = environ[TAKE]()
    return taken


def chunk(data: bytes) -> bytes:
    """Return ``data`` as one chunk; nothing for nothing, because an empty chunk would end the response."""
    return b"%X\r\n%s\r\n" % (len(data), data) if data else b""


def topics_of(key: str) -> tuple[str, ...]:
    """Return the topics an event of ``key`` belongs to: its resource, and its resource in its namespace.

    >>> topics_of("/registry/core/pods/default/web")
    ('/registry/core/pods/', '/registry/core/pods/default/')
    """
    _, root, group, plural, *rest = key.split("/")
    resource = f"/{root}/{group}/{plural}/"
    return (resource, f"{resource}{rest[0]}/") if len(rest) > 1 else (resource,)
