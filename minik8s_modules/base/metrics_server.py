"""Serves a daemon's metrics over plain HTTP, for Prometheus on the same machine: ``GET /metrics``, ``GET /healthz``.

Numbers only, no names of users' objects; so it needs no authentication, and belongs on a loopback address.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.base.metrics import Registry

log = logging.getLogger(__name__)
_TIMEOUT_S = 10.0


class MetricsServer:
    """Listens on ``address`` (``HOST:PORT``) from its making on."""

    def __init__(self, registry: Registry, address: str) -> None:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise ConfigurationError(f'metrics: "{address}" is no HOST:PORT, as in 127.0.0.1:10257')
        try:
            self._server = ThreadingHTTPServer((host, int(port)), _handler(registry))
        except (OSError, OverflowError) as error:
            raise ConfigurationError(f"metrics: cannot listen on {address}: {error}") from error
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._server.server_port

    def start(self) -> None:
        """Begin to answer; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._server.shutdown()
        self._server.server_close()


def _handler(registry: Registry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = _TIMEOUT_S

        def do_GET(self) -> None:
            texts: dict[str, Callable[[], str]] = {"/metrics": registry.text, "/healthz": lambda: "ok"}
            text = texts.get(self.path.partition("?")[0])
            body = text().encode() if text is not None else b"not found\n"
            self.send_response(HTTPStatus.OK if text is not None else HTTPStatus.NOT_FOUND)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the signature http.server calls
            log.debug(format, *args)

    return Handler
