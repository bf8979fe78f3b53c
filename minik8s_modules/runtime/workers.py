"""A controller's shell: threads that sync the keys of a queue; a sync that raises is tried again later.

A thread begins when no other one waits for a key, since most controllers of a cluster have nothing to do, and each
thread has 30 KB. This is the only place of a controller that catches everything: a thread that dies would stop its
work for good.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Generic

from minik8s_modules.api.errors import StatusError
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.runtime.queue import Key, QueueShutDown, WorkQueue

log = logging.getLogger(__name__)


class Workers(Generic[Key]):
    """``count`` threads calling ``sync(key)`` for the keys of ``queue``, for one key never twice at once."""

    def __init__(self, queue: WorkQueue[Key], sync: Callable[[Key], None], name: str, count: int = 1) -> None:
        self._queue = queue
        self._sync = sync
        self._name = name
        self._count = count
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._waiting = 0

    def start(self) -> None:
        """Start the first thread; returns at once.

        Raises:
            RuntimeError: the machine has no room for a thread.
        """
        with self._lock:
            self._begin_one()

    def _begin_one(self) -> None:
        number = len(self._threads)
        thread = threading.Thread(target=self._run, name=f"{self._name}-{number}", daemon=True)
        self._waiting += 1  # before it runs, as it counts down itself
        try:
            thread.start()
        except RuntimeError:  # TasksMax, or no memory
            self._waiting -= 1
            raise
        self._threads.append(thread)  # only now: ``stop`` joins what is here

    def _begin_another(self) -> None:
        try:
            self._begin_one()
        except RuntimeError as error:  # those that run go on; the next key asks again
            log.warning("%s: goes on with %d threads: %s", self._name, len(self._threads), error)

    def stop(self, timeout_s: float = 5.0, *, drop: bool = False) -> None:
        """Shut the queue down and wait for the syncs under way, each at most ``timeout_s`` seconds.

        ``drop`` what is ready, too: who has lost a Lease must write no more, and who comes next lists everything.
        """
        self._queue.shut_down(drop=drop)
        for thread in self._threads:  # also those that begin meanwhile, for what is queued yet
            thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            try:
                key = self._queue.get()
            except QueueShutDown:
                return
            if key is None:
                continue
            with self._lock:
                self._waiting -= 1
                if not self._waiting and len(self._threads) < self._count:
                    self._begin_another()
            self.sync_one(key)
            with self._lock:
                self._waiting += 1

    def sync_one(self, key: Key) -> None:
        """Sync ``key``, which came from ``get``; queue it with back-off on any error."""
        try:
            self._sync(key)
        except (TemporaryError, StatusError) as error:
            delay_s = self._queue.add_rate_limited(key)
            log.info("%s: %s: %s; again in %.2f s", self._name, key, error, delay_s)
        except Exception:  # the loop's edge
            delay_s = self._queue.add_rate_limited(key)
            log.exception("%s: sync of %s failed; again in %.2f s", self._name, key, delay_s)
        else:
            self._queue.forget(key)
        finally:
            self._queue.done(key)
