"""Where API servers ask a reconciler: HTTPS with mutual TLS, for their certificate and nobody else's.

``POST /plan`` with the question as JSON, see ``plan.py``. ``GET /metrics/NODE`` answers what the loop counted of a
node, in Prometheus' text. Only one who leads the shard can answer; others say 503 to a plan, and 404 to a node.
``Vacancy`` answers where the control plane's reconciler has no nodes, since all have reconcilers of their own.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

from minik8s_modules.api.access.certificate_names import peer_names
from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.kinds import POD_ADDRESS
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import Clock
from minik8s_modules.base.errors import ConfigurationError, TemporaryError
from minik8s_modules.base.https import HttpsHandler, HttpsServer
from minik8s_modules.base.tls import server_context
from minik8s_modules.client.informer import Informer
from minik8s_modules.reconcile.planning.questions import Question, parse_question
from minik8s_modules.reconcile.values.addresses import AddressBook
from minik8s_modules.reconcile.values.values import Settings

CALLER = "system:minik8s:apiserver"
BODY_LIMIT = 16 << 20
Answer = Callable[[Question], JsonObject | None]
"""Returns the answer, or None while this process does not lead the shard."""
Metrics = Callable[[str], str | None]
"""Returns what was counted of a node, or None of one that is not led here."""
_METRICS = "/metrics/"
_PATIENCE_S = 10.0


def _uncounted(_node: str) -> str | None:
    return None


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

    def __init__(self, host: str, port: int, files: PlanFiles, answer: Answer, metrics: Metrics = _uncounted) -> None:
        context = _context(files)
        try:
            self._server = _Server((host, port), context, answer, metrics)
        except OSError as error:
            raise ConfigurationError(f"plan.listen: cannot listen on {host}:{port}: {error.strerror}") from error
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, name="plan", daemon=True)

    def start(self) -> None:
        """Serve from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Close the listener; requests under way end with their connections."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join(5.0)
        self._server.server_close()


class _Server(HttpsServer):
    def __init__(self, address: tuple[str, int], context: ssl.SSLContext, answer: Answer, metrics: Metrics) -> None:
        super().__init__(address, _Handler, context, "plan")
        self.answer, self.metrics = answer, metrics


def _context(files: PlanFiles) -> ssl.SSLContext:
    try:
        return server_context(files.cert, files.key, files.client_ca)
    except OSError as error:
        raise ConfigurationError(f"plan: certificate, key or client_ca cannot be used: {error}") from error


class _Handler(HttpsHandler):
    """One connection."""

    server: _Server

    def do_GET(self) -> None:  # noqa: N802 - http.server calls it
        """Answer what was counted of a node."""
        try:
            self._check_caller()
            self.send(HTTPStatus.OK, "text/plain; version=0.0.4; charset=utf-8", self._counted().encode())
        except Refused as refusal:
            self._send(refusal.status, {"message": str(refusal)})

    def do_POST(self) -> None:  # noqa: N802 - http.server calls it
        """Answer a plan."""
        try:
            self._check_caller()
            self._check_path(self.path == "/plan")
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

    def _counted(self) -> str:
        self._check_path(self.path.startswith(_METRICS))
        found = self.server.metrics(self.path.removeprefix(_METRICS))
        if found is None:
            raise Refused(HTTPStatus.NOT_FOUND, "this reconciler does not lead the shard of that node")
        return found

    def _check_path(self, known: bool) -> None:  # noqa: FBT001 - a private check
        if not known:
            raise Refused(HTTPStatus.NOT_FOUND, f"there are only POST /plan and GET {_METRICS}NODE")

    def _check_caller(self) -> None:
        try:
            caller = peer_names(self.request.getpeercert()).common_name
        except ValueError as error:
            raise Refused(HTTPStatus.FORBIDDEN, f"answers are for the certificate of {CALLER}: {error}") from error
        if caller != CALLER:
            raise Refused(HTTPStatus.FORBIDDEN, f"answers are for {CALLER}, not for {caller}")

    def _body(self) -> Any:
        length = self.headers.get("Content-Length") or ""
        if not length.isdecimal():
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "Content-Length is missing")
        if int(length) > BODY_LIMIT:
            self.close_connection = True
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a plan has at most {BODY_LIMIT} bytes")
        return json.loads(self.rfile.read(int(length)))

    def _send(self, status: HTTPStatus, body: JsonObject) -> None:
        self.send(status, "application/json", json.dumps(body).encode())


class Vacancy:
    """A shard without nodes: it only says what nodes with reconcilers of their own are to be told.

    It follows addresses, because one that was released must rest here, too (addresses.py).
    """

    def __init__(self, api: Any, settings: Settings, clock: Clock) -> None:
        self._api = api
        self._settings = settings
        self._clock = clock
        self._book = AddressBook(api, clock)
        self._addresses = Informer(api, POD_ADDRESS)
        self._addresses.add_handler(self._book.on_change)

    def start(self) -> None:
        """List and watch; returns at once."""
        self._addresses.start()

    def stop(self) -> None:
        """End the watch."""
        self._addresses.stop()

    def plan(self, question: Question) -> JsonObject:
        """Return the answer to a plan; raises as the API does."""
        from minik8s_modules.reconcile.planning.answering import answer_of_nobody  # noqa: PLC0415 - see there

        self._addresses.wait_synced(_PATIENCE_S)
        return answer_of_nobody(question, self._api, self._book, self._settings, self._clock)
