"""The watch hub on socket pairs: one stream for many, joins without gaps, bookmarks, slow and dead watchers."""

from __future__ import annotations

import json
import select as epoll
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from minik8s_modules.api.kinds import CONFIG_MAP
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.negotiation import OBJECT
from minik8s_modules.apiserver.http.settings import Limits
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.intake.limits import USER, Account, Admission, Holder
from minik8s_modules.apiserver.reads import hub as hub_module
from minik8s_modules.apiserver.reads import lanes, watchers
from minik8s_modules.apiserver.reads.hub import Hub
from minik8s_modules.apiserver.reads.selection import select
from minik8s_modules.apiserver.reads.watchers import Join
from minik8s_modules.apiserver.reads.watching import EventStream
from minik8s_modules.apiserver.verbs import writing
from minik8s_modules.base.clock import FakeClock
from minik8s_modules.base.metrics import Registry
from minik8s_modules.store.cached import CachedObject, CacheEvent
from tests.support.waiting import until

JANE = Holder(Account("jane", USER), "192.0.2.1")
COLLECTION = Target(CONFIG_MAP, "default")


class Client:
    """The client's end of a watch: reads chunks."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(60)
        self.sock = sock
        self._file = sock.makefile("rb")

    def lines(self) -> list[tuple[str, str]]:
        """Return type and name (or revision) of the next chunk's events; [] at the end."""
        size = int(self._file.readline() or b"0", 16)
        data = self._file.read(size)
        self._file.readline()
        events = [json.loads(line) for line in data.splitlines()]
        return [(event["type"], shown_as(event["object"])) for event in events]

    def close(self) -> None:
        """Hang up."""
        self._file.close()
        self.sock.close()


def shown_as(obj: Any) -> str:
    metadata = obj["metadata"]
    return str(metadata.get("name") or metadata.get("resourceVersion") or obj.get("code"))


Opener = Callable[..., Client]


@pytest.fixture
def admission() -> Admission:
    return Admission(Limits(), Registry())


@pytest.fixture
def hub(backend: Backend, clock: FakeClock, admission: Admission) -> Iterator[Hub]:
    made = Hub(clock, backend.cache, admission)
    made.start()
    yield made
    made.stop()
    assert made.failure()


@pytest.fixture
def watch(hub: Hub, backend: Backend, clock: FakeClock) -> Iterator[Opener]:
    clients: list[Client] = []

    def opened(
        after: int | None = None, *, bookmarks: bool = False, timeout_s: float = 600.0, **arguments: str
    ) -> Client:
        ours, theirs = socket.socketpair()
        client = Client(theirs)
        clients.append(client)
        stream = EventStream(select(COLLECTION, arguments), OBJECT, clock)
        revision = backend.cache.revision if after is None else after
        hub.join(Join(ours, stream, b"", revision, timeout_s, bookmarks, JANE))
        return client

    yield opened
    for client in clients:
        client.close()


@pytest.fixture
def create(backend: Backend, options: Options) -> Callable[..., int]:
    def made(name: str, **labels: str) -> int:
        obj = {"metadata": {"name": name, "labels": labels}}
        return writing.create(backend, COLLECTION, obj, options).revision

    return made


def test_what_comes_before_the_hub_has_heard_of_it_wakes_it_once(
    backend: Backend, clock: FakeClock, admission: Admission
):
    hub = Hub(clock, backend.cache, admission)
    for _ in range(1000):
        hub.renew("/registry/core/configmaps/")
    assert hub._wake_read.recv(65_536) == b"x"
    hub._wake_write.send(b"x")
    hub.start()
    hub.stop()
    assert hub.failure()


def test_every_watcher_gets_each_event_once(watch: Opener, create):
    clients = [watch() for _ in range(5)]
    create("a")
    assert [client.lines() for client in clients] == [[("ADDED", "a")]] * 5


def test_equal_selections_share_the_encoding(watch: Opener, create, monkeypatch):
    calls: list[int] = []
    encode = EventStream.encode

    def counted(self: EventStream, event: CacheEvent) -> bytes:
        calls.append(event.revision)
        return encode(self, event)

    monkeypatch.setattr(EventStream, "encode", counted)
    clients = [watch(labelSelector="app=x") for _ in range(4)] + [watch() for _ in range(4)]
    create("a", app="x")
    for client in clients:
        assert client.lines() == [("ADDED", "a")]
    assert len(calls) == 2


def test_a_watcher_that_joins_late_is_brought_up_to_date(watch: Opener, create):
    before = create("a")
    first = watch(before)
    create("b")
    assert first.lines() == [("ADDED", "b")]
    late = watch(before)
    assert late.lines() == [("ADDED", "b")]
    create("c")
    assert (first.lines(), late.lines()) == ([("ADDED", "c")], [("ADDED", "c")])


