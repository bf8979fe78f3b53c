"""A controller's loop: what queues a key, and that nothing is decided on half a picture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from minik8s_modules.api.kinds import CONFIG_MAP, POD, REPLICA_SET
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.client.errors import ApiUnreachable
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.controllers.core.owning import selector_of
from minik8s_modules.runtime.controller import Context, Loop
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.informers import Informers
from tests.support.waiting import until


class Seen:
    """A loop that notes the keys it is asked to sync."""

    def __init__(self, api: FakeApi) -> None:
        self.context = Context(api, EventRecorder(api, "t"), Informers(api))
        self.keys: list[Key] = []
        self.loop = Loop(self.context, "seen", self.keys.append, workers=1)

    def start(self) -> None:
        """Begin."""
        self.context.informers.start()
        self.loop.start()

    def stop(self) -> None:
        """End."""
        self.loop.stop()
        self.context.informers.stop()
        self.context.pool.shutdown()


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def seen(api: FakeApi) -> Iterator[Seen]:
    seen = Seen(api)
    yield seen
    seen.stop()


def replica_set(name: str, app: str) -> dict[str, Any]:
    spec = {"selector": {"matchLabels": {"app": app}}}
    return {"metadata": {"name": name, "namespace": "shop"}, "spec": spec}


def test_owners_before_and_after_a_change_are_queued_and_selectors_for_orphans(api: FakeApi, seen: Seen):
    one = api.create(REPLICA_SET, replica_set("one", "web"))
    api.create(REPLICA_SET, replica_set("two", "web"))
    api.create(REPLICA_SET, replica_set("three", "db"))
    own = seen.loop.reads(REPLICA_SET, "namespace")
    seen.loop.watch_owned(POD, own, REPLICA_SET, selector_of)
    seen.start()
    until(lambda: len(own.list()) == 3)
    reference = {"kind": "ReplicaSet", "name": "one", "uid": one["metadata"]["uid"], "controller": True}
    meta = {"name": "p", "namespace": "shop", "labels": {"app": "web"}}
    api.create(POD, {"metadata": {**meta, "ownerReferences": [reference]}})
    until(lambda: seen.keys == [Key("shop", "one")])
    seen.keys.clear()
    api.patch(POD, "p", "shop", {"metadata": {"ownerReferences": None}})
    until(lambda: set(seen.keys) == {Key("shop", "one"), Key("shop", "two")})
    seen.keys.clear()
    stranger = {**reference, "uid": "of one that is gone"}
    api.create(POD, {"metadata": {**meta, "name": "q", "ownerReferences": [stranger]}})
    api.delete(POD, "q", "shop")
    api.patch(POD, "p", "shop", {"metadata": {"labels": {"app": "db"}}})
    until(lambda: Key("shop", "three") in seen.keys)
    assert Key("shop", "one") not in seen.keys


def test_nothing_is_synced_before_every_copy_is_complete(api: FakeApi, seen: Seen):
    api.create(CONFIG_MAP, {"metadata": {"name": "c", "namespace": "shop"}})
    listed = api.list

    def without_pods(kind: Any, *rest: Any, **more: Any) -> Any:
        if kind == POD:
            raise ApiUnreachable("cut")
        return listed(kind, *rest, **more)

    api.list = without_pods  # type: ignore[method-assign]  # one of two lists fails
    maps = seen.loop.watch_own(CONFIG_MAP)
    seen.loop.reads(POD)
    seen.start()
    until(maps.list)
    assert seen.keys == []
    api.list = listed  # type: ignore[method-assign]
    until(lambda: seen.keys == [Key("shop", "c")])


def test_a_change_that_is_not_understood_stops_nobody(api: FakeApi, seen: Seen):
    def stumble(_old: JsonObject | None, _new: JsonObject | None) -> list[Key]:
        raise ValueError("what is this")

    seen.loop.watch(CONFIG_MAP, stumble)
    seen.loop.watch_own(CONFIG_MAP)
    seen.start()
    api.create(CONFIG_MAP, {"metadata": {"name": "c", "namespace": "shop"}})
    until(lambda: seen.keys == [Key("shop", "c")])


def test_who_has_stopped_syncs_nothing_more(api: FakeApi, seen: Seen):
    seen.start()
    seen.loop.stop()
    seen.loop.add(Key("shop", "c"))
    assert seen.keys == []
