"""An HTTP server whose answers a test writes down: real sockets, real chunks, cut-offs included."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import orjson

Answer = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    """Hands each request to the server's ``answer``."""

    protocol_version = "HTTP/1.1"
    body: bytes = b""

    @property
    def script(self) -> Server:
        """The server, typed."""
        assert isinstance(self.server, Server)
        return self.server

    def handle_one_request(self) -> None:
        """Let a client hang up without a traceback."""
        try:
            super().handle_one_request()
        except ConnectionError:
            self.close_connection = True

    def _any(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.script.requests.append((self.command, self.path, self.body, dict(self.headers)))
        self.script.answer(self)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _any  # noqa: N815 - names given by http.server

    def json(self, value: Any, code: int = 200) -> None:
        """Answer ``value`` whole."""
        data = value if isinstance(value, bytes) else orjson.dumps(value)
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def start_chunks(self, **headers: str) -> None:
        """Answer the headers of a stream."""
        self.send_response(200)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()

    def chunk(self, data: bytes) -> None:
        """Send one chunk; an empty one ends the stream."""
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class Server(ThreadingHTTPServer):
    """Remembers ``requests`` as (method, path, body, headers)."""

    daemon_threads = True
    requests: list[tuple[str, str, bytes, dict[str, str]]]
    answer: Answer

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def serving(answer: Answer) -> Iterator[Server]:
    server = Server(("127.0.0.1", 0), Handler)
    server.requests = []
    server.answer = answer
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
