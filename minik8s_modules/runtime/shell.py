"""The shell of a controller that has copies of its own: informers queue keys, workers call ``sync`` with them.

For controllers beside the workloads, which share their copies (``controller.py``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic

from minik8s_modules.api.kinds import Kind
from minik8s_modules.base.clock import Clock, SystemClock
from minik8s_modules.client.informer import Handler, Informer
from minik8s_modules.client.interface import Source
from minik8s_modules.runtime.queue import Key, WorkQueue
from minik8s_modules.runtime.workers import Workers


class Shell(ABC, Generic[Key]):
    """Derive from it, ``follow`` kinds, and write ``sync``, which is called again, later, when it raises.

    Args:
        client: what informers follow.
        name: of the threads, and in the log.
        clock: of the queue and the informers.
        workers: how many keys may be synced side by side.
    """

    def __init__(self, client: Source, name: str, clock: Clock | None = None, workers: int = 1) -> None:
        self._clock = clock or SystemClock()
        self._queue: WorkQueue[Key] = WorkQueue(self._clock)
        self._followed = client
        self._informers: list[Informer] = []
        self._workers = Workers(self._queue, self.sync, name, workers)

    @abstractmethod
    def sync(self, key: Key) -> None:
        """Make what is there as it is to be, for one key."""

    def follow(self, kind: Kind, handler: Handler, namespace: str = "", field_selector: str = "") -> Informer:
        """Return an informer that lives as long as the shell; ``handler`` is told of each change, and queues keys."""
        informer = Informer(self._followed, kind, namespace, field_selector, clock=self._clock)
        informer.add_handler(handler)
        self._informers.append(informer)
        return informer

    def start(self) -> None:
        """Begin; returns at once."""
        self._workers.start()
        for informer in self._informers:
            informer.start()

    def stop(self) -> None:
        """End; waits for the syncs under way."""
        for informer in self._informers:
            informer.stop()
        self._workers.stop(drop=True)
