"""Whole requests in line for a thread: accounts take turns, and none has more than its share of the threads.

Threads are scarce twice: there is a fixed number, and those that compute take Python's one interpreter from each other.
A request that waits here costs memory only. When a user's requests have all the threads that one user may have, the
next one's go first, however many of the former's there are.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Mapping
from queue import SimpleQueue
from typing import Generic, TypeVar

from minik8s_modules.apiserver.intake.limits import STRANGER, SYSTEM, USER, Account

# Shares of the threads: of one account, and of all accounts of a rank. Together the last eighth is the system's: its
# daemons are answered even when all users, or all addresses, flood at once. One user has few, because those that
# compute delay everybody: while 300 connections of one user sent GETs, another user's took 79 ms (median) when the
# flood had 32 threads and 10 ms when it had 8, at the same 2,000 answers a second
OF_ONE: Mapping[str, float] = {SYSTEM: 1.0, USER: 0.0625, STRANGER: 0.0625}
OF_ALL: Mapping[str, float] = {SYSTEM: 1.0, USER: 0.625, STRANGER: 0.25}

T = TypeVar("T")


class Turns(Generic[T]):
    """What waits and what runs; from any thread."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._of_one = {rank: max(1, int(share * threads)) for rank, share in OF_ONE.items()}
        self._of_all = {rank: max(1, int(share * threads)) for rank, share in OF_ALL.items()}
        self._lock = threading.Lock()
        self._lines: OrderedDict[Account, deque[T]] = OrderedDict()
        self._running: Counter[Account] = Counter()
        self._by_rank: Counter[str] = Counter()
        self._ready: SimpleQueue[T | None] = SimpleQueue()
        self.running = 0
        self.waiting = 0

    def put(self, account: Account, item: T) -> int:
        """Take ``item`` and return how many threads there is work for."""
        with self._lock:
            if self._may_run(account):
                self._start(account, item)
            else:
                self._lines.setdefault(account, deque()).append(item)
                self.waiting += 1
            return self.running

    def is_free(self, account: Account) -> bool:
        """Return whether an item of ``account`` could run now, behind no other one of it."""
        with self._lock:
            return account not in self._lines and self._may_run(account)

    def begin(self, account: Account) -> bool:
        """Let an item of ``account`` run that needs no thread, if it is its turn; ``done`` ends it."""
        with self._lock:
            if account in self._lines or not self._may_run(account):
                return False
            self._count(account)
            return True

    def take(self) -> T | None:
        """Wait for the next item to work on; None when there will be none."""
        return self._ready.get()

    def done(self, account: Account) -> None:
        """Note that an item of ``account`` is done, and let the next one run."""
        with self._lock:
            self.running -= 1
            self._by_rank[account.rank] -= 1
            self._running[account] -= 1
            if not self._running[account]:
                del self._running[account]
            following = next((each for each in self._lines if self._may_run(each)), None)
            if following is not None:
                line = self._lines[following]
                self._start(following, line.popleft())
                self.waiting -= 1
                self._lines.move_to_end(following)
                if not line:
                    del self._lines[following]

    def end(self, threads: int) -> None:
        """Let ``threads`` takers go home."""
        for _ in range(threads):
            self._ready.put(None)

    def _may_run(self, account: Account) -> bool:
        return (
            self.running < self._threads
            and self._running[account] < self._of_one[account.rank]
            and self._by_rank[account.rank] < self._of_all[account.rank]
        )

    def _start(self, account: Account, item: T) -> None:
        self._count(account)
        self._ready.put(item)

    def _count(self, account: Account) -> None:
        self.running += 1
        self._by_rank[account.rank] += 1
        self._running[account] += 1
