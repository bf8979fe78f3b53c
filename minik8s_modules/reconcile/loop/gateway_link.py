"""The reconciler's end of the gateway's socket: JSON lines, reconnected for ever.

After each connect the gateway tells the life and state of its nodes by itself. What is sent while there is
no connection is lost on purpose: whoever sends asks again after ``on_up``, for the gateway's answers are
lost with the connection too.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import orjson

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.backoff import RECONNECT
from minik8s_modules.base.clock import Clock

log = logging.getLogger(__name__)


class Gateway(Protocol):
    """Where pulls and lists are asked for."""

    def send(self, message: JsonObject) -> bool:
        """Send one message; return whether there was a connection to send it on."""


class GatewayLink:
    """Calls, in its own thread, ``on_message`` for each message and ``on_up`` when a connection came (True) or went."""

    def __init__(
        self,
        path: Path,
        on_message: Callable[[JsonObject], None],
        on_up: Callable[[bool], None],
        clock: Clock,
    ) -> None:
        self._path = path
        self._on_message = on_message
        self._on_up = on_up
        self._clock = clock
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gateway", daemon=True)

    def start(self) -> None:
        """Connect from now on."""
        self._thread.start()

    def stop(self) -> None:
        """End the connection and the thread."""
        self._stop.set()
        self._shutdown()
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)

    def send(self, message: JsonObject) -> bool:
        """Send one message; return whether there was a connection to send it on."""
        line = orjson.dumps(message) + b"\n"
        with self._lock:
            if self._socket is None:
                return False
            try:
                self._socket.sendall(line)
            except OSError as error:
                log.info("gateway: %s", error)
                return False
        return True

    def _shutdown(self) -> None:
        with self._lock:
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        failures = 0
        while not self._stop.is_set():
            try:
                self._serve()
                failures = 0
            except OSError as error:
                level = logging.DEBUG if failures else logging.WARNING
                log.log(level, "gateway %s: %s; trying again", self._path, error)
            failures += 1
            self._clock.wait(self._stop, RECONNECT.delay_s(failures))

    def _serve(self) -> None:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(self._path))
            with self._lock:
                self._socket = connection
            log.info("gateway %s: connected", self._path)
            self._on_up(True)  # noqa: FBT003
            with connection.makefile("rb") as stream:
                for line in stream:
                    self._take(line)
        finally:
            with self._lock:
                was_up, self._socket = self._socket is not None, None
            connection.close()
            if was_up:
                self._on_up(False)  # noqa: FBT003

    def _take(self, line: bytes) -> None:
        try:
            message = orjson.loads(line)
            self._on_message(message)
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
            # the gateway passes on what nodes say; one bad message must not end the others
            log.exception("gateway: a message of %d bytes cannot be used", len(line))
