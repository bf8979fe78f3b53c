"""Which API servers are endpoints of default/kubernetes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import ENDPOINT_SLICE, ENDPOINTS, LEASE
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.board import Board, Place
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.serving.presence import ALONE, GAP_S, LABEL, LIFE_S, LOOK_S, RENEW_S, Presence, Roll
from minik8s_modules.apiserver.serving.startup import Startup
from minik8s_modules.apiserver.verbs import writing
from minik8s_modules.base.clock import FakeClock
from tests.support.waiting import until
from tests.unit.apiserver.serving.test_startup import SETTINGS


@pytest.fixture
def ready(backend: Backend) -> Backend:
    """A cluster with its namespaces."""
    Startup(backend, SETTINGS).ensure()
    return backend


def server(backend: Backend, address: str) -> Presence:
    return Presence(backend, replace(SETTINGS, advertise_address=address))


def endpoint_ips(backend: Backend, family: str = "IPv4") -> list[str]:
    """Return the endpoints, the same in both forms."""
    assert backend.get(Target(ENDPOINT_SLICE, "default", "kubernetes")).object["addressType"] == family
    subsets = backend.get(Target(ENDPOINTS, "default", "kubernetes")).object["subsets"]
    found = [address["ip"] for address in subsets[0]["addresses"]]
    sliced = backend.get(Target(ENDPOINT_SLICE, "default", "kubernetes")).object["endpoints"]
    assert [each["addresses"] for each in sliced] == [[address] for address in found]
    return found


def pass_time(clock: FakeClock, seconds: float, *living: Presence) -> None:
    """Let ``living`` look at their pace."""
    for _ in range(int(seconds / LOOK_S) + 1):
        clock.advance(LOOK_S)
        for each in living:
            each.look()


def test_a_look_at_endpoints_that_are_right_changes_nothing(
    ready: Backend, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
):
    alone = server(ready, "192.0.2.1")
    alone.look()
    changed: list[Target] = []
    monkeypatch.setattr(writing, "change", lambda _backend, target, *_rest: changed.append(target))
    clock.advance(ALONE * LOOK_S)
    alone.look()
    assert changed == []
    clock.advance(ALONE * LOOK_S)
    alone.look()
    assert [target.kind for target in changed] == [LEASE]


def test_a_lone_server_is_the_endpoint_and_writes_only_its_renewals(ready: Backend, clock: FakeClock):
    alone = server(ready, "192.0.2.1")
    alone.look()
    assert endpoint_ips(ready) == ["192.0.2.1"]
    revision = ready.store.revision()
    clock.advance(ALONE * RENEW_S - LOOK_S)
    assert alone.look() == ALONE * LOOK_S
    assert ready.store.revision() == revision
    clock.advance(LOOK_S)
    alone.look()
    assert ready.store.revision() == revision + 1


@pytest.mark.parametrize("comes_s", [0.1, LOOK_S, 4.9, RENEW_S, 7.5, 9.9])
def test_who_comes_to_a_lone_server_sees_it_renew_in_time(ready: Backend, clock: FakeClock, comes_s: float):
    lone, comes = server(ready, "192.0.2.1"), server(ready, "192.0.2.2")
    lone.look()
    looks = {lone: ALONE * LOOK_S, comes: comes_s}
    while clock.monotonic() < 4 * LIFE_S:
        each = min(looks, key=lambda one: looks[one])
        clock.advance(max(0.0, looks[each] - clock.monotonic()))
        looks[each] = clock.monotonic() + each.look()
        if looks[comes] > comes_s:
            assert endpoint_ips(ready) == ["192.0.2.1", "192.0.2.2"]


def test_a_lone_server_may_advertise_its_loopback(ready: Backend):
    server(ready, "127.0.0.1").look()
    assert endpoint_ips(ready) == ["127.0.0.1"]


def test_all_living_servers_are_endpoints_and_a_silent_one_goes(ready: Backend, clock: FakeClock):
    first, second, third = (server(ready, f"192.0.2.{number}") for number in (1, 2, 3))
    for each in (first, second, third):
        each.look()
    assert endpoint_ips(ready) == ["192.0.2.1", "192.0.2.2", "192.0.2.3"]
    pass_time(clock, LIFE_S - 2 * LOOK_S, first, third)
    assert "192.0.2.2" in endpoint_ips(ready)
    pass_time(clock, 2 * LOOK_S, first, third)
    assert endpoint_ips(ready) == ["192.0.2.1", "192.0.2.3"]
    second.look()
    assert endpoint_ips(ready) == ["192.0.2.1", "192.0.2.2", "192.0.2.3"]


def test_a_server_that_was_frozen_takes_nobody_away(ready: Backend, clock: FakeClock):
    first, second = server(ready, "192.0.2.1"), server(ready, "192.0.2.2")
    pass_time(clock, LIFE_S, first, second)
    clock.advance(100)  # nobody could look
    first.look()
    assert endpoint_ips(ready) == ["192.0.2.1", "192.0.2.2"]


def test_a_server_that_ends_politely_takes_itself_away_unless_it_is_the_last(ready: Backend):
    first, second = server(ready, "192.0.2.1"), server(ready, "192.0.2.2")
    for each in (first, second):
        each.start()
    try:
        until(lambda: first.done and second.done)
    finally:
        first.stop()
        assert endpoint_ips(ready) == ["192.0.2.2"]
        second.stop()
    assert endpoint_ips(ready) == ["192.0.2.2"]
    ready.get(Target(LEASE, "kube-system", "apiserver-192.0.2.2"))


def test_servers_of_ipv6_have_leases_with_names_and_are_endpoints_of_ipv6(ready: Backend):
    board = Board(2)
    one = Presence(replace(ready, place=Place(board, 1)), replace(SETTINGS, advertise_address="fd00::21"))
    one.look()
    server(ready, "fd00::a:3").look()
    board.close()
    assert [objects.name(item.object) for item in ready.cache.list(f"{LEASE.prefix}kube-system/").items] == [
        "apiserver-fd00-0000-0000-0000-0000-0000-0000-0021-1",
        "apiserver-fd00-0000-0000-0000-0000-0000-000a-0003",
    ]
    assert endpoint_ips(ready, "IPv6") == ["fd00::21", "fd00::a:3"]
    server(ready, "::1").look()
    assert endpoint_ips(ready, "IPv6") == ["::1", "fd00::21", "fd00::a:3"]


@pytest.mark.parametrize(
    ("looks", "silent"),
    [
        ([(0, "a"), (5, "a"), (10, "a"), (14.9, "a")], False),
        ([(0, "a"), (5, "a"), (10, "a"), (15, "a")], True),
        ([(0, "a"), (5, "a"), (10, "b"), (15, "b")], False),
        ([(0, "a"), (5, "a"), (5.1 + GAP_S, "a"), (15, "a")], False),
    ],
)
def test_silence_is_counted_by_looks(looks: list[tuple[float, str]], silent: bool):  # noqa: FBT001
    roll = Roll()
    for at_s, renewal in looks[:-1]:
        assert roll.silent({"x": renewal}, at_s) == []
    at_s, renewal = looks[-1]
    assert roll.silent({"x": renewal}, at_s) == (["x"] if silent else [])


def test_the_workers_of_a_server_have_a_lease_each_and_one_address(ready: Backend):
    board = Board(2)
    workers = [
        Presence(replace(ready, place=Place(board, number)), replace(SETTINGS, advertise_address="192.0.2.1"))
        for number in range(2)
    ]
    for each in workers:
        each.look()
    assert [objects.name(item.object) for item in ready.cache.list(f"{LEASE.prefix}kube-system/").items] == [
        "apiserver-192.0.2.1-0",
        "apiserver-192.0.2.1-1",
    ]
    board.close()
    assert endpoint_ips(ready) == ["192.0.2.1"]


@pytest.mark.parametrize(
    "called", ["apiserver-a-b-c-d-e-f-g-h", "apiserver-fd00-0-0-0-0-0-0-x-1", "apiserver-web", "web"]
)
def test_a_lease_that_is_named_after_no_address_is_no_endpoint(ready: Backend, called: str):
    fields = {
        "metadata": {"name": called, "labels": dict([LABEL])},
        "spec": {"renewTime": "2026-01-01T00:00:00.000000Z"},
    }
    options = Options(dry_run=False, validation="Strict", warnings=[])
    writing.create(ready, Target(LEASE, "kube-system"), fields, options)
    server(ready, "192.0.2.1").look()
    assert endpoint_ips(ready) == ["192.0.2.1"]
