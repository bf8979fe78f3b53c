"""Samples one node every 10 s into its rings and tells the reconciler; one thread a node, away from its events."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import Clock, SystemClock
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.gateway.metrics import NodeMetrics, Reading

log = logging.getLogger(__name__)
SAMPLE_S = 10.0
IMAGES_EVERY = 6
"""Every sixth sample lists the images too: a minute."""


class Source(Protocol):
    """What is sampled; ``metrics_sources.Source``."""

    def read(self) -> Reading:
        """Return everything at once; TemporaryError while the node does not answer."""

    def images(self) -> list[JsonObject]:
        """Return the node's images."""

    def close(self) -> None:
        """Close the connections."""


class Sampler:
    """``source()`` makes the source once the node can be reached, None before."""

    def __init__(
        self,
        name: str,
        source: Callable[[], Source | None],
        publish: Callable[[JsonObject], None],
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self.metrics = NodeMetrics()
        self._make = source
        self._source: Source | None = None
        self._publish = publish
        self._clock = clock or SystemClock()
        self._number = 0
        self._images: JsonObject | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"metrics-{name}", daemon=True)

    def start(self) -> None:
        """Sample from now on."""
        self._thread.start()

    def stop(self, timeout_s: float = 3.0) -> None:
        """End; a thread in a call to a dead node is left behind after ``timeout_s``."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def tell(self, publish: Callable[[JsonObject], None]) -> None:
        """Give ``publish`` what is known."""
        for message in (self._images, self.metrics.signals_message(self.name)):
            if message is not None:
                publish(message)

    def sample(self) -> None:
        """Take one sample; TemporaryError while the node does not answer."""
        if self._source is None:
            self._source = self._make()
        if self._source is None:
            return
        self.metrics.add(self._source.read())
        if self._number % IMAGES_EVERY == 0:
            self._images = {"op": "image-list", "node": self.name, "images": self._source.images()}
            self._publish(self._images)
        self._number += 1
        usage = self.metrics.signals_message(self.name)
        if usage is not None:
            self._publish(usage)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.sample()
            except TemporaryError as error:
                log.debug("%s: no sample: %s", self.name, error)
            except Exception:
                log.exception("%s: sampling failed", self.name)
            # the link may come up a moment after the start
            self._clock.wait(self._stop, SAMPLE_S if self._source is not None else 1.0)
        if self._source is not None:
            self._source.close()
