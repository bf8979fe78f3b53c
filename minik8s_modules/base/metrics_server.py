"""Serves a daemon's metrics over HTTPS, as Kubernetes' components do.

``GET /metrics`` needs a bearer token of somebody who may read them (role system:monitoring); ``GET /healthz`` needs
none. Who may is not decided here: ``runtime/metrics_readers.py`` asks the API server.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable
from http import HTTPStatus

from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.base.https import HttpsHandler, HttpsServer
from minik8s_modules.base.metrics import Registry
from minik8s_modules.base.places import parse_place

Admission = Callable[[str], HTTPStatus]
"""Given a bearer token ("" for none), returns OK, or why its bearer gets no metrics."""
_SAID = {
    HTTPStatus.UNAUTHORIZED: "a bearer token of the cluster is required",
    HTTPStatus.FORBIDDEN: "no role of this user allows getting /metrics (system:monitoring does)",
    HTTPStatus.SERVICE_UNAVAILABLE: "the API server did not identify the user",
}


class MetricsServer:
    """Listens on ``address`` (``HOST:PORT``) from its making on."""

    def __init__(self, registry: Registry, address: str, context: ssl.SSLContext, admission: Admission) -> None:
        host, port = parse_place(address)
        if not host or not port.isdigit():
            raise ConfigurationError(f'metrics.listen: "{address}" is not HOST:PORT, such as 127.0.0.1:10257')
        try:
            self._server = _Server((host, int(port)), context, registry, admission)
        except (OSError, OverflowError) as error:
            raise ConfigurationError(f"metrics.listen: cannot listen on {address}: {error}") from error
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


class _Server(HttpsServer):
    def __init__(
        self, address: tuple[str, int], context: ssl.SSLContext, registry: Registry, admission: Admission
    ) -> None:
        super().__init__(address, _Handler, context, "metrics")
        self.registry = registry
        self.admission = admission


class _Handler(HttpsHandler):
    server: _Server

    def do_GET(self) -> None:  # noqa: N802 - http.server calls it
        path = self.path.partition("?")[0]
        if path == "/healthz":
            self._text(HTTPStatus.OK, "ok")
        elif path != "/metrics":
            self._text(HTTPStatus.NOT_FOUND, "not found\n")
        elif (status := self.server.admission(self._token())) is HTTPStatus.OK:
            self._text(status, self.server.registry.text())
        else:
            self._text(status, f"{_SAID.get(status, status.phrase)}\n")

    def _token(self) -> str:
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        return token.strip() if scheme.lower() == "bearer" else ""

    def _text(self, status: HTTPStatus, text: str) -> None:
        self.send(status, "text/plain; version=0.0.4; charset=utf-8", text.encode())
