"""gunicorn as a library: one worker process of threads, TLS with optional client certificates, deadlines.

One process holds one watch cache and one watch hub (hub.py); the store's client, which has threads of its
own, is made in the worker, after the fork. Two things are changed in gunicorn's gthread worker. A new
connection waits in the poller until it says something, so silent clients hold no thread. And every request
has a deadline, checked once a second: at ``HEAD_S`` the TLS handshake and the head of the request must have
come, at ``REQUEST_S`` (kube-apiserver's --request-timeout) all of it must be over; a socket that is late is
shut down, which frees its thread. The TLS context is shared by all connections and read again when one of
its files changes (gunicorn alone would read the files for each connection). gunicorn is held below 26: its
26.0 and 27.0.1 stall for seconds on half-closed connections.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import resource
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from gunicorn.app.base import BaseApplication
from gunicorn.workers.gthread import TConn, ThreadWorker

from minik8s_modules.apiserver.settings import Settings, TlsFiles
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.base.tls import server_context

HEAD_S = 10.0
REQUEST_S = 60.0
# kubectl and client-go keep idle connections 90 s; closing ours later than theirs avoids resets under their
# feet
KEEPALIVE_S = 120
# requests in flight get this long when the server stops; watches are ended at once
GRACE_S = 5
SOCKET_OPTIONS = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    # a watch sends nothing for minutes; a client that vanished without a word is noticed after a minute
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
# pause between attempts to accept while no file descriptor is free
EXHAUSTED_S = 0.05

log = logging.getLogger(__name__)


class Closeable(Protocol):
    """A WSGI application that must be told when its process ends."""

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        """Answer a request."""

    def close(self) -> None:
        """End what runs beside the application."""


class TlsContext:
    """The server's SSL context, made anew when certificate, key or client CA change on disk."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._stamp: tuple[tuple[int, int], ...] = ()
        self._context: ssl.SSLContext | None = None

    def get(self) -> ssl.SSLContext:
        """Return the context for the files as they are; the former one while they cannot be read."""
        with self._lock:
            try:
                stamp = tuple(map(_stamp, (self._files.cert, self._files.key, self._files.ca)))
                if self._context is None or stamp != self._stamp:
                    self._context, self._stamp = make_context(self._files), stamp
            except OSError:  # ssl.SSLError is one: half of a new pair has been written
                if self._context is None:
                    raise
            return self._context


def make_context(files: TlsFiles) -> ssl.SSLContext:
    """Return a server context: a client certificate is optional but, if given, checked."""
    return server_context(files.cert, files.key, files.ca, clients=ssl.CERT_OPTIONAL)


def raise_file_limit() -> None:
    """Allow as many open files as the system lets this user have: each watch is one, and the default is 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_ino


class ApiWorker(ThreadWorker):  # type: ignore[misc]  # gunicorn carries no types
    """gthread with deadlines; see the module's docstring."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._deadlines: dict[Any, float] = {}

    def accept(self, listener: socket.socket) -> None:
        """Take a connection and let it wait in the poller for its first bytes."""
        try:
            client, address = listener.accept()
        except OSError as error:
            if error.errno in {errno.EMFILE, errno.ENFILE}:
                log.error("out of file descriptors; raise the limit of open files")  # noqa: TRY400 - no defect
                time.sleep(EXHAUSTED_S)
            elif error.errno not in {errno.EAGAIN, errno.ECONNABORTED, errno.EWOULDBLOCK}:
                raise
            return
        for level, option, value in SOCKET_OPTIONS:
            client.setsockopt(level, option, value)
        self.nr_conns += 1
        connection = TConn(self.cfg, client, address, listener.getsockname())
        connection.timeout = time.monotonic() + HEAD_S
        self.pending_conns.append(connection)
        self.poller.register(client, selectors.EVENT_READ, partial(self.on_pending_socket_readable, connection))

    def handle(self, conn: Any) -> Any:
        """Serve one request under deadlines."""
        self._deadlines[conn] = time.monotonic() + HEAD_S
        try:
            return super().handle(conn)
        finally:
            self._deadlines.pop(conn, None)

    def handle_request(self, req: Any, conn: Any) -> Any:
        """Answer a request whose head has come."""
        self._deadlines[conn] = time.monotonic() + REQUEST_S
        return super().handle_request(req, conn)

    def murder_pending(self) -> None:
        """Close what is late; gunicorn's loop calls this once a second and after each event."""
        super().murder_pending()
        now = time.monotonic()
        for connection, deadline in list(self._deadlines.items()):
            if deadline < now and self._deadlines.pop(connection, 0.0):
                _shut(connection.sock)

    def set_accept_enabled(self, enabled: bool) -> None:  # noqa: FBT001 - gunicorn's signature
        """Start or stop accepting; when stopping for good, idle connections are closed at once."""
        super().set_accept_enabled(enabled)
        if not self.alive:
            for connection in (*self.keepalived_conns, *self.pending_conns):
                connection.timeout = 0.0
            self.murder_keepalived()
            self.murder_pending()


def _shut(sock: socket.socket) -> None:
    # the base class's method: SSLSocket's own would drop the TLS state that a thread is reading with
    with contextlib.suppress(OSError):  # closed meanwhile
        socket.socket.shutdown(sock, socket.SHUT_RDWR)


class ApiServer(BaseApplication):  # type: ignore[misc]  # gunicorn carries no types
    """Runs ``make_application(settings)`` in one worker until SIGTERM; SIGHUP makes a new worker."""

    def __init__(self, settings: Settings, make_application: Callable[[Settings], Closeable]) -> None:
        self._settings = settings
        self._make_application = make_application
        self._tls = TlsContext(settings.tls)
        self._application: Closeable | None = None
        try:
            self._tls.get()
        except OSError as error:  # said here, in words, rather than at the first connection
            raise ConfigurationError(
                f"apiserver: tls: {settings.tls.cert} and its key cannot be used: {error}"
            ) from error
        super().__init__(prog="minik8s-apiserver")

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
            "worker_connections": 4096,
            "keepalive": KEEPALIVE_S,
            "graceful_timeout": GRACE_S,
            "timeout": 60,
            "certfile": str(settings.tls.cert),
            "keyfile": str(settings.tls.key),
            "ca_certs": str(settings.tls.ca),
            "cert_reqs": ssl.CERT_OPTIONAL,
            "ssl_context": lambda _config, _factory: self._tls.get(),
            "worker_exit": self._on_exit,
            "limit_request_line": 8190,  # the most it allows: label selectors are long
            "forwarded_allow_ips": "",  # nobody may rewrite the path or the scheme by a header
            "control_socket_disable": True,
            "errorlog": "-",
            "loglevel": "warning",
        }
