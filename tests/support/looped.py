"""A loop of errands whose thread is the test's."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Callable
from typing import Any

from minik8s_modules.base.errands import Errands


class Looped:
    """Runs errands; ``results`` has what each returned, or its error, by name."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)  # noqa: FBT003 - the standard library's signature
        self._epoll.register(self._read, select.EPOLLIN)
        self.errands = Errands(self._epoll, self._wake)
        self.results: dict[str, Any] = {}
        self.ended: list[str] = []
        self.wakes = 0

    def _wake(self) -> None:
        self.wakes += 1
        self._write.send(b"x")

    def begin(self, name: str, work: Callable[[], Any]) -> None:
        """Begin an errand."""

        def run() -> None:
            try:
                self.results[name] = work()
            except Exception as error:  # noqa: BLE001 - the test looks at it
                self.results[name] = error

        self.errands.run(run, lambda: self.ended.append(name))

    def turn(self, most_s: float = 0.1) -> None:
        """Do what there is to do, after waiting for it up to ``most_s``."""
        for descriptor, _ in self._epoll.poll(most_s):
            if descriptor == self._read.fileno():
                with contextlib.suppress(BlockingIOError):
                    self._read.recv(4096)
            else:
                self.errands.on_ready(descriptor)
        self.errands.end_late()
        self.errands.end_turn()

    def until(self, condition: Callable[[], Any], timeout_s: float = 60.0) -> None:
        """Take turns until ``condition`` is true."""
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline_s, f"it did not come true in time; {self.results}"
            self.turn()

    def close(self) -> None:
        """End all errands, and the loop."""
        self.errands.end()
        for end in (self._epoll, self._read, self._write):
            end.close()
