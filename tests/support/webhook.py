"""An HTTPS server in the test process that answers reviews as a test says: an admission webhook, or a program like it.

with WebhookServer(tmp_path) as hook:
    hook.answers["/deny"] = lambda request: {"allowed": False}
    hook.url("/deny"), hook.ca_bundle, hook.reviews
"""

from __future__ import annotations

import base64
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.pki import Authority

Respond = Callable[[dict[str, Any]], dict[str, Any]]
"""Takes ``request`` of a review and returns ``response``; the uid is put in unless it is there."""
RawRespond = Callable[[BaseHTTPRequestHandler, dict[str, Any]], None]
"""Answers by itself, however wrong."""


def patch(*operations: dict[str, Any]) -> dict[str, Any]:
    """Return the response that allows a write and changes its object."""
    encoded = base64.b64encode(json.dumps(list(operations)).encode()).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": encoded}


def machine_address() -> str:
    """Return an address of this machine that is not its loopback: what an EndpointSlice may name."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing
        return str(probe.getsockname()[0])


class WebhookServer:
    """See the top of this file; ``names`` are what its certificate is for, beside its addresses."""

    def __init__(self, folder: Path, names: tuple[str, ...] = ("localhost",)) -> None:
        self.answers: dict[str, Respond] = {}
        self.raw: dict[str, RawRespond] = {}
        self.reviews: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.connections = 0
        authority = Authority(folder / "hook-pki", "hooks")
        certificate = authority.issue("hook", "hook", names=names, addresses=(machine_address(),))
        self.ca_bundle = base64.b64encode(authority.ca.read_bytes()).decode()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self) -> None:
                outer.connections += 1
                super().setup()

            def do_POST(self) -> None:
                outer.answer(self)

            def log_message(self, *_args: Any) -> None:
                pass

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.cert, certificate.key)
        self._server = ThreadingHTTPServer(("0.0.0.0", 0), Handler, bind_and_activate=True)
        self._server.daemon_threads = True
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = int(self._server.server_address[1])

    def __enter__(self) -> WebhookServer:
        """Serve."""
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()

    def url(self, path: str) -> str:
        """Return the URL of ``path``."""
        return f"https://127.0.0.1:{self.port}{path}"

    def connection(self) -> http.client.HTTPSConnection:
        """Return a connection of one's own to the server."""
        context = ssl.create_default_context(cadata=base64.b64decode(self.ca_bundle).decode())
        return http.client.HTTPSConnection("127.0.0.1", self.port, context=context)

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer one request."""
        body = handler.rfile.read(int(handler.headers["Content-Length"]))
        review, path = json.loads(body), handler.path.partition("?")[0]
        self.reviews.append(review)
        self.paths.append(handler.path)
        self.headers.append(dict(handler.headers.items()))
        if path in self.raw:
            self.raw[path](handler, review)
            return
        response = self.answers[path](review["request"])
        response.setdefault("uid", review["request"]["uid"])
        send(handler, json.dumps({**review, "request": None, "response": response}).encode())


def send(handler: BaseHTTPRequestHandler, body: bytes, code: int = 200, **headers: str) -> None:
    """Send an answer."""
    handler.send_response(code)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(body)))
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)