def test_a_watcher_from_the_future_gets_only_what_is_newer(watch: Opener, create, backend: Backend):
    first = watch()
    ahead = watch(backend.cache.revision + 1)
    create("a")
    create("b")
    assert first.lines()[0] == ("ADDED", "a")
    assert ahead.lines() == [("ADDED", "b")]


def test_a_watcher_whose_history_is_gone_is_told_so_and_ended(watch: Opener, create):
    watch()
    create("a")
    client = watch(0)
    assert client.lines() == [("ERROR", "410")]
    assert client.lines() == []


def _tick(clock: FakeClock, hub: Hub, seconds: float) -> None:
    clock.advance(seconds)
    hub._put(watchers_nothing())  # wakes the hub, which then looks at its clock


def watchers_nothing() -> Any:
    """Return an order that ends nobody: the end of a resource nobody watches."""
    return hub_module._Ended("/registry/core/nothing/")


def test_a_bookmark_comes_every_minute_to_those_who_asked(watch: Opener, create, clock: FakeClock, hub: Hub):
    asked, other = watch(bookmarks=True), watch()
    revision = create("a")
    assert asked.lines() == other.lines() == [("ADDED", "a")]
    _tick(clock, hub, watchers.BOOKMARK_S + 1)
    assert asked.lines() == [("BOOKMARK", str(revision))]
    create("b")
    assert asked.lines() == other.lines() == [("ADDED", "b")]


def test_a_bookmark_follows_writes_of_other_kinds(watch: Opener, create, clock: FakeClock, hub: Hub, backend: Backend):
    client = watch(bookmarks=True)
    create("a")
    assert client.lines() == [("ADDED", "a")]
    revision = backend.store.create("/registry/core/secrets/default/x", b'{"metadata":{"name":"x"}}')
    while backend.cache.progress() < revision:
        pass
    _tick(clock, hub, watchers.BOOKMARK_S + 1)
    assert client.lines() == [("BOOKMARK", str(revision))]


def test_the_hub_sleeps_until_a_watch_is_due_and_bookmarks_go_together(
    backend: Backend, clock: FakeClock, admission: Admission
):
    hub = Hub(clock, backend.cache, admission)  # not started: this thread is the hub's
    clients = []

    def joined(timeout_s: float, *, bookmarks: bool) -> None:
        ours, theirs = socket.socketpair()
        clients.append(Client(theirs))
        stream = EventStream(select(COLLECTION, {}), OBJECT, clock)
        hub._add(Join(ours, stream, b"", backend.cache.revision, timeout_s, bookmarks, JANE))

    hub._tick()
    assert hub._next_tick == watchers.BOOKMARK_S
    clock.advance(0.5)
    joined(600.0, bookmarks=True)
    clock.advance(20.0)
    joined(600.0, bookmarks=True)
    assert hub._next_tick == watchers.BOOKMARK_S
    joined(5.0, bookmarks=False)
    assert hub._next_tick == 26.0
    clock.advance(5.5)
    hub._tick()
    assert clients[2].lines() == []
    assert hub._next_tick == watchers.BOOKMARK_S
    clock.advance(34.0)
    hub._tick()
    assert [client.lines()[0][0] for client in clients[:2]] == ["BOOKMARK", "BOOKMARK"]
    assert hub._next_tick == 2 * watchers.BOOKMARK_S
    hub.start()  # its thread closes what it holds
    hub.stop()
    for client in clients:
        client.close()


def test_a_watch_ends_after_its_time(watch: Opener, create, clock: FakeClock, hub: Hub):
    client = watch(timeout_s=5.0)
    create("a")
    assert client.lines() == [("ADDED", "a")]
    _tick(clock, hub, 6.0)
    assert client.lines() == []


def test_a_watcher_that_does_not_read_is_dropped_and_others_are_not(watch: Opener, create, backend, monkeypatch):
    monkeypatch.setattr(watchers, "BUFFER_BYTES", 1000)
    deaf, reader = watch(), watch()
    deaf.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    options = Options(dry_run=False, validation="Strict", warnings=[])
    for number in range(20):
        obj = {"metadata": {"name": f"big{number}"}, "data": {"k": "x" * 100_000}}
        writing.create(backend, COLLECTION, obj, options)
        assert reader.lines() == [("ADDED", f"big{number}")]
    with pytest.raises(ValueError, match=r"Unterminated|Expecting"):  # the last chunk is cut off
        _read_all(deaf)


