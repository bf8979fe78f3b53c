"""When the cache's reader may let what etcd's watch brings gather, because its own process has written all of it.

Writers show their writes themselves (``WatchCache.wrote``), so what the watch brings of these is only passed over; yet
each event woke the reader, beside the writer's thread, for Python's one interpreter. A lone API server's reader
therefore takes them together, every ``REST_S``. Whoever waits for a revision ends the rest. Once the watch has brought
what nobody here wrote, there is no rest for ``ALONE_S``: another API server renews a Lease more often than that, so
what it writes comes at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

REST_S = 0.5
ALONE_S = 15.0  # presence.LIFE_S, the life of an API server's Lease; it is renewed three times as often
CLAIM_S = 1.0
"""A writer shows a write that the watch brought first within this time; else it was somebody else's."""
MOST_UNCLAIMED = 64


class Rest:
    """See the module's docstring. The cache's lock is around all methods but ``take``; ``now_s`` returns seconds."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._wanted = threading.Event()
        self._unclaimed: dict[int, float] = {}
        self._not_before_s = now_s() + ALONE_S

    def brought(self, revision: int) -> None:
        """Note what the watch has brought before any writer has shown it; of many, some tell enough."""
        if len(self._unclaimed) < MOST_UNCLAIMED:
            self._unclaimed[revision] = self._now_s()

    def claimed(self, revision: int) -> None:
        """Note that a writer of this process has shown a write."""
        self._unclaimed.pop(revision, None)

    def want(self) -> None:
        """End a rest: somebody waits."""
        self._wanted.set()

    def begin(self, *, is_waited_for: bool) -> bool:
        """Return whether the reader may ``take`` a rest now; ``is_waited_for``: somebody waits for a revision."""
        now_s = self._now_s()
        for revision, at_s in list(self._unclaimed.items()):
            if now_s - at_s > CLAIM_S:
                del self._unclaimed[revision]
                self._not_before_s = max(self._not_before_s, at_s + ALONE_S)
        self._wanted.clear()
        return not (is_waited_for or self._unclaimed) and now_s >= self._not_before_s

    def take(self) -> None:
        """Rest, without the lock."""
        self._wanted.wait(REST_S)
