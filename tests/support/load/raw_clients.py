r"""Clients of an API server that speak only as far as a test lets them: TCP, half of a handshake or of a request.

with Crowd(server) as crowd:
    crowd.speaking(300, b"GET /version HTTP/1.1\r\n")
    assert crowd.still_open() == 300
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from types import TracebackType

from tests.support.apiserver import ApiServerProcess
from tests.support.pki import Certificate

TIMEOUT_S = 30.0


def client_hello(context: ssl.SSLContext) -> bytes:
    """Return the first message of a TLS handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def read_answer(sock: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers (names in lower case) and body of the next answer; status 0 when there is none."""
    with contextlib.suppress(OSError):
        file = sock.makefile("rb")
        words = file.readline().split()
        headers: dict[str, str] = {}
        while line := file.readline().strip().decode():
            name, value = line.split(":", 1)
            headers[name.lower()] = value.strip()
        return int(words[1]) if words else 0, headers, file.read(int(headers.get("content-length", 0)))
    return 0, {}, b""


class Crowd:
    """Many connections to one server; closes them at the end."""

    def __init__(self, server: ApiServerProcess, client: Certificate | None = None) -> None:
        self._address = ("127.0.0.1", server.port)
        self.context = server.context(client)
        self.socks: list[socket.socket] = []

    def __enter__(self) -> Crowd:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Hang up."""
        for sock in self.socks:
            sock.close()

    def silent(self, count: int, data: bytes = b"") -> None:
        """Add connections that say ``data`` without TLS, and nothing more."""
        for _ in range(count):
            sock = socket.create_connection(self._address, TIMEOUT_S)
            self.socks.append(sock)
            sock.sendall(data)

    def speaking(self, count: int, data: bytes) -> list[ssl.SSLSocket]:
        """Add and return connections that say ``data`` over TLS, and nothing more."""
        added = []
        for _ in range(count):
            plain = socket.create_connection(self._address, TIMEOUT_S)
            sock = self.context.wrap_socket(plain, server_hostname="localhost")
            self.socks.append(sock)
            sock.sendall(data)
            added.append(sock)
        return added

    def still_open(self) -> int:
        """Return how many connections the server has neither answered nor closed."""
        return sum(1 for sock in self.socks if not has_answered(sock))


def has_answered(sock: socket.socket) -> bool:
    """Return whether the server has answered or hung up; what TLS says for itself is no answer."""
    sock.setblocking(False)  # noqa: FBT003 - the standard library's signature
    try:
        while data := sock.recv(65536):
            if isinstance(sock, ssl.SSLSocket):
                return bool(data)
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        return True
    finally:
        sock.settimeout(TIMEOUT_S)
    return True
