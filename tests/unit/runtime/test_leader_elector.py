"""Who holds a Lease, for how long, and with which token."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from minik8s_modules.api.errors import Conflict, Forbidden
from minik8s_modules.api.kinds import CONFIG_MAP, LEASE, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import FakeClock, parse_rfc3339
from minik8s_modules.client.errors import ApiUnreachable
from minik8s_modules.client.fake import FakeApi, passing_error
from minik8s_modules.runtime.identity import process_identity
from minik8s_modules.runtime.leader import WAITS, LeaderElector, Timings, Token, lease_is_free, next_spec

NOW = "2026-01-01T00:00:00.000000Z"


@pytest.fixture
def api() -> FakeApi:
    api = FakeApi()
    metadata = {"name": "minik8s-cluster", "namespace": "kube-system"}
    api.create(CONFIG_MAP, {"metadata": metadata, "data": {"epoch": "3"}})
    return api


def elector(api: FakeApi, identity: str, clock: FakeClock, **options) -> LeaderElector:
    return LeaderElector(api, "job", identity=identity, clock=clock, random=lambda: 0.0, **options)


def holder(api: FakeApi) -> str:
    return str(api.get(LEASE, "job", "kube-system")["spec"].get("holderIdentity", ""))


def dead_identity() -> str:
    place, pid, start = process_identity().rsplit("_", 2)
    return f"{place}_{pid}_{int(start) + 1}"


@pytest.mark.parametrize(
    ("spec", "unchanged_s", "free"),
    [
        ({}, 0, True),
        ({"holderIdentity": "", "leaseDurationSeconds": 1}, 0, True),
        ({"holderIdentity": "me", "leaseDurationSeconds": 15}, 0, True),
        ({"holderIdentity": "other", "leaseDurationSeconds": 15}, 14.9, False),
        ({"holderIdentity": "other", "leaseDurationSeconds": 15}, 15, True),
        ({"holderIdentity": dead_identity(), "leaseDurationSeconds": 15}, 0, True),
    ],
)
def test_when_a_lease_may_be_taken(spec, unchanged_s, free):
    assert lease_is_free(spec, unchanged_s, "me") is free


def test_transitions_count_changes_of_holder():
    first = next_spec({}, "a", NOW, 15)
    again = next_spec(first, "a", "later", 15)
    other = next_spec(again, "b", "later", 15)
    assert [spec["leaseTransitions"] for spec in (first, again, other)] == [0, 0, 1]
    assert (again["acquireTime"], again["renewTime"]) == (NOW, "later")
    assert other["acquireTime"] == "later"


def test_the_second_waits_until_the_first_has_not_renewed_for_the_duration(api):
    clock = FakeClock()
    first, second = elector(api, "first", clock), elector(api, "second", clock)
    assert first.try_acquire_or_renew()
    assert not second.try_acquire_or_renew()
    clock.advance(10)
    with pytest.raises(Conflict):  # the second has written that it waits
        first.try_acquire_or_renew()
    assert first.try_acquire_or_renew()
    clock.advance(10)
    assert not second.try_acquire_or_renew()
    clock.advance(15)
    assert second.try_acquire_or_renew()
    assert holder(api) == "second"


def test_a_clock_that_is_wrong_on_the_other_machine_does_not_matter(api):
    past, future = FakeClock(), FakeClock()
    future.advance(10**6)
    assert elector(api, "first", past).try_acquire_or_renew()
    assert not elector(api, "second", future).try_acquire_or_renew()


def test_a_candidate_takes_the_lease_at_the_moment_it_runs_out(api):
    clock = FakeClock()
    elector(api, "first", clock, timings=Timings(lease_s=15)).try_acquire_or_renew()
    began = clock.monotonic()
    assert elector(api, "second", clock, timings=Timings(retry_s=4.0)).acquire(threading.Event())
    assert clock.monotonic() - began == 15


def test_a_released_lease_is_taken_at_once(api):
    clock = FakeClock()
    first, second = elector(api, "first", clock), elector(api, "second", clock)
    first.try_acquire_or_renew()
    first.release()
    assert second.try_acquire_or_renew()


def test_the_token_is_the_epoch_and_the_revision_that_took_the_lease(api):
    clock = FakeClock()
    stop = threading.Event()
    first = elector(api, "first", clock, fenced=True, annotations={"minik8s.io/plan-endpoint": "https://h:1"})
    token = first.acquire(stop)
    lease = api.get(LEASE, "job", "kube-system")
    assert token == Token(3, int(lease["metadata"]["resourceVersion"]))
    assert lease["metadata"]["annotations"] == {"minik8s.io/plan-endpoint": "https://h:1"}
    first.try_acquire_or_renew()
    first.release()
    later = elector(api, "second", clock, fenced=True).acquire(stop)
    assert later is not None
    assert later > token


def test_without_a_readable_epoch_nobody_leads(api):
    clock, stop = FakeClock(), threading.Event()
    api.update(
        CONFIG_MAP,
        {"metadata": {"name": "minik8s-cluster", "namespace": "kube-system"}, "data": {"epoch": "x"}},
    )
    first = elector(api, "first", clock, fenced=True)

    class StopSoon(FakeClock):
        def wait(self, event: threading.Event, timeout_s: float) -> bool:
            event.set()
            return super().wait(event, timeout_s)

    first._clock = StopSoon()
    assert first.acquire(stop) is None
    assert holder(api) == ""


def test_a_leader_that_cannot_renew_steps_down_before_its_lease_ends(api):
    clock, stop = FakeClock(), threading.Event()
    first = elector(api, "first", clock, timings=Timings(lease_s=15, renew_deadline_s=10, retry_s=2))
    left_s = []

    def lead(_: Token, lost: threading.Event) -> None:
        api.fail(*[ApiUnreachable("down")] * 4, *[passing_error()] * 10)
        assert lost.wait(60)
        api._failures.clear()
        spec = api.get(LEASE, "job", "kube-system")["spec"]
        unrenewed_s = (clock.now() - parse_rfc3339(spec["renewTime"])).total_seconds()
        left_s.append(spec["leaseDurationSeconds"] - unrenewed_s)
        assert unrenewed_s >= 10
        stop.set()

    first.run(stop, lead)
    assert len(left_s) == 1
    assert 0 < left_s[0] <= 5


def test_a_leader_steps_down_in_time_while_an_attempt_is_under_way():
    stepped_down = threading.Event()

    class Silent(FakeApi):
        def update(self, *_: Any, **__: Any) -> JsonObject:
            assert stepped_down.wait(60)
            raise ApiUnreachable("no answer")

    stop = threading.Event()

    def lead(_: Token, lost: threading.Event) -> None:
        assert lost.wait(60)
        stop.set()
        stepped_down.set()

    timings = Timings(lease_s=3, renew_deadline_s=1, retry_s=0.02)
    LeaderElector(Silent(), "job", identity="first", timings=timings).run(stop, lead)
    assert stepped_down.is_set()


def test_a_leader_counts_from_when_it_began_to_write_however_late_the_answer():
    clock, stop = FakeClock(), threading.Event()

    class Slow(FakeApi):
        def create(self, *args: Any, **options: Any) -> JsonObject:
            written = super().create(*args, **options)
            clock.advance(3)
            return written

        def update(self, *_: Any, **__: Any) -> JsonObject:
            raise ApiUnreachable("down")

    led_until_s = []

    def lead(_: Token, lost: threading.Event) -> None:
        assert lost.wait(60)
        led_until_s.append(clock.monotonic())
        stop.set()

    elector(Slow(), "first", clock).run(stop, lead)
    assert led_until_s == [8.0]


@pytest.mark.parametrize("slow", ["create", "get"])
def test_who_took_the_lease_too_slowly_to_lead_by_that_gives_it_back_and_tries_again(slow: str):
    clock = FakeClock()
    waited: list[str] = []

    class Slow(FakeApi):
        """The Lease's first write is answered late, or the look for the token's epoch."""

        def create(self, kind: Kind, *args: Any, **options: Any) -> JsonObject:
            return self._late("create", kind, super().create(kind, *args, **options))

        def get(self, kind: Kind, *args: Any, **options: Any) -> JsonObject:
            return self._late("get", kind, super().get(kind, *args, **options))

        def _late(self, verb: str, kind: Kind, found: JsonObject) -> JsonObject:
            if (verb, kind) in {("create", LEASE), ("get", CONFIG_MAP)} and verb == slow and not waited:
                clock.advance(8)
                waited.append(holder(self))
            return found

    slowly = Slow()
    metadata = {"name": "minik8s-cluster", "namespace": "kube-system"}
    slowly.create(CONFIG_MAP, {"metadata": metadata, "data": {"epoch": "3"}})
    assert elector(slowly, "first", clock, fenced=True).acquire(threading.Event())
    assert waited == ["first"]
    renewed = parse_rfc3339(slowly.get(LEASE, "job", "kube-system")["spec"]["renewTime"])
    assert (clock.now() - renewed).total_seconds() < Timings().renew_deadline_s


def pauses_of(api: FakeApi, at: dict[int, Callable[[], object]]) -> list[float]:
    """Return a leader's first seven pauses in seconds; ``at`` says what happens during one of them."""
    pauses_s: list[float] = []
    stop = threading.Event()

    class Watched(FakeClock):
        def wait(self, event: threading.Event, timeout_s: float) -> bool:
            pauses_s.append(timeout_s)
            at.get(len(pauses_s), lambda: None)()
            if len(pauses_s) == 7:
                stop.set()
            return super().wait(event, timeout_s)

    def lead(_: Token, lost: threading.Event) -> None:
        assert lost.wait(60)

    elector(api, "first", Watched()).run(stop, lead)
    return pauses_s[:7]


