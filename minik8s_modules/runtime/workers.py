"""A controller's shell: threads that sync the keys of a queue; a sync that raises is tried again later.

This is the only place of a controller that catches everything: a thread that dies would stop its work for
good.
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
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-{number}", daemon=True) for number in range(count)
        ]

    def start(self) -> None:
        """Start the threads; returns at once."""
        for thread in self._threads:
            thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Shut the queue down and wait for the syncs under way, each at most ``timeout_s`` seconds."""
        self._queue.shut_down()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            try:
                key = self._queue.get()
            except QueueShutDown:
                return
            if key is not None:
                self.sync_one(key)

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
