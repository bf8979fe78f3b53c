"""Errands: synchronous code that an event loop runs in its own thread, and that lets it go on where it has to wait.

An errand is a greenlet. It runs until it ends or waits, for an answer from a socket that the loop looks after
(``follow``), for another thread (``Pause``), or for what would block and is done by a thread meanwhile (``elsewhere``).
Nothing else may block, as everybody whom the loop serves waits then: an errand that computes for longer than
``LONG_S`` at a time is logged. A lock held while it waits would stop the loop for ever once another errand wants it:
take such a lock by ``held``.
"""

from __future__ import annotations

import logging
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, NamedTuple, TypeVar

from greenlet import getcurrent, greenlet

log = logging.getLogger(__name__)

LONG_S = 0.25  # under load a thread may be without a processor for half of that
_TOLD_EVERY_S = 60.0
_KEPT = 16  # errands that have nothing to do; as many begin in a turn of the intake's loop

T = TypeVar("T")


class Late(TimeoutError):
    """What an errand waited for took too long, or its loop ends."""


class _Said(NamedTuple):
    came: bool


class _Follower(NamedTuple):
    on_ready: Callable[[], None]
    on_end: Callable[[], None]


class _Errand(greenlet):  # type: ignore[misc,unused-ignore]  # not all versions have types
    """Does one piece of work after another; ``pause`` is where it waits.

    Each new greenlet has Python map a stack for it, and give that back when it ends: 6 % of a create's CPU.
    """

    def __init__(self, errands: Errands) -> None:
        super().__init__(self._works)
        self.errands = errands
        self.pause: Pause | None = None
        self.work: Callable[[], object] | None = None
        self.ended: Callable[[], None] | None = None

    def _works(self) -> None:
        while self.work is not None:
            try:
                self.work()
            except Exception:  # the loop must outlive a defect, whatever it is
                log.exception("an errand failed")
            self.work = None
            if self.errands.keeps(self):
                self.parent.switch()


class Pause:
    """Where the errand that makes it waits; ended once, from any thread, before or while it does."""

    def __init__(self, errands: Errands) -> None:
        self._errands, self._errand = errands, getcurrent()
        self.deadline_s = 0.0
        self._said: list[_Said] = []  # the first one counts; appended in one step, unlike a look and a change

    def wait(self, timeout_s: float) -> bool:
        """Return whether it was ended within ``timeout_s``, a second more at most."""
        self.deadline_s = time.monotonic() + timeout_s
        if not self._said:
            self._errands.leave(self)
        return self._said[0].came

    def end(self, *, came: bool = True) -> bool:
        """Let the errand go on; return whether that is news to it."""
        mine = _Said(came)
        self._said.append(mine)
        if self._said[0] is not mine:
            return False
        self._errands.go_on(self)
        return True

    def resume(self) -> None:
        """Go on with the errand, in the loop, if it waits here."""
        if self._errand.pause is self:
            self._errands.switch(self._errand)


