"""gunicorn as a library: worker processes, each with an intake and threads, TLS with optional client certificates.

A process holds one watch cache and one watch hub (hub.py); the store's client, which has threads of its
own, is made in the worker, after the fork. Of gunicorn there is the arbiter, which replaces a worker that dies, and
imports nothing of the application (main.py): so nothing here does, either. Connections are the intake's (intake.py),
which hands over whole requests to what exchanges.py has, and keeps and sends what is answered.
There is one worker unless the settings say otherwise. Several take connections from the arbiter's socket, and each from
one of its own at the same address: the kernel spreads connections over all of them, and none waits for a dead worker.
The TLS context is shared by all connections and read again when one of its files changes (gunicorn alone would read the
files for each connection).
"""

from __future__ import annotations

import gc
import logging
import os
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.sock import ssl_context
from gunicorn.workers.base import Worker

from minik8s_modules.apiserver.http.board import Board, Place
from minik8s_modules.apiserver.http.settings import MOST_WORKERS, Settings, TlsFiles
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.base.files import Stamp, stamp
from minik8s_modules.base.places import place
from minik8s_modules.base.tls import server_context

if TYPE_CHECKING:
    from minik8s_modules.apiserver.intake.intake import Intake
    from minik8s_modules.apiserver.intake.limits import Admission

log = logging.getLogger(__name__)

# requests in flight get this long when the server stops; watches are ended immediately
GRACE_S = 5
# a thread that computes (a list) lets others go on after this; a GET has to wait for that several times
SWITCH_S = 0.001
# a worker that has not told its arbiter for a minute is told to end, and killed at the next look
NOTIFY_S = 5.0
# how often the arbiter looks whether they do; signals, such as of a worker's end, wake it
LOOK_S = 5.0
_BACKLOG = 2048  # gunicorn's
# new workers come before the former go, which may take GRACE_S: as many again for each SIGHUP of that time
_PLACES = 8 * MOST_WORKERS


class Closeable(Protocol):
    """A WSGI application that must be told when its process ends; ``admission`` says what clients may hold."""

    admission: Admission

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        """Answer a request."""

    def is_quick(self, environ: Mapping[str, Any]) -> bool:
        """Return whether a request is answered without waiting for anybody."""

    def is_short_write(self, environ: Mapping[str, Any]) -> bool:
        """Return whether a request is a write that takes little time and waits for the store alone."""

    def close(self) -> None:
        """End what runs beside the application."""


class TlsContext:
    """The server's SSL context, made again when certificate, key or client CA change on disk."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._stamp: Stamp = ()
        self._context: ssl.SSLContext | None = None

    def get(self) -> ssl.SSLContext:
        """Return the context for the files as they are; the former one while they cannot be read."""
        with self._lock:
            try:
                found = stamp(self._files.cert, self._files.key, self._files.ca)
                if self._context is None or found != self._stamp:
                    self._context, self._stamp = make_context(self._files), found
            except OSError:  # ssl.SSLError is one: half of a new pair has been written
                if self._context is None:
                    raise
            return self._context


def make_context(files: TlsFiles) -> ssl.SSLContext:
    """Return a server context: a client certificate is optional but, if given, checked."""
    context = server_context(files.cert, files.key, files.ca, clients=ssl.CERT_OPTIONAL)
    # kubectl and client-go resume no sessions, and a ticket would outlive a certificate that was exchanged; a client
    # that renegotiates costs handshakes without end
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0
    return context


class ApiWorker(Worker):  # type: ignore[misc]  # gunicorn carries no types
    """A gunicorn worker whose requests come from an intake; see the module's docstring."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.alive = True
        self.number: int | None = None
        self._intake: Intake | None = None

    def init_process(self) -> None:
        """Begin; without a place it ends, and the arbiter makes another one once a former worker has gone."""
        if self.number is None:
            log.warning("all %d places of workers are taken by those that end; another worker comes later", _PLACES)
            sys.exit(0)
        super().init_process()

    def run(self) -> None:
        """Serve until told to stop; gunicorn's arbiter wants to hear every minute that this goes on."""
        from minik8s_modules.apiserver.serving.exchanges import Exchanges  # noqa: PLC0415 - the arbiter needs none

        sys.setswitchinterval(SWITCH_S)
        gc.collect()
        gc.freeze()  # what was imported is here to stay: looking through it again would stop all threads for 50 ms
        listeners = [each.sock for each in self.sockets]
        own = _own_listeners(listeners) if self.cfg.workers > 1 else []
        exchanges = Exchanges(self.wsgi, lambda: not self.alive)
        self._intake = exchanges.intake([*listeners, *own], lambda: ssl_context(self.cfg), self.cfg.threads)
        heard_s = 0.0
        while self.alive and self.ppid == os.getppid():
            if (now_s := time.monotonic()) - heard_s >= NOTIFY_S:  # under load there are a thousand turns a second
                heard_s = now_s
                self.notify()
            self._intake.turn()
        self.alive = False
        self._intake.stop(self.cfg.graceful_timeout, own)

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Stop, after SIGTERM."""
        super().handle_exit(sig, frame)
        if self._intake is not None:
            self._intake.wake()


class CalmArbiter(Arbiter):  # type: ignore[misc]  # gunicorn carries no types
    """gunicorn's arbiter, which looks at its workers every second though they have a minute."""

    def wait_for_signals(self, timeout: float = LOOK_S) -> list[int]:  # noqa: ARG002 - it is gunicorn's second
        """Return the signals that have come, or come within ``LOOK_S``."""
        found: list[int] = super().wait_for_signals(LOOK_S)
        return found


