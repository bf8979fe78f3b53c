"""The gateway's Unix socket: any number of clients, JSON lines both ways.

A client has a reading and a writing thread; its outgoing lines wait in a bounded queue. One that does not
read is cut off, since it gets the whole state anyway when it comes back. A lock file beside the socket
tells a living gateway from a stale socket, so that a killed one's is replaced and a running one's never.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import queue
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.gateway import messages
from minik8s_modules.gateway.messages import BadMessage, Request

log = logging.getLogger(__name__)

Publish = Callable[[Mapping[str, Any]], None]

WAITING_LINES = 10_000
BATCH_LINES = 64


class Client:
    """One connection."""

    def __init__(self, connection: socket.socket, on_request: Callable[[Request], None]) -> None:
        self._connection = connection
        self._on_request = on_request
        self._lines: queue.Queue[bytes | None] = queue.Queue(WAITING_LINES)
        self._threads: tuple[threading.Thread, ...] = ()
        self.closed = threading.Event()
        self._ending = False

    def start(self, on_end: Callable[[Client], None]) -> None:
        """Read and write in two threads; ``on_end`` is called once when reading has ended."""
        self._threads = (
            threading.Thread(target=self._read, args=(on_end,), name="client-in", daemon=True),
            threading.Thread(target=self._write, name="client-out", daemon=True),
        )
        for thread in self._threads:
            thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait for both threads after ``close``."""
        for thread in self._threads:
            if thread.ident is not None:  # a client of this very moment may not have been started
                thread.join(timeout_s)

    def send(self, line: bytes) -> None:
        """Queue one line; a client whose queue is full is cut off."""
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            if not self.closed.is_set():
                log.warning("a client does not read; disconnecting it")
            self.close()

    def tell(self, message: Mapping[str, Any]) -> None:
        """Queue one message."""
        self.send(messages.encode(message))

    def close(self) -> None:
        """Cut the connection."""
        self.closed.set()
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(queue.Full):
            self._lines.put_nowait(None)

    def _read(self, on_end: Callable[[Client], None]) -> None:
        try:
            with self._connection.makefile("rb") as stream:
                while line := stream.readline(messages.LINE_LIMIT + 1):
                    self._on_request(messages.parse(line))
        except BadMessage as error:
            log.warning("a client was disconnected: %s", error)
            self.send(messages.encode(messages.error(str(error))))
        except OSError as error:
            log.debug("a client has disconnected: %s", error)
        except Exception:
            log.exception("a client's request failed")
        finally:
            on_end(self)
            # the writer sends what is queued, then closes
            with contextlib.suppress(queue.Full):
                self._lines.put_nowait(None)

    def _write(self) -> None:
        try:
            while lines := self._waiting():
                self._connection.sendall(b"".join(lines))
        except OSError as error:
            log.debug("a client has disconnected: %s", error)
        finally:
            self.close()
            self._connection.close()

    def _waiting(self) -> list[bytes]:
        """Return the next lines, which go out in one call; none when the client is to be closed."""
        if self._ending or self.closed.is_set():
            return []
        lines: list[bytes] = []
        while len(lines) < BATCH_LINES and not (lines and self._lines.empty()):
            line = self._lines.get()
            if line is None:
                self._ending = True
                break
            lines.append(line)
        return lines


class SocketServer:
    """Listens on ``path`` (mode ``mode``); ``on_client`` may send the first lines to a new client."""

    def __init__(
        self,
        path: Path,
        on_request: Callable[[Request], None],
        on_client: Callable[[Publish], None],
        mode: int = 0o660,
    ) -> None:
        self._path = path
        self._on_request = on_request
        self._on_client = on_client
        self._clients: set[Client] = set()
        self._lock = threading.Lock()
        self._guard = _only_one(path)
        self._listener = _listen(path, mode)
        self._thread = threading.Thread(target=self._accept, name="accept", daemon=True)

    def start(self) -> None:
        """Accept clients from now on."""
        self._thread.start()

    def count(self) -> int:
        """Return the number of clients."""
        with self._lock:
            return len(self._clients)

    def publish(self, message: Mapping[str, Any]) -> None:
        """Send ``message`` to every client."""
        line = messages.encode(message)
        with self._lock:
            clients = [*self._clients]
        for client in clients:
            client.send(line)

    def stop(self) -> None:
        """Cut all clients and remove the socket."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            clients = [*self._clients]
        for client in clients:
            client.close()
        for client in clients:
            client.join(1.0)
        self._thread.join(1.0)
        self._path.unlink(missing_ok=True)
        os.close(self._guard)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # stopped
            client = Client(connection, self._on_request)
            with self._lock:
                self._clients.add(client)
            client.start(self._forget)
            self._on_client(client.tell)

    def _forget(self, client: Client) -> None:
        with self._lock:
            self._clients.discard(client)


def _only_one(path: Path) -> int:
    """Return a descriptor that holds the lock beside ``path``; the kernel gives it up with the process."""
    try:
        handle = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigurationError(f"cannot write next to the socket {path}: {error.strerror}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(handle)
        raise ConfigurationError(f"another gateway serves {path}; stop it first") from error
    return handle


def _listen(path: Path, mode: int) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    path.unlink(missing_ok=True)
    before = os.umask(0o777 & ~mode)
    try:
        listener.bind(str(path))
    except OSError as error:
        listener.close()
        raise ConfigurationError(f"cannot listen on {path}: {error.strerror or error}") from error
    finally:
        os.umask(before)
    listener.listen(16)
    return listener
