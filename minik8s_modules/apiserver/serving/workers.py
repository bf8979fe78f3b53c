"""What the workers of a server ask each other by their sockets (http/board.py), which answer the server's user alone.

Whoever asks a server for its figures, or whether it is ready, reaches one worker, which asks the others. One that does
not answer in time may have ended, or hang until gunicorn's arbiter replaces it after a minute.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from minik8s_modules.apiserver.http.board import Place
from minik8s_modules.apiserver.serving.health import Check

log = logging.getLogger(__name__)
FIGURES, READY = b"f", b"r"
"""The questions, a byte each."""
OK = b"ok"
PATIENCE_S = 2.0
PAUSE_S = 0.1
_CREDENTIALS = struct.Struct("3i")  # struct ucred: process, user, group


class Workers:
    """Answers the others from a thread, and asks them; a lone worker has no ``place``, and nobody to ask."""

    def __init__(self, place: Place | None, answers: Mapping[bytes, Callable[[], bytes]]) -> None:
        self._place, self._answers = place, answers
        self._thread = threading.Thread(target=self._run, name="workers", daemon=True)

    def start(self) -> None:
        """Start the thread; it ends with the process."""
        if self._place is not None:
            self._thread.start()

    def asked(self, question: bytes) -> Iterator[tuple[int, bytes | None]]:
        """Yield the numbers of the other workers that live, and what they answer: None where they do not in time."""
        for number, name in self._place.others() if self._place is not None else ():
            try:
                yield number, _answer(name, question)
            except OSError as error:
                log.info("worker %d does not answer: %s", number, error)
                yield number, None

    def _run(self) -> None:
        listener = self._place.socket if self._place is not None else None
        while listener is not None and listener.fileno() >= 0:
            try:
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(PATIENCE_S)
                    if _user(connection) == os.geteuid():
                        self._reply(connection)
            except OSError as error:
                log.info("another worker did not take an answer: %s", error)
                time.sleep(PAUSE_S)  # there may be no descriptor for anybody
            except Exception:  # the loop's edge
                log.exception("what another worker asked for could not be told")

    def _reply(self, connection: socket.socket) -> None:
        answer = self._answers.get(connection.recv(1))
        if answer is not None:
            connection.sendall(answer())


def readiness(checks: Mapping[str, Check]) -> Callable[[], bytes]:
    """Return what answers READY: OK, or the first check that fails, and why."""

    def told() -> bytes:
        return next((f"{label}: {why}".encode() for label, check in checks.items() if (why := check())), OK)

    return told


def failure(place: Place, workers: Workers, expected: int) -> str:
    """Return why one of the other workers is not ready, "" where all are.

    Only those count that take connections; at the beginning, all ``expected`` have to. One that takes the place of a
    worker that has ended, or comes with a new configuration, counts once it does, and one that ends no more.
    """
    if (begun := place.begun()) < expected:
        return f"{begun} of {expected} take connections yet"
    for number, answer in workers.asked(READY):
        if answer != OK and place.serves(number):  # which it may do no more
            return f"worker {number} {(answer or b'does not answer').decode('utf-8', 'replace')}"
    return ""


def _user(connection: socket.socket) -> int:
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(found)[1])


def _answer(name: str | bytes, question: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE_S)
        connection.connect(name)
        connection.sendall(question)
        parts = []
        while part := connection.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)
