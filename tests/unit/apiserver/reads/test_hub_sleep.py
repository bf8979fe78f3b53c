"""When the watch hub wakes by itself: for the end of a watch, for bookmarks, and for nothing else."""

from __future__ import annotations

import select as epoll
import socket
from typing import Any, cast

import pytest

from minik8s_modules.api.kinds import CONFIG_MAP
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.negotiation import OBJECT
from minik8s_modules.apiserver.http.settings import Limits
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.intake.limits import USER, Account, Admission, Holder
from minik8s_modules.apiserver.reads import watchers
from minik8s_modules.apiserver.reads.hub import Hub
from minik8s_modules.apiserver.reads.selection import select
from minik8s_modules.apiserver.reads.watchers import Join
from minik8s_modules.apiserver.reads.watching import EventStream
from minik8s_modules.base.clock import FakeClock
from minik8s_modules.base.metrics import Registry
from tests.support.waiting import until

JANE = Holder(Account("jane", USER), "192.0.2.1")
COLLECTION = Target(CONFIG_MAP, "default")


@pytest.fixture
def hub(backend: Backend, clock: FakeClock) -> Hub:
    """Return a hub whose thread is not started yet; who stops it starts it, as it closes what it holds."""
    return Hub(clock, backend.cache, Admission(Limits(), Registry()))


class Poll:
    """An epoll that notes how long the hub sleeps."""

    def __init__(self, real: epoll.epoll) -> None:
        self._real = real
        self.slept_s: list[float | None] = []

    def __getattr__(self, name: str) -> Any:
        """Return what the epoll has."""
        return getattr(self._real, name)

    def poll(self, timeout: float | None = None) -> list[tuple[int, int]]:
        """Wait as an epoll does."""
        self.slept_s.append(timeout)
        return self._real.poll(timeout)


def a_watch(backend: Backend, clock: FakeClock, timeout_s: float) -> tuple[Join, socket.socket]:
    ours, theirs = socket.socketpair()
    stream = EventStream(select(COLLECTION, {}), OBJECT, clock)
    return Join(ours, stream, b"", backend.cache.revision, timeout_s, bookmarks=True, holder=JANE), theirs


def test_the_thread_of_the_hub_sleeps_until_a_watch_is_due(hub: Hub, backend: Backend, clock: FakeClock):
    hub._epoll = cast("Any", poll := Poll(hub._epoll))
    join, theirs = a_watch(backend, clock, 5.0)
    hub.start()
    try:
        until(lambda: poll.slept_s[-1:] == [watchers.BOOKMARK_S])
        hub.join(join)
        until(lambda: poll.slept_s[-1:] == [5.0])
        clock.advance(2.0)
        hub.renew("/registry/core/nothing/")  # wakes the hub, which then looks at its clock
        until(lambda: poll.slept_s[-1:] == [3.0])
        assert {*poll.slept_s} == {0.0, watchers.BOOKMARK_S, 5.0, 3.0}
    finally:
        hub.stop()
        theirs.close()


def test_bookmarks_of_more_watches_than_a_thousand_go_at_times_of_their_own(
    hub: Hub, backend: Backend, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
):
    assert watchers.TOGETHER == 1000
    monkeypatch.setattr(watchers, "TOGETHER", 1)
    others = []
    for _ in range(3):  # this thread is the hub's
        clock.advance(2.0)
        join, theirs = a_watch(backend, clock, 600.0)
        others.append(theirs)
        hub._add(join)
    assert [each.bookmark_at for each in hub._watchers.values()] == [60.0, 60.0, 66.0]
    clock.advance(57.0)
    hub._tick()
    assert [each.bookmark_at for each in hub._watchers.values()] == [123.0, 123.0, 66.0]
    hub.start()
    hub.stop()
    for theirs in others:
        theirs.close()
