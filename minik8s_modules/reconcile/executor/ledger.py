"""Which item is where: waiting, sent to which run, partly answered. Pure; `runner.py` acts on what it returns.

Promises kept here: exactly one outcome per item; a host's items go out in order and never to two runs at once
(while an old run drains, items of its busy hosts wait); an item whose run died goes out once more, then fails.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.reconcile.executor.results import BadResult, check_result
from minik8s_modules.reconcile.values.items import Outcome, OutcomeStatus, WorkItem

# one retry: an item that ends the run it is sent to would else end one after the other
ATTEMPTS = 2


class Answer(NamedTuple):
    """The strategy's last word on an item; results of ``sections`` may still be on their way."""

    status: OutcomeStatus
    message: str
    sections: tuple[str, ...]


class Entry:
    """One item between submit and outcome; ``run`` is the run it was sent to, None while it waits."""

    def __init__(self, item: WorkItem) -> None:
        self.item = item
        self.run: int | None = None
        self.attempts = 0
        self.cancelled = False
        self.results: dict[str, JsonObject] = {}
        self.faults: list[str] = []
        self.seen: set[str] = set()
        self.answer: Answer | None = None
        self.answered_at = 0.0


class Host:
    """One node's items: those sent (all to ``run``) and those that wait, in order."""

    def __init__(self) -> None:
        self.run: int | None = None
        self.sent: dict[str, Entry] = {}
        self.waiting: deque[Entry] = deque()


class Ledger:
    """All unanswered items; not thread-safe, the runner holds its lock."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._hosts: dict[str, Host] = {}

    def __len__(self) -> int:
        """Return how many items have no outcome yet."""
        return len(self._entries)

    def add(self, item: WorkItem) -> None:
        """Take ``item`` in; it waits until ``sendable`` gives it out.

        Raises:
            ValueError: an unanswered item has this id already.
        """
        if item.id in self._entries:
            raise ValueError(f"item {item.id} was submitted already and has no outcome yet")
        entry = self._entries[item.id] = Entry(item)
        self._hosts.setdefault(item.node, Host()).waiting.append(entry)

    def sendable(self, run: int, node: str | None = None) -> list[WorkItem]:
        """Mark as sent to ``run``, and return, all items that may go there now (of ``node`` only, if given)."""
        names = [node] if node else list(self._hosts)
        return [item for name in names if name in self._hosts for item in self._send(self._hosts[name], run)]

    def _send(self, host: Host, run: int) -> list[WorkItem]:
        if host.sent and host.run != run:
            return []  # the old run is still at work there
        host.run = run
        items = []
        while host.waiting:
            entry = host.waiting.popleft()
            entry.run, entry.attempts = run, entry.attempts + 1
            host.sent[entry.item.id] = entry
            items.append(entry.item)
        return items

    def result(self, run: int, item_id: str, section: str, result: JsonObject) -> Outcome | None:
        """Record one section's event; return the outcome if it was the last thing missing."""
        entry = self._entry(run, item_id)
        if entry is None or section not in entry.item.sections:
            return None
        entry.seen.add(section)
        try:
            # a node is not trusted: what it reports has to have the shape of a result before anybody decides by it
            entry.results[section] = check_result(section, result)
        except BadResult as error:
            entry.faults.append(f"{section}: {error}")
        return self._complete(entry)

    def answered(self, run: int, item_id: str, answer: Answer, now_s: float) -> Outcome | None:
        """Record the strategy's answer; return the outcome if all its sections' results are here."""
        entry = self._entry(run, item_id)
        if entry is None:
            return None
        entry.answer, entry.answered_at = answer, now_s
        return self._complete(entry)

    def overdue(self, before_s: float) -> list[Outcome]:
        """Return failed outcomes for items answered before ``before_s`` whose results never came."""
        late = [entry for entry in self._entries.values() if entry.answer and entry.answered_at < before_s]
        for entry in late:
            missing = sorted(set(entry.answer.sections if entry.answer else ()) - entry.seen)
            entry.faults.append(f"the runner event of section {', '.join(missing)} was lost")
        return [self._close(entry) for entry in late]

    def awaits_results(self) -> bool:
        """Return whether an item has been answered whose results are still missing."""
        return any(entry.answer for entry in self._entries.values())

    def cancel(self, item_id: str) -> Outcome | int | None:
        """Return the outcome of an item that waited, or the run to cancel a sent one in, or None (unknown)."""
        entry = self._entries.get(item_id)
        if entry is None:
            return None
        entry.cancelled = True
        if entry.run is not None:
            return entry.run
        self._hosts[entry.item.node].waiting.remove(entry)
        return self._close(entry, Answer("cancelled", "cancelled before it was sent", ()))

    def run_ended(self, run: int, reason: str) -> list[Outcome]:
        """Put what was sent to ``run`` back in front of its hosts' queues; return what has failed for good."""
        outcomes = []
        for host in list(self._hosts.values()):
            lost = list(host.sent.values()) if host.run == run else []
            if lost:
                host.sent.clear()
                host.run = None
            for entry in reversed(lost):
                host.waiting.appendleft(entry)
            outcomes += [outcome for entry in lost if (outcome := self._lost(entry, reason))]
        return outcomes

    def start_failed(self, reason: str) -> list[Outcome]:
        """No run could be started: count an attempt for all that wait; return what has failed for good."""
        waiting = [entry for entry in self._entries.values() if entry.run is None]
        for entry in waiting:
            entry.attempts += 1
        return [outcome for entry in waiting if (outcome := self._lost(entry, reason))]

    def close_all(self, message: str) -> list[Outcome]:
        """Return every item left as cancelled."""
        return [self._close(entry, Answer("cancelled", message, ())) for entry in list(self._entries.values())]

    def _entry(self, run: int, item_id: str) -> Entry | None:
        entry = self._entries.get(item_id)
        return entry if entry is not None and entry.run == run else None

    def _lost(self, entry: Entry, reason: str) -> Outcome | None:
        entry.run, entry.answer = None, None
        entry.results.clear()
        entry.seen.clear()
        entry.faults.clear()
        if entry.cancelled:
            return self._close(entry, Answer("cancelled", "cancelled; its run ended", ()))
        if entry.attempts >= ATTEMPTS:
            return self._close(entry, Answer("failed", f"tried {entry.attempts} times: {reason}", ()))
        return None

    def _complete(self, entry: Entry) -> Outcome | None:
        if entry.answer is None or not entry.seen.issuperset(entry.answer.sections):
            return None
        return self._close(entry)

    def _close(self, entry: Entry, answer: Answer | None = None) -> Outcome:
        answer = answer or entry.answer or Answer("failed", "no answer", ())
        status = "failed" if entry.faults and answer.status == "ok" else answer.status
        message = "; ".join(
            filter(None, [answer.message, *(fault for fault in entry.faults if fault not in answer.message)])
        )
        item = entry.item
        self._entries.pop(item.id, None)
        self._forget(entry)
        return Outcome(item.id, item.node, status, entry.results, message, item.purpose)

    def _forget(self, entry: Entry) -> None:
        host = self._hosts.get(entry.item.node)
        if host is None:
            return
        host.sent.pop(entry.item.id, None)
        if entry in host.waiting:
            host.waiting.remove(entry)
        if not host.sent and not host.waiting:
            del self._hosts[entry.item.node]
