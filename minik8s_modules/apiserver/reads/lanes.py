"""Writing events beside the hub's thread, where a program outside must be asked about their objects.

Each version of a kind has a lane: a thread that lives as long as there is something to write. What it has written comes
back to the hub in order, and bookmarks go through it too, for they speak of the events before them. So a program that
hangs holds up the watches of that version alone; when it fails, those watches are told so and end.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple

from minik8s_modules.apiserver.reads.watchers import Stream, Watcher
from minik8s_modules.store.cached import CacheEvent

log = logging.getLogger(__name__)

# half of what a watcher may leave unread (BUFFER_BYTES), for it is sent at once: who reads must not be taken for slow
MOST_BYTES = 8 * 1024 * 1024
# an event costs so much, however small its object
_LEAST_BYTES = 1024
# so many jobs may wait before those of watchers that are gone are looked for
_MANY = 100


class Written(NamedTuple):
    """What was written for watchers: lines with their revisions, or the error that ends the watches.

    ``joined``: the watchers wait for these very lines, whatever they have seen.
    """

    watchers: list[Watcher]
    lines: list[tuple[int, bytes]]
    joined: bool
    error: bytes = b""


class _Job:
    """Something to write for watchers of a stream; ``bookmark`` is its revision, and there are no events then."""

    def __init__(
        self, stream: Stream, watchers: list[Watcher], events: list[CacheEvent], *, joined: bool, bookmark: int = 0
    ) -> None:
        self.stream, self.watchers, self.events = stream, watchers, [*events]
        self.joined, self.bookmark = joined, bookmark
        self.bytes = 0 if joined else sum(max(len(event.data), _LEAST_BYTES) for event in events)

    def is_wanted(self) -> bool:
        """Return whether any of the watchers is still there."""
        return any(watcher.sock.fileno() >= 0 for watcher in self.watchers)

    def take(self, later: _Job) -> None:
        """Do what ``later`` is to do, too; its watchers are those of now."""
        self.watchers = later.watchers
        self.events += later.events
        self.bytes += later.bytes


class Lane:
    """Does jobs in the order they came, in a thread that lives as long as there are any.

    Args:
        do: does one; raises nothing.
    """

    def __init__(self, do: Callable[[_Job], None]) -> None:
        self._do = do
        self._jobs: deque[_Job] = deque()
        self._last: dict[Hashable, _Job] = {}  # of each stream
        self._waiting: dict[Hashable, int] = {}  # bytes of each stream
        self._many = _MANY
        self._lock = threading.Lock()
        self._busy = False

    def put(self, job: _Job) -> bool:
        """Have a job done after those of its stream that wait, or with the last of them.

        False: too much waits, and all that waits for the stream is dropped with it.
        """
        key = job.stream.key
        with self._lock:
            waiting = self._waiting.get(key, 0)
            if waiting and job.bytes and waiting + job.bytes > MOST_BYTES:
                self._keep(each for each in self._jobs if each.stream.key != key)
                return False
            self._waiting[key] = waiting + job.bytes
            last = self._last.get(key)
            if last is not None and not job.joined and not last.joined:
                last.take(job)
                return True
            self._jobs.append(job)
            self._last[key] = job
            if len(self._jobs) > self._many:
                self._keep(each for each in self._jobs if each.is_wanted())
                self._many = 2 * len(self._jobs) + _MANY
            if self._busy:
                return True
            self._busy = True
        threading.Thread(target=self._run, name="watch-lane", daemon=True).start()
        return True

    def _keep(self, jobs: Iterable[_Job]) -> None:
        self._jobs = deque(jobs)
        self._last = {job.stream.key: job for job in self._jobs}
        self._waiting = dict.fromkeys(self._last, 0)
        for job in self._jobs:
            self._waiting[job.stream.key] += job.bytes

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    self._busy = False
                    return
                job = self._jobs.popleft()
                self._waiting[job.stream.key] -= job.bytes
                if self._last[job.stream.key] is job:
                    del self._last[job.stream.key], self._waiting[job.stream.key]
            self._do(job)


class Lanes:
    """See the top of this file; used by the hub's thread. ``done`` takes what was written, from any thread."""

    def __init__(self, done: Callable[[Written], None]) -> None:
        self._done = done
        self._lanes: dict[str, Lane] = {}

    def write(self, stream: Stream, watchers: list[Watcher], events: list[CacheEvent], *, joined: bool = False) -> bool:
        """Have events written for watchers of a stream; False: so much waits already that they are to list again."""
        return self._put(_Job(stream, watchers, events, joined=joined))

    def bookmark(self, watcher: Watcher, revision: int) -> None:
        """Have a bookmark follow the events that it speaks of."""
        self._put(_Job(watcher.stream, [watcher], [], joined=True, bookmark=revision))

    def _put(self, job: _Job) -> bool:
        return self._lanes.setdefault(job.stream.lane, Lane(self._do)).put(job)

    def _do(self, job: _Job) -> None:
        if job.bookmark:
            line = (job.bookmark, job.stream.bookmark(job.bookmark))
            self._done(Written(job.watchers, [line], joined=True))
        elif job.is_wanted():  # else all are gone meanwhile
            self._done(_written(job.stream, job.watchers, job.events, joined=job.joined))


def _written(stream: Stream, watchers: list[Watcher], events: list[CacheEvent], *, joined: bool) -> Written:
    try:
        stream.prepare(events)
        return Written(watchers, [(event.revision, stream.encode(event)) for event in events], joined)
    except Exception as error:  # noqa: BLE001 - the lane outlives it; these watches end with it, and their clients list
        log.warning("events of %s could not be written: %s", stream.topic, error)
        return Written(watchers, [], joined, stream.failed(error))
