"""A runner without Ansible, for tests of what stands above: it keeps the promises of `items.Runner` by the same ledger.

One thread realizes all items one after another by calling ``realize``. The suite that the real runner passes
(`tests/integration/executor/test_runner_contract.py`) runs on this one, too.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection
from typing import Any

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.reconcile.executor.ledger import Answer, Ledger
from minik8s_modules.reconcile.values.items import OnOutcome, Outcome, WorkItem

RUN = 1

Realize = Callable[[str, str, JsonObject, bool], JsonObject]
"""(node, section, options, check) → the module's result; raising means that the module failed."""


class FakeRunner:
    """See the module's text.

    Args:
        nodes: names of the inventory; items for other nodes fail.
        realize: plays the modules.
        on_outcome: called once per item, from the fake's thread.
    """

    def __init__(self, nodes: Collection[str], realize: Realize, on_outcome: OnOutcome) -> None:
        self._nodes, self._realize, self._on_outcome = nodes, realize, on_outcome
        self._ledger = Ledger()
        self._queue: deque[WorkItem] = deque()
        self._cancelled: set[str] = set()
        self._change = threading.Condition()
        self._started = self._stopping = False
        self._thread = threading.Thread(target=self._work, name="fake-runner", daemon=True)

    def start(self) -> None:
        """Start; items submitted before go first."""
        with self._change:
            self._started = True
            self._queue.extend(self._ledger.sendable(RUN))
        self._thread.start()

    def submit(self, item: WorkItem) -> None:
        """Queue ``item``; exactly one outcome follows, from the fake's thread.

        Raises:
            ValueError: an item with this id has no outcome yet.
            RuntimeError: the runner has been stopped.
        """
        with self._change:
            if self._stopping:
                raise RuntimeError("the runner has been stopped")
            self._ledger.add(item)
            if self._started:
                self._queue.extend(self._ledger.sendable(RUN, item.node))
            self._change.notify()

    def cancel(self, item_id: str) -> None:
        """Take a waiting item out; a running one ends as cancelled."""
        with self._change:
            found = self._ledger.cancel(item_id)
            if found == RUN:
                self._cancelled.add(item_id)
        if isinstance(found, Outcome):
            self._on_outcome(found)

    def stop(self, timeout_s: float = 10.0) -> None:
        """End after the running item; waiting items come back as cancelled."""
        with self._change:
            self._stopping = True
            self._queue.clear()
            self._change.notify()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        with self._change:
            outcomes = self._ledger.close_all("the runner was stopped")
        for outcome in outcomes:
            self._on_outcome(outcome)

    def _work(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._queue or self._stopping)
                if not self._queue:
                    return
                item = self._queue.popleft()
            outcome = self._run(item)
            if outcome is not None:
                self._on_outcome(outcome)

    def _run(self, item: WorkItem) -> Outcome | None:
        answer = Answer("failed", f"node {item.node} is not in the inventory", ())
        results: dict[str, Any] = {}
        if item.node in self._nodes and item.id not in self._cancelled:
            answer, results = self._play(item)
        if item.id in self._cancelled:
            answer = Answer("cancelled", "cancelled while it ran", ())
        with self._change:
            for section, result in results.items():
                self._ledger.result(RUN, item.id, section, result)
            return self._ledger.answered(RUN, item.id, answer, 0.0)

    def _play(self, item: WorkItem) -> tuple[Answer, dict[str, Any]]:
        results: dict[str, Any] = {}
        for section, request in item.sections.items():
            try:
                results[section] = self._realize(item.node, section, request.options, item.check)
            except Exception as error:  # noqa: BLE001  a module's failure is its item's
                return Answer("failed", f"{section}: {error}", tuple(results)), results
        return Answer("ok", "", tuple(results)), results