def test_a_leader_for_whose_lease_nobody_waits_renews_every_twelve_seconds(api):
    assert pauses_of(api, {3: lambda: api.fail(ApiUnreachable("down"))}) == [4.0, 12.0, 12.0, 2.0, 12.0, 12.0, 12.0]


def test_a_leader_renews_every_four_seconds_once_somebody_waits(api):
    second = elector(api, "second", FakeClock())
    at = {
        3: second.try_acquire_or_renew,  # the next renewal runs into what it writes, and is made again at once
        5: second.try_acquire_or_renew,
        6: lambda: api.fail(ApiUnreachable("down")),
    }
    assert pauses_of(api, at) == [4.0, 12.0, 12.0, 4.0, 4.0, 4.0, 2.0]


def test_a_lease_lasts_longer_while_nobody_waits_for_it(api):
    clock = FakeClock()
    first, second = elector(api, "first", clock), elector(api, "second", clock)

    def renewed_for_s() -> int:
        assert first.try_acquire_or_renew()
        return int(api.get(LEASE, "job", "kube-system")["spec"]["leaseDurationSeconds"])

    assert [renewed_for_s(), renewed_for_s()] == [11, 19]
    second.try_acquire_or_renew()
    with pytest.raises(Conflict):
        renewed_for_s()
    assert [renewed_for_s(), renewed_for_s()] == [11, 11]


