"""Forgets history older than five minutes, once per interval however many API servers run.

As kube-apiserver does (etcd3/compact.go): a key outside /registry/ is the turn. Each server remembers the
key's revision and, an interval later, writes the key if it still has that revision. Whoever succeeds compacts
to the revision remembered, which by then is an interval old; the others only remember the new revision. The
revision compacted to is always that of a write of this key, never of a deletion: etcd loses the event of a
deletion at the very revision it compacts to (fixed in 3.5.18).
"""

from __future__ import annotations

import logging
import threading

from minik8s_modules.base.clock import Clock, SystemClock
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.store.errors import FutureRevision, KeyExists, KeyMissing, StaleWrite
from minik8s_modules.store.interface import Store

log = logging.getLogger(__name__)

TURN_KEY = "/minik8s/compaction"
INTERVAL_S = 300.0  # kube-apiserver's --etcd-compaction-interval


class Compactor:
    """Compacts ``store`` every ``interval_s``; what is kept is at least one interval old.

    Run it in a thread of every API server: ``Thread(target=compactor.run, args=(stop,))``.
    """

    def __init__(self, store: Store, interval_s: float = INTERVAL_S, clock: Clock | None = None) -> None:
        self._store = store
        self._interval_s = interval_s
        self._clock = clock or SystemClock()
        self._seen = 0  # revision of the key at the last turn; 0: never seen

    def run(self, stop: threading.Event) -> None:
        """Take turns until ``stop`` is set."""
        while True:
            try:
                self.turn()
            except TemporaryError as error:
                log.warning("history is not compacted this time: %s", error)
            except Exception:  # a loop's edge; the next turn starts from what the store says
                log.exception("compaction failed; trying again in %g s", self._interval_s)
            if self._clock.wait(stop, self._interval_s):
                return

    def turn(self) -> int:
        """Take one turn; return the revision compacted to, 0 if it is the first or another server's."""
        due = self._seen
        try:
            self._seen = self._take_turn()
        except (KeyExists, KeyMissing, StaleWrite):
            entry = self._store.get(TURN_KEY)
            self._seen = entry.revision if entry else 0
            return 0
        if due:
            try:
                self._store.compact(due)
            except FutureRevision:  # the store was emptied or went back since
                return 0
            log.info("compacted the store's history up to revision %d", due)
        return due

    def _take_turn(self) -> int:
        value = str(self._seen).encode()
        if self._seen:
            return self._store.update(TURN_KEY, value, self._seen)
        return self._store.create(TURN_KEY, value)
