"""A key waits until the copies show all that was written for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from minik8s_modules.api.kinds import POD, REPLICA_SET
from minik8s_modules.api.objects import Key
from minik8s_modules.base.clock import FakeClock
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.runtime.expectations import TIMEOUT_S, Expectations
from minik8s_modules.runtime.informers import Informers
from tests.support.waiting import until

KEY = Key("shop", "web")


def pod(name: str) -> dict[str, object]:
    return {"metadata": {"name": name, "namespace": "shop"}, "spec": {"nodeName": "n"}}


class World:
    """An API, a copy of its pods that follows only when told to, and expectations."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.clock = FakeClock()
        self.informers = Informers(self.api)
        self.pods = self.informers.of(POD)
        self.expectations = Expectations(self.informers, self.clock)

    def catch_up(self) -> None:
        """Let the copy follow."""
        self.informers.start()
        assert self.pods.wait_synced(60)


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.informers.stop()


def test_nothing_is_waited_for_at_first(world: World):
    assert world.expectations.fulfilled(KEY)


def test_a_write_is_waited_for_until_the_copy_has_its_revision(world: World):
    world.expectations.wrote(KEY, POD, world.api.create(POD, pod("a")))
    assert not world.expectations.fulfilled(KEY)
    assert world.expectations.fulfilled(Key("shop", "other"))
    world.catch_up()
    assert world.expectations.fulfilled(KEY)


def test_of_several_writes_the_last_counts(world: World):
    world.expectations.wrote(KEY, POD, world.api.create(POD, pod("a")))
    world.catch_up()
    later = {"metadata": {"resourceVersion": str(10**9)}}
    world.expectations.wrote(KEY, POD, later)
    assert not world.expectations.fulfilled(KEY)


def test_what_was_made_and_unmade_between_two_lists_is_not_waited_for(world: World):
    world.expectations.wrote(KEY, POD, world.api.create(POD, pod("a")))
    world.api.delete(POD, "a", "shop", grace_s=0)
    world.catch_up()
    assert world.expectations.fulfilled(KEY)


def test_a_deletion_is_waited_for_until_it_is_marked_or_gone(world: World):
    doomed = world.api.create(POD, pod("a"))
    world.catch_up()
    world.expectations.deleted(KEY, POD, doomed)
    assert not world.expectations.fulfilled(KEY)
    world.api.delete(POD, "a", "shop")
    until(lambda: world.expectations.fulfilled(KEY))


def test_an_object_of_the_same_name_is_another_one(world: World):
    world.api.create(POD, pod("a"))
    world.catch_up()
    world.expectations.deleted(KEY, POD, {"metadata": {"name": "a", "namespace": "shop", "uid": "the one before"}})
    assert world.expectations.fulfilled(KEY)


def test_a_lost_answer_is_waited_for_until_somebody_has_looked(world: World):
    world.catch_up()
    world.expectations.unsure(KEY, POD, Key("shop", "a"))
    assert not world.expectations.fulfilled(KEY)
    assert [tuple(each) for each in world.expectations.take_unsure(KEY)] == [(POD, Key("shop", "a"))]
    assert world.expectations.fulfilled(KEY)
    assert world.expectations.take_unsure(KEY) == []


def test_nothing_is_waited_for_forever(world: World):
    world.expectations.wrote(KEY, REPLICA_SET, {"metadata": {"resourceVersion": "99"}})
    world.clock.advance(TIMEOUT_S - 1)
    assert not world.expectations.fulfilled(KEY)
    world.clock.advance(2)
    assert world.expectations.fulfilled(KEY)


def test_a_key_that_is_gone_is_forgotten(world: World):
    world.expectations.wrote(KEY, POD, {"metadata": {"resourceVersion": "99"}})
    world.expectations.forget(KEY)
    assert world.expectations.fulfilled(KEY)