def test_who_takes_a_lease_does_not_know_whether_others_wait(api):
    clock = FakeClock()
    first, second = elector(api, "first", clock), elector(api, "second", clock)
    assert first.try_acquire_or_renew()
    assert not second.try_acquire_or_renew()
    assert api.get(LEASE, "job", "kube-system")["metadata"]["annotations"] == {WAITS: "second"}
    clock.advance(11)
    assert second.try_acquire_or_renew()
    assert not api.get(LEASE, "job", "kube-system")["metadata"]["annotations"]
    with pytest.raises(Conflict):  # it still writes on top of what it wrote last
        first.try_acquire_or_renew()
    assert not first.try_acquire_or_renew()
    assert api.get(LEASE, "job", "kube-system")["metadata"]["annotations"] == {WAITS: "first"}


def test_a_leader_that_finds_another_one_stops_before_it_waits(api):
    clock = FakeClock()
    first, second = elector(api, "first", clock), elector(api, "second", clock)
    assert first.try_acquire_or_renew()
    assert not second.try_acquire_or_renew()
    clock.advance(11)
    assert second.try_acquire_or_renew()
    assert not first._renew(Token(0, 0))
    assert not api.get(LEASE, "job", "kube-system")["metadata"]["annotations"]


def test_who_cannot_write_that_he_waits_waits_all_the_same():
    class Unwritable(FakeApi):
        def update(self, *_: Any, **__: Any) -> JsonObject:
            raise passing_error()

    api, clock = Unwritable(), FakeClock()
    assert elector(api, "first", clock).try_acquire_or_renew()  # a create
    assert not elector(api, "second", clock).try_acquire_or_renew()


