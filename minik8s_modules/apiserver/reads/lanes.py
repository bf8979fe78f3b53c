"""Writing events beside the hub's thread, where a program outside must be asked about their objects.

Each version of a kind has a lane: a thread that lives as long as there is something to write. What it has written comes
back to the hub in order, and bookmarks go through it too, for they speak of the events before them. So a program that
hangs holds up the watches of that version alone; when it fails, those watches are told so and end.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from minik8s_modules.apiserver.reads.watchers import Stream, Watcher
from minik8s_modules.store.cached import CacheEvent

log = logging.getLogger(__name__)


class Written(NamedTuple):
    """What was written for watchers: lines with their revisions, or the error that ends the watches.

    ``joined``: the watchers wait for these very lines, whatever they have seen.
    """

    watchers: list[Watcher]
    lines: list[tuple[int, bytes]]
    joined: bool
    error: bytes = b""


class Lane:
    """Does jobs in the order they came, in a thread that lives as long as there are any. Jobs raise nothing."""

    def __init__(self) -> None:
        self._jobs: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self._busy = False

    def put(self, job: Callable[[], None]) -> None:
        """Have a job done after those that wait; from any thread."""
        with self._lock:
            self._jobs.append(job)
            if self._busy:
                return
            self._busy = True
        threading.Thread(target=self._run, name="watch-lane", daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    self._busy = False
                    return
                job = self._jobs.popleft()
            job()


class Lanes:
    """See the top of this file; used by the hub's thread. ``done`` takes what was written, from any thread."""

    def __init__(self, done: Callable[[Written], None]) -> None:
        self._done = done
        self._lanes: dict[str, Lane] = {}

    def write(self, stream: Stream, watchers: list[Watcher], events: list[CacheEvent], *, joined: bool = False) -> None:
        """Have events written for watchers of a stream."""

        def job() -> None:
            if any(watcher.sock.fileno() >= 0 for watcher in watchers):  # else all are gone meanwhile
                self._done(_written(stream, watchers, events, joined=joined))

        self._lane(stream).put(job)

    def bookmark(self, watcher: Watcher, revision: int) -> None:
        """Have a bookmark follow the events that it speaks of."""
        written = Written([watcher], [(revision, watcher.stream.bookmark(revision))], joined=True)
        self._lane(watcher.stream).put(lambda: self._done(written))

    def _lane(self, stream: Stream) -> Lane:
        return self._lanes.setdefault(stream.lane, Lane())


def _written(stream: Stream, watchers: list[Watcher], events: list[CacheEvent], *, joined: bool) -> Written:
    try:
        stream.prepare(events)
        return Written(watchers, [(event.revision, stream.encode(event)) for event in events], joined)
    except Exception as error:  # noqa: BLE001 - the lane outlives it; these watches end with it, and their clients list
        log.warning("events of %s could not be written: %s", stream.topic, error)
        return Written(watchers, [], joined, stream.failed(error))
