"""What a worker does with its requests: an intake collects them, the application answers each in a thread."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any

from minik8s_modules.api.errors import StatusError
from minik8s_modules.apiserver.access.priority import AT_ONCE
from minik8s_modules.apiserver.audit.auditing import ORIGINAL
from minik8s_modules.apiserver.authorization.identity import CERTIFIED
from minik8s_modules.apiserver.intake.connections import Answer, Connection, status_answer
from minik8s_modules.apiserver.intake.exchange import Exchange
from minik8s_modules.apiserver.intake.framing import Whole
from minik8s_modules.apiserver.intake.heads import environ_of
from minik8s_modules.apiserver.intake.in_loop import Answering
from minik8s_modules.apiserver.intake.intake import Intake
from minik8s_modules.apiserver.intake.limits import account_of
from minik8s_modules.apiserver.reads.watchers import TAKE, Taken
from minik8s_modules.apiserver.serving.quick import LONGEST_BYTES
from minik8s_modules.apiserver.serving.server import Closeable


class Exchanges:
    """Answers requests; those that are answered while it ``closes`` are the last of their connections."""

    def __init__(self, application: Closeable, closes: Callable[[], bool]) -> None:
        self._application, self._closes = application, closes

    def intake(self, listeners: Sequence[socket.socket], context: Callable[[], ssl.SSLContext], threads: int) -> Intake:
        """Return what collects the requests of ``listeners``."""
        admission = self._application.admission
        return Intake(listeners, context, admission, threads, self._answer, self._at_once, self._errand)

    def _answer(self, connection: Connection, whole: Whole) -> Answer:
        """Answer one request, in a thread, without touching its connection."""
        try:
            environ = environ_of(whole, connection.peer, connection.server)
        except StatusError as error:
            return Answer(status_answer(error), keep=False)
        return self._run(connection, environ)

    def _at_once(self, connection: Connection, whole: Whole) -> Answer | None:
        """Answer a request in the intake itself, if nobody has to be waited for; None leaves it to a thread."""
        if whole.body or not whole.head.startswith(b"GET /api"):
            return None
        environ = self._in_loop(connection, whole, self._application.is_quick)
        return None if environ is None else self._run(connection, environ)

    def _errand(self, connection: Connection, whole: Whole) -> Answering | None:
        """Return what answers a short write in the intake itself; None leaves it to a thread."""
        if len(whole.body) > LONGEST_BYTES or not whole.head.startswith(b"POST /api"):
            return None
        environ = self._in_loop(connection, whole, self._application.is_short_write)
        return None if environ is None else lambda connection, _: self._run(connection, environ)

    @staticmethod
    def _in_loop(
        connection: Connection, whole: Whole, is_short: Callable[[dict[str, Any]], bool]
    ) -> dict[str, Any] | None:
        """Return the WSGI environment of a request that the intake answers itself; None leaves it to a thread."""
        try:
            environ = environ_of(whole, connection.peer, connection.server)
        except StatusError:
            return None
        environ[CERTIFIED] = connection.user
        if not is_short(environ):
            return None
        environ[AT_ONCE] = True
        return environ

    def _run(self, connection: Connection, environ: dict[str, Any]) -> Answer:
        hand_over = _HandOver(connection)
        environ.update({CERTIFIED: connection.user, TAKE: hand_over})
        exchange = Exchange(environ, close=self._closes())
        try:
            parts = exchange.run(self._application)
        except StopIteration:
            return Answer([], keep=False, taken=hand_over.done)
        user = environ.get(ORIGINAL)
        account = account_of(user) if user is not None else None
        return Answer(parts, keep=not exchange.close, account=account)


class _HandOver:
    """Gives a request's connection away, to the watch hub or the tunnels."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.done = False

    def __call__(self) -> Taken:
        self.done = True
        return Taken(self._connection.take(), self._connection.reader.leftover())