def _own_listeners(shared: Sequence[socket.socket]) -> list[socket.socket]:
    """Return a worker's own sockets at the addresses of the arbiter's."""
    made = []
    for each in shared:
        own = socket.socket(each.family)
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            own.setsockopt(socket.SOL_SOCKET, option, 1)
        own.bind(each.getsockname())
        own.listen(_BACKLOG)
        made.append(own)
    return made


def free_number(taken: Container[int | None]) -> int | None:
    """Return the lowest number of a worker that none has; None where all places are taken."""
    return next((each for each in range(_PLACES) if each not in taken), None)


class ApiServer(BaseApplication):  # type: ignore[misc]  # gunicorn carries no types
    """Runs ``make_application(settings, place)`` in its workers until SIGTERM; a lone one has no ``place``.

    SIGHUP makes new workers, with the settings that ``read_again`` returns. The socket stays open, so who connects
    before the first worker has begun waits for it.
    """

    def __init__(
        self,
        settings: Settings,
        make_application: Callable[[Settings, Place | None], Closeable],
        read_again: Callable[[], Settings],
    ) -> None:
        self._settings = settings
        self._make_application = make_application
        self._read_again = read_again
        self._tls = TlsContext(settings.tls)
        self._application: Closeable | None = None
        self._board: Board | None = None
        self._number: int | None = None
        try:
            self._tls.get()
        except OSError as error:  # said here, in words, rather than at the first connection
            raise ConfigurationError(
                f"apiserver: tls: {settings.tls.cert} and its key cannot be used: {error}"
            ) from error
        super().__init__(prog="minik8s-apiserver")

    def reload(self) -> None:
        """Take over what the configuration says now; what cannot be used is told, and the former settings stay."""
        try:
            settings = self._read_again()
        except ConfigurationError as error:
            log.warning("the new configuration is not used; the former one stays: %s", error)
            return
        self._settings, self._tls = settings, TlsContext(settings.tls)
        super().reload()

    def run(self) -> None:
        """Serve until told to stop."""
        CalmArbiter(self).run()

    def load_config(self) -> None:
        """Give gunicorn its settings."""
        for key, value in self._options().items():
            self.cfg.set(key, value)

    def load(self) -> Closeable:
        """Make the WSGI application; called in the worker."""
        place = None
        if self._board is not None and self._number is not None and self._settings.workers > 1:
            place = Place(self._board, self._number)
        self._application = self._make_application(self._settings, place)
        return self._application

    def _before_fork(self, arbiter: Any, worker: Any) -> None:
        """Choose the worker's number; have later collections leave alone what is there: they write to each page.

        It must not raise: that ends the arbiter, and with it the server.
        """
        worker.number = self._number = free_number({each.number for each in arbiter.WORKERS.values()})
        if self._settings.workers > 1:
            self._board = self._board or Board(_PLACES)
            for each in arbiter.LISTENERS:  # gunicorn's own setting would take the arbiter's socket away
                each.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        gc.collect()
        gc.freeze()

    def _after_end(self, _arbiter: Any, worker: Any) -> None:
        """Forget a worker that has ended; its process's number may soon be that of another program."""
        if self._board is not None and worker.number is not None:
            self._board.leave(worker.number, worker.pid)

    def _on_exit(self, _arbiter: Any, _worker: Any) -> None:
        if self._application is not None:
            self._application.close()

    def _options(self) -> dict[str, Any]:
        settings = self._settings
        return {
            "bind": [place(settings.listen_address, settings.port)],
            "proc_name": "minik8s-apiserver",
            "workers": settings.workers,
            "worker_class": ApiWorker,
            "threads": settings.of_worker().threads,
            "graceful_timeout": GRACE_S,
            "timeout": 60,
            "certfile": str(settings.tls.cert),
            "keyfile": str(settings.tls.key),
            "ca_certs": str(settings.tls.ca),
            "cert_reqs": ssl.CERT_OPTIONAL,
            "ssl_context": lambda _config, _factory: self._tls.get(),
            "pre_fork": self._before_fork,
            "child_exit": self._after_end,
            "worker_exit": self._on_exit,
            "control_socket_disable": True,
            "errorlog": "-",
            "loglevel": "warning",
        }