def _read_all(client: Client) -> None:
    while client.lines():
        pass


def test_a_client_that_hangs_up_is_forgotten(watch: Opener, create, hub: Hub):
    leaving, staying = watch(), watch()
    create("a")
    assert leaving.lines() == staying.lines()
    assert hub.counts() == {CONFIG_MAP.prefix: 2}
    leaving.close()
    create("b")
    assert staying.lines() == [("ADDED", "b")]
    create("c")
    assert staying.lines() == [("ADDED", "c")]
    assert hub.counts() == {CONFIG_MAP.prefix: 1}


def test_a_defect_in_one_stream_sends_its_clients_to_list_again_and_harms_no_other(
    watch: Opener, create, hub: Hub, monkeypatch
):
    good, bad = watch(), watch(labelSelector="app")
    line = EventStream.line

    def failing(self: EventStream, event_type: str, item: CachedObject) -> bytes:
        return line(self, event_type, item) if self.key == good_key else bytes(1 // 0)

    good_key = EventStream(select(COLLECTION, {}), OBJECT, FakeClock()).key
    monkeypatch.setattr(EventStream, "line", failing)
    create("a", app="x")
    assert good.lines() == [("ADDED", "a")]
    assert bad.lines() == [("ERROR", "410")]
    assert bad.lines() == []
    assert hub.failure() == ""


def test_when_history_begins_anew_watchers_list_again_and_new_ones_work(watch: Opener, create, hub: Hub):
    client = watch()
    create("a")
    assert client.lines() == [("ADDED", "a")]
    hub._put(hub_module._Ended(CONFIG_MAP.prefix))  # what the cache reports when the store went back
    assert client.lines() == [("ERROR", "410")]
    assert client.lines() == []
    again = watch()
    create("b")
    assert again.lines() == [("ADDED", "b")]


def test_watchers_for_whom_too_much_waits_to_be_converted_list_again(watch: Opener, create, hub: Hub, monkeypatch):
    asked, released, init = threading.Event(), threading.Event(), EventStream.__init__

    def slow(self: EventStream, *arguments: Any) -> None:
        init(self, *arguments)
        self.lane = "slow"

    def prepare(_self: EventStream, _events: Any) -> None:
        asked.set()
        assert released.wait(60)

    monkeypatch.setattr(EventStream, "__init__", slow)
    monkeypatch.setattr(EventStream, "prepare", prepare)
    monkeypatch.setattr(lanes, "MOST_BYTES", 2000)
    client = watch()
    create("a")
    assert asked.wait(60)
    try:
        create("b")
        until(lambda: hub._lanes._lanes["slow"]._jobs)
        create("c")
        assert client.lines() == [("ERROR", "410")]
        assert client.lines() == []
        again = watch()
    finally:
        released.set()
    create("d")
    assert again.lines() == [("ADDED", "d")]
    assert hub.failure() == ""


def test_what_is_written_for_a_watcher_that_is_gone_counts_for_nobody(hub: Hub, admission: Admission, clock: FakeClock):
    ours, theirs = socket.socketpair()
    stream = EventStream(select(COLLECTION, {}), OBJECT, clock)
    watcher = watchers.Watcher(Join(ours, stream, b"", 0, 60.0, bookmarks=False, holder=JANE), 0.0)
    watcher.pending.append(b"what it did not read")
    ours.close()
    theirs.close()
    hub._take(lanes.Written([watcher], [(1, b"x")], joined=True))
    assert (admission.bytes.total, watcher.pending_bytes) == (0, 0)


def test_a_watch_that_got_the_descriptor_of_one_that_hung_up_stays_and_one_that_hung_up_goes(
    backend: Backend, clock: FakeClock, admission: Admission
):
    hub = Hub(clock, backend.cache, admission)  # not started: this thread is the hub's
    ours, theirs = socket.socketpair()
    stream = EventStream(select(COLLECTION, {}), OBJECT, clock)
    hub._add(Join(ours, stream, b"", backend.cache.revision, 60.0, False, JANE))  # noqa: FBT003 - bookmarks
    (watcher,) = hub._watchers.values()
    for stale in (epoll.EPOLLHUP, epoll.EPOLLERR, epoll.EPOLLHUP | epoll.EPOLLIN):
        hub._on_socket(watcher, stale)
    assert [*hub._watchers.values()] == [watcher]
    theirs.close()
    hub._on_socket(watcher, epoll.EPOLLHUP)
    assert hub._watchers == {}
    assert ours.fileno() == -1
    hub.start()  # its thread closes what it holds
    hub.stop()
    assert hub.failure()
