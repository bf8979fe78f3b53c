"""The adapter's listener: HTTPS for the cluster's front proxy alone, whose API server has authorized the request.

Who asks is not looked at again: an API server lets a request through by its path (``custom.metrics.k8s.io``, the
resource, the namespace), and only the front proxy's certificate opens this port.
"""

from __future__ import annotations

import ssl
import threading
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

import orjson

from minik8s_modules.api.access.certificate_names import peer_names
from minik8s_modules.api.errors import ServiceUnavailable, StatusError
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.errors import ConfigurationError, TemporaryError
from minik8s_modules.base.https import HttpsHandler, HttpsServer
from minik8s_modules.base.tls import server_context
from minik8s_modules.monitoring.adapter.adapter import Adapter

CALLER = "front-proxy-client"


class AdapterFiles(NamedTuple):
    """Certificate, key, and the authority of front proxies."""

    cert: Path
    key: Path
    client_ca: Path


class AdapterServer:
    """Listens on ``host``:``port`` from its making on (0: any free one, see ``port``)."""

    def __init__(self, host: str, port: int, files: AdapterFiles, adapter: Adapter) -> None:
        try:
            context = server_context(*files)
        except OSError as error:
            raise ConfigurationError(f"adapter: certificate, key or client_ca cannot be used: {error}") from error
        try:
            self._server = _Server((host, port), context, adapter)
        except OSError as error:
            raise ConfigurationError(f"adapter.listen: cannot listen on {host}:{port}: {error.strerror}") from error
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, name="adapter", daemon=True)

    def start(self) -> None:
        """Begin to answer; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()


class _Server(HttpsServer):
    def __init__(self, address: tuple[str, int], context: ssl.SSLContext, adapter: Adapter) -> None:
        super().__init__(address, _Handler, context, "adapter")
        self.adapter = adapter


class _Handler(HttpsHandler):
    server: _Server

    def do_GET(self) -> None:  # noqa: N802 - http.server calls it
        try:
            self._check_caller()
            self._send(HTTPStatus.OK, self.server.adapter.answer(self.path))
        except StatusError as error:
            self._send(error.code, error.status())
        except TemporaryError as error:
            unavailable = ServiceUnavailable(str(error))
            self._send(unavailable.code, unavailable.status())

    def _check_caller(self) -> None:
        try:
            caller = peer_names(self.request.getpeercert()).common_name
        except ValueError as error:
            raise _refusal(f"metrics are for the certificate of {CALLER}: {error}") from error
        if caller != CALLER:
            raise _refusal(f"metrics are for {CALLER}, not for {caller}")

    def _send(self, status: int, body: JsonObject) -> None:
        self.send(status, "application/json", orjson.dumps(body))


def _refusal(message: str) -> StatusError:
    return StatusError(HTTPStatus.FORBIDDEN, "Forbidden", message)
