"""A thread that puts something right again and again: whenever what it watches changes, and from time to time."""

from __future__ import annotations

import logging
import threading

from minik8s_modules.api.errors import StatusError
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.base.backoff import Backoff
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.store.cache import Subscription
from minik8s_modules.store.cached import CacheEvent

log = logging.getLogger(__name__)

STOP_S, NOT_READY_S = 5.0, 1.0


class Rounds:
    """Does ``_round`` until ``stop``, once the cache is ready; ``done`` once one has ended well.

    Args:
        backend: whose cache tells of changes.
        name: of the thread.
        subject: what is put right, in logs, as in "policies".
        prefixes: of the keys that ``_on_event`` is told of.
        retry: how long to wait after a round that failed.
    """

    def __init__(self, backend: Backend, name: str, subject: str, prefixes: tuple[str, ...], retry: Backoff) -> None:
        self._backend, self._subject, self._prefixes, self._retry = backend, subject, prefixes, retry
        self._stopping, self._wake, self._cut = threading.Event(), threading.Event(), threading.Event()
        self._cut.set()  # nothing is followed yet
        self._subscriptions: list[Subscription] = []
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.done = False

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        self._wake.set()
        self._thread.join(timeout=STOP_S)

    def _round(self) -> float:
        """Put right what is not, and return after how many seconds to look again, whatever happens."""
        raise NotImplementedError

    def _on_event(self, _event: CacheEvent) -> None:
        self._wake.set()

    def _rest(self, wait_s: float) -> None:
        self._wake.wait(wait_s)

    def _run(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            self._wake.clear()
            wait_s = NOT_READY_S
            try:
                if self._backend.cache.wait_ready(STOP_S):
                    self._follow()
                    wait_s = self._round()
                    self.done, failures = True, 0
            except (TemporaryError, StatusError) as error:
                failures += 1
                log.warning("%s cannot be brought up to date yet: %s", self._subject, error)
            except Exception:  # a loop's edge: the next round tries again
                failures += 1
                log.exception("%s could not be brought up to date", self._subject)
            self._rest(self._retry.delay_s(failures) or wait_s)

    def _follow(self) -> None:
        """Follow the prefixes, again if the cache has cut one off; the round that comes next sees what was missed."""
        if not self._cut.is_set():
            return
        self._cut.clear()
        for subscription in self._subscriptions:
            subscription.cancel()
        self._subscriptions.clear()
        cache = self._backend.cache
        try:
            for prefix in self._prefixes:
                self._subscriptions.append(cache.subscribe(prefix, cache.revision, self._on_event, on_end=self._on_end))
        except Exception:
            self._cut.set()
            raise

    def _on_end(self) -> None:
        self._cut.set()
        self._wake.set()
