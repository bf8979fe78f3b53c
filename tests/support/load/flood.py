"""A flood: one user's connections to an API server, each sending its next request as soon as the last is answered.

It runs in a process of its own, so that those who measure beside it do not wait for its Python.

with Flood(server, user, 64, [Asked("GET", "/api/v1/pods")]) as flood:
    flood.wait_for(100)
    ...
    flood.answered()
"""

from __future__ import annotations

import multiprocessing
import select
import socket
import ssl
import time
from collections.abc import Sequence
from itertools import count
from types import TracebackType
from typing import NamedTuple

from tests.support.apiserver import ApiServerProcess
from tests.support.pki import Certificate

_CONTEXT = multiprocessing.get_context("fork")
LONGEST_S = 300.0


class Asked(NamedTuple):
    """A request; ``%d`` in the body becomes a number of its own."""

    method: str
    path: str
    body: bytes = b""
    accept: str = "application/json"

    def data(self, number: int) -> bytes:
        """Return the bytes to send."""
        body = self.body.replace(b"%d", str(number).encode())
        head = (
            f"{self.method} {self.path} HTTP/1.1\r\nHost: flood\r\nAccept: {self.accept}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


class Flood:
    """See the module's docstring; ``asked`` is sent in turns."""

    def __init__(self, server: ApiServerProcess, user: Certificate, connections: int, asked: Sequence[Asked]) -> None:
        self._server = server
        self._user = user
        self._connections = connections
        self._asked = asked
        self._answers = _CONTEXT.Value("L", 0)
        self._refused = _CONTEXT.Value("L", 0)
        self._stop = _CONTEXT.Event()
        self._process = _CONTEXT.Process(target=self._run, daemon=True)

    def __enter__(self) -> Flood:
        """Begin."""
        self._process.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End."""
        self._stop.set()
        self._process.join(30)
        self._process.kill()

    def answered(self) -> int:
        """Return how many requests were answered."""
        return int(self._answers.value)

    def refused(self) -> int:
        """Return how many of the answers were 429."""
        return int(self._refused.value)

    def wait_for(self, answers: int) -> None:
        """Wait until so many more requests are answered."""
        until = self.answered() + answers
        end = time.monotonic() + 120
        while self.answered() < until:
            assert self._process.is_alive(), "the flood has ended"
            assert time.monotonic() < end, "the flood is not answered"
            time.sleep(0.01)

    def _run(self) -> None:
        numbers, context = count(), self._server.context(self._user)
        streams = {}
        with select.epoll() as poller:
            for number in range(self._connections):
                stream = _Stream(context, self._server.port, self._asked[number % len(self._asked)])
                streams[stream.sock.fileno()] = stream
                stream.ask(next(numbers))
                poller.register(stream.sock, select.EPOLLIN)
            end = time.monotonic() + LONGEST_S
            while not self._stop.is_set() and time.monotonic() < end:
                for descriptor, _ in poller.poll(0.1):
                    status = streams[descriptor].read()
                    if status:
                        self._answers.value += 1
                        self._refused.value += status == 429
                        streams[descriptor].ask(next(numbers))


class _Stream:
    """One connection."""

    def __init__(self, context: ssl.SSLContext, port: int, asked: Asked) -> None:
        plain = socket.create_connection(("127.0.0.1", port))
        self.sock = context.wrap_socket(plain, server_hostname="localhost")
        self.sock.setblocking(False)  # noqa: FBT003 - the standard library's signature
        self._asked = asked
        self._status = 0
        self._missing = 0
        self._head = b""

    def ask(self, number: int) -> None:
        """Send the next request, which fits into the socket's buffer."""
        self.sock.sendall(self._asked.data(number))

    def read(self) -> int:
        """Read what has come and return the status when the answer is whole, else 0."""
        while True:
            try:
                data = self.sock.recv(65536)
            except ssl.SSLWantReadError:
                return 0
            assert data, "the server has hung up"
            if not self._status:
                self._head += data
                head, found, data = self._head.partition(b"\r\n\r\n")
                if not found:
                    continue
                self._head = b""
                self._status = int(head.split(None, 2)[1])
                self._missing = int(head.lower().partition(b"content-length:")[2].split(None, 1)[0])
            self._missing -= len(data)
            if self._missing <= 0:
                status, self._status = self._status, 0
                return status