def test_who_may_not_write_that_he_waits_tries_again_after_a_minute():
    tried_s: list[float] = []

    class Refusing(FakeApi):
        def update(self, *_: Any, **__: Any) -> JsonObject:
            tried_s.append(clock.monotonic())
            raise Forbidden(LEASE, "job", "the prefix minik8s.io/ is reserved")

    api, clock = Refusing(), FakeClock()
    assert elector(api, "first", clock, timings=Timings(lease_s=1000)).try_acquire_or_renew()
    second = elector(api, "second", clock)
    for _ in range(35):
        assert not second.try_acquire_or_renew()
        clock.advance(2)
    assert tried_s == [0, 60]


def test_a_lease_that_a_candidate_has_just_written_to_is_released(api):
    clock = FakeClock()
    first, second = elector(api, "first", clock), elector(api, "second", clock)
    assert first.try_acquire_or_renew()
    assert not second.try_acquire_or_renew()
    first.release()
    assert second.try_acquire_or_renew()


def test_a_lease_whose_last_renewal_failed_is_released(api):
    clock = FakeClock()
    first, second = elector(api, "first", clock), elector(api, "second", clock)
    assert first.try_acquire_or_renew()
    api.fail(ApiUnreachable("down"))
    with pytest.raises(ApiUnreachable):
        first.try_acquire_or_renew()
    first.release()
    assert second.try_acquire_or_renew()


def test_somebody_elses_lease_is_not_released(api):
    clock = FakeClock()
    first, second = elector(api, "first", clock), elector(api, "second", clock)
    assert first.try_acquire_or_renew()
    assert not second.try_acquire_or_renew()
    second.release()
    assert holder(api) == "first"


def test_a_leader_whose_lease_was_taken_steps_down_at_its_next_renewals(api):
    stop = threading.Event()
    first = LeaderElector(api, "job", identity="first", timings=Timings(retry_s=0.02))

    def lead(_: Token, lost: threading.Event) -> None:
        with api.changed:
            lease = api.get(LEASE, "job", "kube-system")
            api.update(LEASE, {**lease, "spec": {**lease["spec"], "holderIdentity": "thief"}})
        assert lost.wait(60)
        stop.set()

    first.run(stop, lead)
    assert holder(api) == "thief"


def test_a_fenced_leader_takes_a_new_token_when_the_store_was_restored(api):
    stop = threading.Event()
    first = LeaderElector(api, "job", identity="first", fenced=True, timings=Timings(retry_s=0.02))
    tokens = []

    def lead(token: Token, lost: threading.Event) -> None:
        tokens.append(token)
        if len(tokens) > 1:
            stop.set()
            return
        assert not lost.wait(0.1)
        epoch = api.get(CONFIG_MAP, "minik8s-cluster", "kube-system")
        api.update(CONFIG_MAP, {**epoch, "data": {"epoch": "1700000000"}})
        assert lost.wait(60)

    first.run(stop, lead)
    assert [token.epoch for token in tokens] == [3, 1700000000]
    assert tokens[0] < tokens[1]


def test_on_stop_it_stops_leading_and_releases(api):
    stop = threading.Event()
    first = LeaderElector(api, "job", identity="first")
    leading = threading.Event()

    def lead(_: Token, lost: threading.Event) -> None:
        leading.set()
        assert lost.wait(60)
        assert holder(api) == "first"

    thread = threading.Thread(target=first.run, args=(stop, lead))
    thread.start()
    assert leading.wait(60)
    stop.set()
    thread.join(60)
    assert not thread.is_alive()
    assert holder(api) == ""
