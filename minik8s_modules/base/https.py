"""A small HTTPS server of threads: what daemons answer questions with that are not the API server's.

A connection's own thread makes the TLS handshake, so a peer that is slow, or is no peer at all, delays nobody. There
are at most ``MOST`` connections: whoever opens more is cut off, and costs no more than that.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from minik8s_modules.base.sockets import family_of

log = logging.getLogger(__name__)
LOOK_S = 3600.0
"""How often a server looks around of itself: connections wake it, and its end does."""
READ_S = 30.0
"""How long a peer may keep silent, in the handshake as later."""
MOST = 256


class HttpsServer(ThreadingHTTPServer):
    """Serves ``handler`` on ``address``; ``name`` is what its log lines begin with."""

    daemon_threads = True

    def __init__(
        self, address: tuple[str, int], handler: type[HttpsHandler], context: ssl.SSLContext, name: str
    ) -> None:
        self.address_family = family_of(address[0])
        super().__init__(address, handler)
        self._context = context
        self.name = name
        self._free = threading.BoundedSemaphore(MOST)

    def serve_forever(self, poll_interval: float = LOOK_S) -> None:
        """Serve until ``shutdown``."""
        super().serve_forever(poll_interval)

    def shutdown(self) -> None:
        """End serving."""
        with contextlib.suppress(OSError):  # closed already
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for connections
        super().shutdown()

    def get_request(self) -> tuple[ssl.SSLSocket, Any]:
        """Accept without the handshake."""
        connection, peer = super().get_request()
        connection.settimeout(READ_S)
        return self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), peer

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give the connection a thread, as long as there are some."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            log.warning("%s: %s is disconnected: %d connections are open", self.name, client_address[0], MOST)
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve the connection to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base class' signature
        """Log what ended a connection: a failed handshake, mostly."""
        log.info("%s: connection of %s refused: %s", self.name, client_address[0], sys.exception())


class HttpsHandler(BaseHTTPRequestHandler):
    """One connection."""

    server: HttpsServer
    protocol_version = "HTTP/1.1"
    timeout = READ_S
    disable_nagle_algorithm = True  # an answer is two writes, and the second would wait for the first one's arrival

    def setup(self) -> None:
        """Make the TLS handshake before anything is read."""
        self.request.do_handshake()
        super().setup()

    def handle(self) -> None:
        """Serve the connection; a peer that breaks it off is nobody's error."""
        try:
            super().handle()
        except (OSError, ssl.SSLError) as error:
            log.info("%s: connection of %s ended: %s", self.server.name, self.client_address[0], error)

    def finish(self) -> None:
        """Say goodbye in TLS."""
        try:
            super().finish()
        except (OSError, ssl.SSLError, ValueError) as error:
            log.debug("%s: %s", self.server.name, error)

    def send(self, status: int, kind: str, body: bytes) -> None:
        """Send a whole answer with its content type."""
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class' signature
        """Log like everything else."""
        log.debug(f"{self.server.name}: {format}", *args)  # noqa: G004 - the base class' format
