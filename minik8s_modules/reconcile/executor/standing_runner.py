"""One runner for all elections of a daemon, so that whoever is elected finds a play that has started.

A play takes 1 to 2 s to start, on a slow machine a minute, and a daemon that lost its Lease to a slow API server leads
again some seconds later. The runner stays; each election has a turn with it, whose items end with the turn.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.reconcile.values.items import OnOutcome, Outcome, Runner, WorkItem

log = logging.getLogger(__name__)

END_S = 10.0  # what runs may end by itself for so long after the turn's end
CANCEL_S = 5.0


class StandingRunner:
    """Keeps the runner that ``make`` makes; one turn at a time."""

    def __init__(self, make: Callable[[OnOutcome], Runner]) -> None:
        self._make = make
        self._lock = threading.RLock()
        self._turn: Turn | None = None
        self._started = False
        self.runner = make(self._on_outcome)

    def warm_up(self) -> None:
        """Start the runner before it is needed, if it can be; otherwise the first turn says what is wrong."""
        try:
            self.start()
        except ConfigurationError as error:
            log.info("the play is not started before the election: %s", error)

    def start(self) -> None:
        """Start the runner unless it was started. Raises as the runner does."""
        with self._lock:
            if not self._started:
                self.runner.start()
                self._started = True

    def turn(self, on_outcome: OnOutcome) -> Turn:
        """Return the runner for one election; outcomes of its items go to ``on_outcome``."""
        self._turn = Turn(self, on_outcome)
        return self._turn

    def renew(self) -> None:
        """End the runner with all it does, and start another."""
        with self._lock:
            self.runner.stop()
            self.runner = self._make(self._on_outcome)
            self._started = False
            self.start()

    def stop(self) -> None:
        """End the runner."""
        with self._lock:
            if self._started:
                self.runner.stop()

    def _on_outcome(self, outcome: Outcome) -> None:
        if self._turn is not None:
            self._turn.take(outcome)


class Turn:
    """A ``Runner`` that ends with its election and leaves the play to the next one."""

    def __init__(self, standing: StandingRunner, on_outcome: OnOutcome) -> None:
        self._standing, self._on_outcome = standing, on_outcome
        self._change = threading.Condition()
        self._items: dict[str, str] = {}  # node by id of what has no outcome yet, in the order of submission
        self._started = self._ended = False

    def start(self) -> None:
        """Start the runner where it does not run yet. Raises as the runner does."""
        self._started = True
        self._standing.start()

    def submit(self, item: WorkItem) -> None:
        """Queue ``item``; exactly one outcome follows, from another thread.

        Raises:
            ValueError: an item with this id has no outcome yet, or its options are not JSON.
            RuntimeError: the turn is over.
        """
        with self._change:
            if self._ended:
                raise RuntimeError("the runner has been stopped")
            is_new = item.id not in self._items
            self._items.setdefault(item.id, item.node)
        try:
            self._standing.runner.submit(item)
        except BaseException:
            if is_new:
                self._forget(item.id)
            raise

    def cancel(self, item_id: str) -> None:
        """Take a waiting item out, or end the worker of a running one; unknown ids are ignored."""
        if item_id in self._items:
            self._standing.runner.cancel(item_id)

    def take(self, outcome: Outcome) -> None:
        """Pass on the outcome of an item."""
        try:
            self._on_outcome(outcome)
        finally:
            self._forget(outcome.id)

    def stop(self, timeout_s: float = END_S) -> None:
        """Cancel what waits, let what runs end for ``timeout_s`` at most, then cancel it as well."""
        with self._change:
            self._ended = True
            items = dict(self._items)
        first = {node: item for item, node in reversed(items.items())}
        self._cancel(item for item, node in items.items() if not self._started or first[node] != item)
        if self._wait(timeout_s):
            return
        self._cancel(list(self._items))
        if not self._wait(CANCEL_S):
            log.warning("items do not end: the play is started again")
            self._standing.renew()

    def _cancel(self, items: Iterable[str]) -> None:
        for item in items:
            self._standing.runner.cancel(item)

    def _wait(self, timeout_s: float) -> bool:
        with self._change:
            return self._change.wait_for(lambda: not self._items, timeout_s)

    def _forget(self, item_id: str) -> None:
        with self._change:
            self._items.pop(item_id, None)
            self._change.notify_all()