class Errands:
    """The errands of a loop, which calls everything but ``elsewhere`` and ``go_on`` in its thread.

    Args:
        epoll: the loop's; ``on_ready`` is told of descriptors that are not its own.
        wake: ends its waiting; from any thread.
    """

    def __init__(self, epoll: select.epoll, wake: Callable[[], None]) -> None:
        self._epoll, self._wake = epoll, wake
        self._followed: dict[int, _Follower] = {}
        self._free: list[_Errand] = []  # have ended, and may be given other work
        self._last: list[Callable[[], object]] = []
        self._ready: deque[Pause] = deque()
        self._pauses: set[Pause] = set()
        self._woken = self._over = False
        self._thread = 0
        self._told_s = float("-inf")

    def run(self, work: Callable[[], object], ended: Callable[[], None]) -> None:
        """Begin an errand; ``ended`` is called in the loop itself, afterwards."""
        self._thread = threading.get_ident()
        errand = self._free.pop() if self._free else _Errand(self)
        errand.work, errand.ended = work, ended
        errand.gr_context = None  # what the one before has set in contextvars is nobody else's
        self.switch(errand)

    def switch(self, errand: _Errand) -> None:
        """Let an errand run until it ends or waits."""
        began_s = time.monotonic()
        errand.switch()
        now_s = time.monotonic()
        if now_s - began_s > LONG_S and now_s - self._told_s > _TOLD_EVERY_S:
            self._told_s = now_s
            log.warning("the event loop was held for %.0f ms by one request", (now_s - began_s) * 1e3)
        if errand.work is None and errand.ended is not None:
            ended, errand.ended = errand.ended, None
            ended()

    def keeps(self, errand: _Errand) -> bool:
        """Return whether an errand that has done its work is to wait for other work; else it ends."""
        if self._over or len(self._free) >= _KEPT:
            return False
        self._free.append(errand)
        return True

    def leave(self, pause: Pause) -> None:
        """Give the thread back to the loop until ``pause`` is ended; called in the errand."""
        if self._over:
            pause.end(came=False)
            return
        errand: _Errand = getcurrent()
        errand.pause = pause
        self._pauses.add(pause)
        try:
            errand.parent.switch()
        finally:
            errand.pause = None
            self._pauses.discard(pause)

    def go_on(self, pause: Pause) -> None:
        """Have the loop go on with who waits at ``pause``; from any thread."""
        self._ready.append(pause)
        if threading.get_ident() != self._thread and not self._woken:
            self._woken = True
            self._wake()

    def elsewhere(self, call: Callable[[], T], timeout_s: float, undo: Callable[[T], object] | None = None) -> T:
        """Return what ``call`` returns, or raise what it raises; a thread makes it, and the errand waits.

        Args:
            call: may block.
            timeout_s: how long the errand waits.
            undo: is given what ``call`` returned after that.

        Raises:
            Late: it takes longer than ``timeout_s``, or the loop ends.
        """
        if self._over:
            raise Late("the server stops")
        pause, outcome = Pause(self), _Outcome[T]()

        def work() -> None:
            outcome.of(call)
            if not pause.end() and undo is not None:
                undo(outcome.result())

        threading.Thread(target=work, name="elsewhere", daemon=True).start()
        if not pause.wait(timeout_s):
            raise Late(f"no result within {timeout_s:g} s")
        return outcome.result()

    def follow(self, descriptor: int, on_ready: Callable[[], None], on_end: Callable[[], None]) -> None:
        """Have ``on_ready`` called in the loop whenever ``descriptor`` can be read, ``on_end`` when the loop ends."""
        self._followed[descriptor] = _Follower(on_ready, on_end)
        self._epoll.register(descriptor, select.EPOLLIN)

    def follow_writing(self, descriptor: int, *, too: bool) -> None:
        """Have it called when ``descriptor`` can be written, ``too``, or not any more."""
        self._epoll.modify(descriptor, select.EPOLLIN | (select.EPOLLOUT if too else 0))

    def unfollow(self, descriptor: int) -> None:
        """Forget ``descriptor``, which is about to be closed."""
        del self._followed[descriptor]
        self._epoll.unregister(descriptor)

    def on_ready(self, descriptor: int) -> None:
        """Tell who follows ``descriptor``."""
        found = self._followed.get(descriptor)
        if found is not None:
            found.on_ready()

    def at_last(self, call: Callable[[], object]) -> None:
        """Have ``call`` called at the end of the turn."""
        self._last.append(call)

    def end_turn(self) -> None:
        """Go on with all errands that can, and do what was left for the end of the turn."""
        self._woken = False
        while self._ready or self._last:
            while self._ready:
                self._ready.popleft().resume()
            last, self._last = self._last, []
            for call in last:
                call()

    def end_late(self) -> None:
        """Let errands go on whose time is up."""
        now_s = time.monotonic()
        for pause in [each for each in self._pauses if each.deadline_s < now_s]:
            pause.end(came=False)

    def end(self) -> None:
        """Let all errands end: what has come for them counts, and none waits any more, as if its time were up."""
        for each in list(self._followed.values()):
            each.on_ready()
        self.end_turn()
        self._over = True
        for pause in list(self._pauses):
            pause.end(came=False)
        self.end_turn()
        for each in list(self._followed.values()):
            each.on_end()
        while self._free:  # a greenlet that waits holds itself
            self._free.pop().switch()


class _Outcome(Generic[T]):
    """What a call in another thread came to."""

    def __init__(self) -> None:
        self._results: list[T] = []
        self._error: BaseException | None = None

    def of(self, call: Callable[[], T]) -> None:
        """Make the call."""
        try:
            self._results.append(call())
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            self._error = error

    def result(self) -> T:
        """Return what it returned, or raise what it raised."""
        if self._error is not None:
            raise self._error
        return self._results[0]


def current() -> Errands | None:
    """Return whose errand this code is, None where it is none and may wait as it likes."""
    found = getcurrent()
    return found.errands if isinstance(found, _Errand) else None


@contextmanager
def held(lock: threading.Lock, timeout_s: float) -> Iterator[None]:
    """Hold a lock that is held while its holder waits for others.

    Raises:
        Late: an errand does not get it within ``timeout_s``.
    """
    here = current()
    if here is None:
        lock.acquire()
    elif not (lock.acquire(blocking=False) or _acquired(here, lock, timeout_s)):
        raise Late(f"somebody else needs longer than {timeout_s:g} s")
    try:
        yield
    finally:
        lock.release()


def _acquired(here: Errands, lock: threading.Lock, timeout_s: float) -> bool:
    """Return whether a thread got a lock for an errand; one that has given up leaves it to others."""

    def undo(got: bool) -> None:  # noqa: FBT001 - what ``acquire`` returned
        if got:
            lock.release()

    return here.elsewhere(lambda: lock.acquire(timeout=timeout_s), 2 * timeout_s, undo)
