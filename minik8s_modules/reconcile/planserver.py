"""The listener plans come in by: HTTPS with mutual TLS, for the API server's certificate and nobody else's.

``POST /plan`` with the question as JSON, see ``plan.py``. Only one who leads the shard can answer; others say 503.
"""

from __future__ import annotations

import json
import logging
import ssl
import sys
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from minik8s_modules.api.errors import StatusError
from minik8s_modules.base.errors import ConfigurationError, TemporaryError
from minik8s_modules.base.tls import server_context
from minik8s_modules.reconcile.hypothesis import Question, parse_question

log = logging.getLogger(__name__)
JsonObject = dict[str, Any]
CALLER = "system:minik8s:apiserver"
BODY_LIMIT = 16 << 20
_READ_S = 30.0
Answer = Callable[[Question], JsonObject | None]
"""Returns the answer, or None while this process does not lead the shard."""


class PlanFiles(NamedTuple):
    """Certificate, key, and the authority of callers."""

    cert: Path
    key: Path
    client_ca: Path


class Refused(Exception):
    """The request gets this status and message instead of an answer."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class PlanServer:
    """Serves ``answer`` on ``host``:``port`` (0: any free one, see ``port``)."""

    def __init__(self, host: str, port: int, files: PlanFiles, answer: Answer) -> None:
        context = _context(files)
        try:
            self._server = _Server((host, port), context, answer)
        except OSError as error:
            raise ConfigurationError(f"plan.listen: cannot listen on {host}:{port}: {error.strerror}") from error
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="plan", daemon=True)

    def start(self) -> None:
        """Serve from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Close the listener; requests under way end with their connections."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join(5.0)
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], context: ssl.SSLContext, answer: Answer) -> None:
        super().__init__(address, _Handler)
        self._context = context
        self.answer = answer

    def get_request(self) -> tuple[ssl.SSLSocket, Any]:
        """Accept without the handshake, which the connection's own thread makes: a slow peer delays nobody."""
        connection, peer = super().get_request()
        connection.settimeout(_READ_S)
        return self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), peer

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base class' signature
        """Log what ended a connection: a handshake without our certificate, mostly."""
        log.info("plan: connection of %s refused: %s", client_address[0], sys.exception())


def _context(files: PlanFiles) -> ssl.SSLContext:
    try:
        return server_context(files.cert, files.key, files.client_ca)
    except OSError as error:
        raise ConfigurationError(f"plan: certificate, key or client_ca cannot be used: {error}") from error


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: _Server
    protocol_version = "HTTP/1.1"
    timeout = _READ_S

    def setup(self) -> None:
        """Make the TLS handshake before anything is read."""
        self.request.do_handshake()
        super().setup()

    def handle(self) -> None:
        """Serve the connection; a peer that breaks it off is nobody's error."""
        try:
            super().handle()
        except (OSError, ssl.SSLError) as error:
            log.info("plan: connection of %s ended: %s", self.client_address[0], error)

    def finish(self) -> None:
        """Say goodbye in TLS."""
        try:
            super().finish()
        except (OSError, ssl.SSLError, ValueError) as error:
            log.debug("plan: %s", error)

    def do_POST(self) -> None:
        """Answer a plan."""
        try:
            self._check_caller()
            self._send(HTTPStatus.OK, self._answered(parse_question(self._body())))
        except Refused as refusal:
            self._send(refusal.status, {"message": str(refusal)})
        except ValueError as error:
            self._send(HTTPStatus.BAD_REQUEST, {"message": str(error)})
        except (TemporaryError, StatusError) as error:
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, {"message": str(error)})

    def _answered(self, question: Question) -> JsonObject:
        found = self.server.answer(question)
        if found is None:
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "this reconciler does not lead its shard")
        return found

    def _check_caller(self) -> None:
        if self.path != "/plan":
            raise Refused(HTTPStatus.NOT_FOUND, "there is only /plan")
        subject = self.request.getpeercert().get("subject", ())
        names = [value for row in subject for kind, value in row if kind == "commonName"]
        if names != [CALLER]:
            raise Refused(HTTPStatus.FORBIDDEN, f"plans are for {CALLER}, not for {', '.join(names) or 'nobody'}")

    def _body(self) -> Any:
        length = self.headers.get("Content-Length") or ""
        if not length.isdecimal():
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "Content-Length is missing")
        if int(length) > BODY_LIMIT:
            self.close_connection = True
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a plan has at most {BODY_LIMIT} bytes")
        return json.loads(self.rfile.read(int(length)))

    def _send(self, status: HTTPStatus, body: JsonObject) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class' signature
        """Log like everything else."""
        log.debug("plan: " + format, *args)  # noqa: G003 - the base class' format
