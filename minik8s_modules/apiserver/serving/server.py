"""gunicorn as a library: one worker process with an intake and threads, TLS with optional client certificates.

One process holds one watch cache and one watch hub (hub.py); the store's client, which has threads of its
own, is made in the worker, after the fork. Of gunicorn there is the arbiter, which replaces a worker that dies, and
imports nothing of the application (main.py): so nothing here does, either. Connections are the intake's (intake.py),
which hands over whole requests to what exchanges.py has, and keeps and sends what is answered.
The TLS context is shared by all connections and read again when one of its files changes (gunicorn alone would read the
files for each connection).
"""

from __future__ import annotations

import gc
import logging
import os
import ssl
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from gunicorn.app.base import BaseApplication
from gunicorn.sock import ssl_context
from gunicorn.workers.base import Worker

from minik8s_modules.apiserver.http.settings import Settings, TlsFiles
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.base.files import Stamp, stamp
from minik8s_modules.base.tls import server_context

if TYPE_CHECKING:
    from minik8s_modules.apiserver.intake.intake import Intake
    from minik8s_modules.apiserver.intake.limits import Admission

log = logging.getLogger(__name__)

# requests in flight get this long when the server stops; watches are ended immediately
GRACE_S = 5
# a thread that computes (a list) lets others go on after this; a GET has to wait for that several times
SWITCH_S = 0.001


def _freeze(_arbiter: Any, _worker: Any) -> None:
    """Before the fork, have later collections leave alone what is there: they would write to every page of it."""
    gc.collect()
    gc.freeze()


class Closeable(Protocol):
    """A WSGI application that must be told when its process ends; ``admission`` says what clients may hold."""

    admission: Admission

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        """Answer a request."""

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
        self._intake: Intake | None = None

    def run(self) -> None:
        """Serve until told to stop; gunicorn's arbiter wants to hear every minute that this goes on."""
        from minik8s_modules.apiserver.serving.exchanges import Exchanges  # noqa: PLC0415 - the arbiter needs none

        sys.setswitchinterval(SWITCH_S)
        gc.collect()
        gc.freeze()  # what was imported is here to stay: looking through it again would stop all threads for 50 ms
        listeners = [each.sock for each in self.sockets]
        exchanges = Exchanges(self.wsgi, lambda: not self.alive)
        self._intake = exchanges.intake(listeners, lambda: ssl_context(self.cfg), self.cfg.threads)
        while self.alive and self.ppid == os.getppid():
            self.notify()
            self._intake.turn()
        self.alive = False
        self._intake.stop(self.cfg.graceful_timeout)

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Stop, after SIGTERM."""
        super().handle_exit(sig, frame)
        if self._intake is not None:
            self._intake.wake()


class ApiServer(BaseApplication):  # type: ignore[misc]  # gunicorn carries no types
    """Runs ``make_application(settings)`` in one worker until SIGTERM.

    SIGHUP makes a new worker, with the settings that ``read_again`` returns. The socket stays open, so who connects
    before the new worker has begun waits for it.
    """

    def __init__(
        self,
        settings: Settings,
        make_application: Callable[[Settings], Closeable],
        read_again: Callable[[], Settings],
    ) -> None:
        self._settings = settings
        self._make_application = make_application
        self._read_again = read_again
        self._tls = TlsContext(settings.tls)
        self._application: Closeable | None = None
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

    def load_config(self) -> None:
        """Give gunicorn its settings."""
        for key, value in self._options().items():
            self.cfg.set(key, value)

    def load(self) -> Closeable:
        """Make the WSGI application; called in the worker."""
        self._application = self._make_application(self._settings)
        return self._application

    def _on_exit(self, _arbiter: Any, _worker: Any) -> None:
        if self._application is not None:
            self._application.close()

    def _options(self) -> dict[str, Any]:
        settings = self._settings
        return {
            "bind": [f"{settings.listen_address}:{settings.port}"],
            "proc_name": "minik8s-apiserver",
            "workers": 1,
            "worker_class": ApiWorker,
            "threads": settings.threads,
            "graceful_timeout": GRACE_S,
            "timeout": 60,
            "certfile": str(settings.tls.cert),
            "keyfile": str(settings.tls.key),
            "ca_certs": str(settings.tls.ca),
            "cert_reqs": ssl.CERT_OPTIONAL,
            "ssl_context": lambda _config, _factory: self._tls.get(),
            "pre_fork": _freeze,
            "worker_exit": self._on_exit,
            "control_socket_disable": True,
            "errorlog": "-",
            "loglevel": "warning",
        }
