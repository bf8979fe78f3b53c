"""The figures of all workers of a server in one answer, each under its label ``worker``.

Whoever asks for metrics reaches one worker; it asks the others by their sockets (http/board.py), which answer the
server's own user alone. A worker that does not answer in time is left out, as one is that has ended: a sum over workers
would fall then, and look like a counter that began again.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
import threading
import time
from functools import partial

from minik8s_modules.apiserver.http.board import Place
from minik8s_modules.base.metrics import Registry, joined

log = logging.getLogger(__name__)
PATIENCE_S = 2.0
PAUSE_S = 0.1
_CREDENTIALS = struct.Struct("3i")  # struct ucred: process, user, group


class Figures:
    """Tells the others this worker's figures, from a thread, and asks for theirs; a lone worker has no ``place``."""

    def __init__(self, place: Place | None, metrics: Registry) -> None:
        self._place, self._metrics = place, metrics
        answer = partial(self._answer, place.socket) if place is not None else None
        self._thread = threading.Thread(target=answer, name="figures", daemon=True)

    def start(self) -> None:
        """Start the thread; it ends with the process."""
        if self._place is not None:
            self._thread.start()

    def text(self) -> str:
        """Return the figures of all workers that live, in the exposition format."""
        if self._place is None:
            return self._metrics.text()
        told = {str(self._place.number): self._metrics.families()}
        for number, name in self._place.others():
            try:
                told[str(number)] = _asked(name)
            except OSError as error:
                log.info("worker %d does not tell its figures: %s", number, error)
        return joined(told, "worker")

    def _answer(self, listener: socket.socket) -> None:
        while listener.fileno() >= 0:
            try:
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(PATIENCE_S)
                    if _user(connection) == os.geteuid():
                        connection.sendall(self._metrics.families())
            except OSError as error:
                log.info("another worker did not take the figures: %s", error)
                time.sleep(PAUSE_S)  # there may be no descriptor for anybody


def _user(connection: socket.socket) -> int:
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(found)[1])


def _asked(name: str | bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE_S)
        connection.connect(name)
        parts = []
        while part := connection.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)
