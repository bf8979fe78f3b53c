"""Whether a node that announces addresses still answers, told within seconds: others are to take them over.

Docker is asked every ten seconds, and a busy dockerd may take long; here one small question goes over a channel of its
own several times a second, only to nodes that somebody asks for. A node that has not answered for ``SILENT_S`` is
silent; it counts as answering again once it has done so for ``CALM_S`` without a gap, so that one that comes and goes
does not move addresses each time. That a slow machine is found silent costs the connections through it, nothing else.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from minik8s_modules.base.clock import Clock, SystemClock
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.gateway import messages

log = logging.getLogger(__name__)

PERIOD_S = 0.3
SILENT_S, CALM_S = 1.0, 10.0


class Beating(Protocol):
    """The way to a node, as hearts need it."""

    def beat(self, within_s: float) -> None:
        """Return when the node has answered.

        Raises:
            NodeUnreachable: it has not, within so many seconds.
        """

    def end_beats(self) -> None:
        """Give up what beats go over."""


class Heart:
    """Asks one node; publishes ``beat`` when it falls silent or is back, and first of all how it is."""

    def __init__(
        self,
        name: str,
        way: Beating,
        publish: Callable[[dict[str, object]], None],
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self._way, self._publish, self._clock = way, publish, clock or SystemClock()
        self._answered = self._clock.monotonic()
        self._calm_since: float | None = None
        self._silent: bool | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"heart-{name}", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=3 * SILENT_S)
        self._way.end_beats()

    def tell(self, publish: Callable[[dict[str, object]], None]) -> None:
        """Give ``publish`` what is known."""
        if self._silent is not None:
            publish(messages.beat(self.name, silent=self._silent))

    def ask(self) -> None:
        """Ask once, and tell what has changed."""
        now = self._clock.monotonic()
        try:
            self._way.beat(SILENT_S)
        except TemporaryError as error:
            log.debug("%s: %s", self.name, error)
            self._calm_since = None
            # one that has never answered may be on its way: who has just begun to listen waits longer
            if self._clock.monotonic() - self._answered >= (CALM_S if self._silent is None else SILENT_S):
                self._become(silent=True)
            return
        self._answered = self._clock.monotonic()
        if self._calm_since is None:
            self._calm_since = now
        if self._silent is None or self._answered - self._calm_since >= CALM_S:
            self._become(silent=False)

    def _become(self, *, silent: bool) -> None:
        if self._silent is not silent:
            self._silent = silent
            log.info("%s %s", self.name, "is silent" if silent else "answers")
            self._publish(messages.beat(self.name, silent=silent))

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.ask()
            except Exception:
                log.exception("%s: asking whether it answers failed", self.name)
            self._clock.wait(self._stop, PERIOD_S)
