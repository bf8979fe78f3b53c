"""The play's end of its workers: what each of them runs, and which wait for their host's next item."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
from collections import OrderedDict
from typing import Any

from minik8s_modules.plugins.live.items import Item
from minik8s_modules.plugins.live.worker import LENGTH, FrameReader, ItemWorker

WAIT_S = 3.0  # for a host's next item: those of a pod's start come within a second
MAX_ITEMS = 200  # of one worker, which then makes room for a new one with nothing left over
MAX_REQUEST_BYTES = 48 << 10  # an empty pipe takes them at once; a larger item gets a worker of its own


class Worker:
    """One forked worker, and the item it runs, if any."""

    def __init__(self, host: Any, stamp: object, process: ItemWorker, results: int, requests: int) -> None:
        os.set_blocking(requests, False)
        self.host, self.stamp, self.process, self.reader = host, stamp, process, FrameReader(results)
        self.item: Item | None = None
        self.sections: list[str] = []
        self.left: list[str] = []
        self.status, self.message = "ok", ""
        self._requests, self._items = requests, 0

    def begin(self, item: Item, sections: list[str]) -> None:
        """It runs the ``sections`` of ``item`` from now on."""
        self.item, self.sections, self.left = item, sections, list(sections)
        self.status, self.message = "ok", ""
        self._items += 1

    def may_go_on(self) -> bool:
        """Return whether it may be given another item once this one is answered."""
        return self.status == "ok" and self._items < MAX_ITEMS

    def send(self, item: Item) -> bool:
        """Give it its next item; False when it cannot take it, and has been ended."""
        body = pickle.dumps(item, pickle.HIGHEST_PROTOCOL)
        if len(body) > MAX_REQUEST_BYTES:
            self.end()
            return False
        frame = LENGTH.pack(len(body)) + body
        with contextlib.suppress(OSError):  # it has died, or its pipe is smaller than pipes are
            if os.write(self._requests, frame) == len(frame):
                return True
        self.kill()
        return False

    def end(self) -> None:
        """Have it end by itself, when it has done what it does."""
        if self._requests >= 0:
            with contextlib.suppress(OSError):
                os.write(self._requests, LENGTH.pack(0))

    def kill(self) -> None:
        """End it and what it started, at once; the node's module dies with its caller."""
        for end in (os.killpg, os.kill):  # before its setsid() it leads no group yet
            with contextlib.suppress(ProcessLookupError):
                end(self.process.pid, signal.SIGKILL)
                return

    def bury(self) -> int | None:
        """Close what is left of it, whose pipe has ended, and return its exit code."""
        os.close(self.reader.fd)
        os.close(self._requests)
        self._requests = -1
        self.process.join(1)  # its pipe is closed: it is exiting
        if self.process.exitcode is None:
            self.kill()
            self.process.join()
        code: int | None = self.process.exitcode
        self.process.close()
        return code


class WaitingWorkers:
    """At most ``limit`` workers that wait for their host's next item, one a host, each for some seconds."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._workers: OrderedDict[str, tuple[Worker, float]] = OrderedDict()

    def put(self, worker: Worker, now: float) -> None:
        """Keep ``worker`` for its host's next item; another one ends where there are too many."""
        self._workers[worker.host.name] = worker, now + WAIT_S
        if len(self._workers) > self._limit:
            _, (oldest, _) = self._workers.popitem(last=False)
            oldest.end()

    def take(self, host: str) -> Worker | None:
        """Return the host's worker, which waits no longer."""
        worker, _ = self._workers.pop(host, (None, 0.0))
        return worker

    def timeout(self, now: float) -> float | None:
        """Return in how many seconds the next one has waited enough; None when none waits."""
        return next((max(0.0, until - now) for _, until in self._workers.values()), None)

    def end(self, now: float | None = None) -> None:
        """End those that have waited enough by ``now``, or all."""
        while self._workers:
            worker, until = next(iter(self._workers.values()))
            if now is not None and until > now:
                return
            del self._workers[worker.host.name]
            worker.end()

    def forget(self, worker: Worker) -> None:
        """``worker`` has died."""
        if self._workers.get(worker.host.name, (None, 0.0))[0] is worker:
            del self._workers[worker.host.name]
