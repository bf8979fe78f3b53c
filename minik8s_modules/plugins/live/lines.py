"""The item socket: JSON lines both ways, driven by the strategy's selector; nothing here blocks."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
from collections.abc import Iterator
from pathlib import Path

MAX_LINE_BYTES = 64 << 20  # a node's whole document is some MB at most
READ_BYTES = 1 << 20


class Client:
    """One connection; what it cannot take at once waits in ``_out``."""

    def __init__(self, connection: socket.socket, selector: selectors.BaseSelector) -> None:
        connection.settimeout(0)
        self._socket, self._selector = connection, selector
        self._in, self._out = bytearray(), bytearray()
        self.closed = False
        selector.register(connection, selectors.EVENT_READ, self)

    def send(self, **message: object) -> None:
        """Queue one line and write what fits; a client that has gone is ignored."""
        if self.closed:
            return
        self._out += json.dumps(message).encode() + b"\n"
        self.flush()

    def flush(self) -> None:
        """Write waiting bytes; ask the selector for more room only while some wait."""
        try:
            while self._out:
                del self._out[: self._socket.send(self._out)]
        except BlockingIOError:
            pass
        except OSError:
            self.close()
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._out else 0)
        self._selector.modify(self._socket, events, self)

    def lines(self) -> Iterator[bytes]:
        """Yield the complete lines that have arrived; closes itself at the end or on a line beyond the limit."""
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        start = len(self._in)
        self._in += data
        while (end := self._in.find(b"\n", start)) >= 0:
            line = bytes(self._in[:end])
            del self._in[: end + 1]
            start = 0
            if line.strip():
                yield line
        if len(self._in) > MAX_LINE_BYTES:
            self.send(
                id=None, status="error", message=f"a line is longer than {MAX_LINE_BYTES} bytes; connection closed"
            )
            self.close()

    def close(self) -> None:
        """Forget the connection; safe to repeat."""
        if not self.closed:
            self.closed = True
            self._selector.unregister(self._socket)
            self._socket.close()


class Listener:
    """The listening socket at ``path``, mode 0600."""

    def __init__(self, path: Path, selector: selectors.BaseSelector) -> None:
        self._path, self._selector = path, selector
        path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        mask = os.umask(0o177)
        try:
            self._socket.bind(str(path))
        finally:
            os.umask(mask)
        self._socket.listen(16)
        self._socket.settimeout(0)
        selector.register(self._socket, selectors.EVENT_READ, self)

    def accept(self) -> Client | None:
        """Return the next client, or None when it has gone again."""
        with contextlib.suppress(OSError):
            connection, _ = self._socket.accept()
            return Client(connection, self._selector)
        return None

    def close(self) -> None:
        """Stop listening and remove the socket's file."""
        self._selector.unregister(self._socket)
        self._socket.close()
        self._path.unlink(missing_ok=True)
