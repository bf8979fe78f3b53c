"""Owners and dependents that an extension API server keeps: collected as others are, and believed no further."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import API_SERVICE, CONFIG_MAP, Kind
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.base.clock import FakeClock, SystemClock
from minik8s_modules.client.errors import ApiUnreachable
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.client.silences import Silences
from minik8s_modules.client.transport import READ_TIMEOUT_S
from minik8s_modules.controllers.cleanup import collector as collectors
from minik8s_modules.controllers.cleanup.collector import GarbageCollector
from minik8s_modules.controllers.cleanup.extensions import Extended, is_sound
from minik8s_modules.controllers.core.steps import Delete, Patch
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.informers import Informers
from tests.support.waiting import until
from tests.support.workloads import SPACE

FLUNDER = Kind("wardle.example.com", "v1", "Flunder", "flunders", "")
NOTHING = Extended((), {})


class Api(FakeApi):
    """An API whose extension may have left: its paths are no longer there, as for a kind that nobody serves."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.offered, self.left = Extended((FLUNDER,), {}), False

    def get(self, kind: Kind, *args: Any, **kwargs: Any) -> JsonObject:
        """Return an object."""
        if kind == FLUNDER and self.left:
            raise NotFound.path()
        return super().get(kind, *args, **kwargs)


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    monkeypatch.setattr(collectors, "_LOOK_S", 0.05)
    api = Api()
    recorder = EventRecorder(api, "test")
    recorder.start()
    context = Context(api, recorder, Informers(api))
    collector = GarbageCollector(context, lambda: api.offered)
    context.informers.start()
    collector.start()
    yield api
    collector.stop()
    context.informers.stop()
    context.pool.shutdown()
    recorder.stop()


def make(api: FakeApi, kind: Kind, name: str, *owners: tuple[Kind, JsonObject]) -> JsonObject:
    references = [
        {"apiVersion": owner.api_version, "kind": owner.kind, "name": objects.name(obj), "uid": objects.uid(obj)}
        for owner, obj in owners
    ]
    return api.create(kind, {"metadata": {"name": name, "namespace": SPACE, "ownerReferences": references}})


def names(api: FakeApi, kind: Kind) -> set[str]:
    return {objects.name(each) for each in api.list(kind).items}


def test_an_extensions_object_goes_with_its_owner(api: Api):
    owner = make(api, CONFIG_MAP, "owner")
    make(api, FLUNDER, "owned", (CONFIG_MAP, owner))
    make(api, FLUNDER, "free")
    api.delete(CONFIG_MAP, "owner", SPACE)
    until(lambda: names(api, FLUNDER) == {"free"})


@pytest.fixture
def idle() -> Iterator[GarbageCollector]:
    """A collector that looks for extensions when it is told to."""
    api = FakeApi(SystemClock())
    context = Context(api, EventRecorder(api, "test"), Informers(api))
    collector = GarbageCollector(context)
    context.informers.start()
    yield collector
    context.informers.stop()
    context.pool.shutdown()


def test_without_extensions_nothing_is_asked_until_an_api_service_changes(idle: GarbageCollector):
    services = idle._informers[API_SERVICE]
    assert services.wait_synced(60)
    asked: list[str] = []

    def nothing() -> Extended:
        asked.append(services.resource_version)
        if len(asked) == 2:
            raise ApiUnreachable("away")  # which is no answer
        return Extended((), {}, may_change=False)

    def looks(number: int) -> int:
        for _ in range(number):
            with contextlib.suppress(ApiUnreachable):
                idle.look_for(nothing)
        return len(asked)

    assert looks(5) == 1
    idle._client.create(API_SERVICE, {"metadata": {"name": "v1.wardle.example.com"}})
    until(services.list)
    # one that failed, and two answers: another API server may be behind
    assert [looks(1), looks(1), looks(1), looks(5)] == [2, 3, 4, 4]


def test_extensions_are_asked_again_and_again(idle: GarbageCollector):
    assert idle._informers[API_SERVICE].wait_synced(60)
    asked: list[Extended] = []

    def something() -> Extended:
        asked.append(Extended((FLUNDER,), {}))
        return asked[-1]

    for _ in range(3):
        idle.look_for(something)
    assert len(asked) == 3


def test_an_extension_that_keeps_silent_holds_up_one_worker_at_a_time(
    idle: GarbageCollector, monkeypatch: pytest.MonkeyPatch
):
    clock, waited = FakeClock(), list[Kind]()
    idle._silences, idle._followed = Silences(clock), {FLUNDER.prefix: FLUNDER}

    def hangs(kind: Kind, *_: object, **__: object) -> JsonObject:
        waited.append(kind)
        clock.advance(READ_TIMEOUT_S)
        raise ApiUnreachable("Read timed out.")

    for verb in ("get", "delete", "patch"):
        monkeypatch.setattr(idle._client, verb, hangs)
    about = {"metadata": {"name": "a", "namespace": SPACE, "uid": "u"}}
    with pytest.raises(ApiUnreachable, match="Read timed out"):
        idle._is_absent("u", FLUNDER, Key(SPACE, "a"))
    with pytest.raises(ApiUnreachable, match="has kept silent"):
        idle._is_absent("v", FLUNDER, Key(SPACE, "b"))
    for step in (Delete(FLUNDER, about), Patch(FLUNDER, about, {"metadata": {}})):
        with pytest.raises(ApiUnreachable, match="has kept silent"):
            idle._take(step, alone=True)
    assert waited == [FLUNDER]
    other = replace(FLUNDER, plural="fischers", kind="Fischer")
    idle._followed[other.prefix] = other
    with pytest.raises(ApiUnreachable, match="Read timed out"):
        idle._is_absent("w", other, Key(SPACE, "c"))
    for name in ("a", "b"):  # the API server itself is asked as ever
        with pytest.raises(ApiUnreachable, match="Read timed out"):
            idle._is_absent(name, CONFIG_MAP, Key(SPACE, name))


def test_what_an_extensions_object_owns_goes_with_it(api: Api):
    owner = make(api, FLUNDER, "owner")
    make(api, CONFIG_MAP, "owned", (FLUNDER, owner))
    api.delete(FLUNDER, "owner", SPACE)
    until(lambda: not names(api, CONFIG_MAP))


def test_an_owner_that_went_before_the_extension_was_known_is_missed_later(api: Api):
    api.offered = NOTHING
    make(api, CONFIG_MAP, "owned", (FLUNDER, {"metadata": {"name": "gone", "uid": "u-gone"}}))
    make(api, CONFIG_MAP, "sentinel", (CONFIG_MAP, {"metadata": {"name": "gone", "uid": "u-gone-too"}}))
    until(lambda: names(api, CONFIG_MAP) == {"owned"})
    api.offered = Extended((FLUNDER,), {})
    until(lambda: not names(api, CONFIG_MAP))


@pytest.mark.parametrize("offered", [NOTHING, Extended((), {"wardle.example.com/v1": "away"}), None])
def test_an_extension_that_left_takes_nothing_with_it(api: Api, offered: Extended | None):
    """Its paths answer 404 by then, which says nothing of what it keeps; the last: before anybody was told."""
    make(api, FLUNDER, "first")
    api.left = True
    api.offered = offered or api.offered
    make(api, CONFIG_MAP, "owned", (FLUNDER, {"metadata": {"name": "somebody", "uid": "u-somebody"}}))
    for number in range(3):  # each is looked at behind the one above
        gone = {"metadata": {"name": "gone", "uid": f"u-gone-{number}"}}
        make(api, CONFIG_MAP, f"sentinel-{number}", (CONFIG_MAP, gone))
        until(lambda: names(api, CONFIG_MAP) == {"owned"})


def test_a_uid_of_somebody_elses_object_counts_for_nothing(api: Api):
    mine = make(api, CONFIG_MAP, "mine")
    make(api, CONFIG_MAP, "owned", (CONFIG_MAP, mine))
    gone = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "u-gone"}
    liar = {"name": "liar", "namespace": SPACE, "uid": objects.uid(mine), "ownerReferences": [gone]}
    api.create(FLUNDER, {"metadata": liar})
    make(api, FLUNDER, "sentinel", (CONFIG_MAP, {"metadata": {"name": "gone", "uid": "u-gone-too"}}))
    until(lambda: "sentinel" not in names(api, FLUNDER))
    assert names(api, CONFIG_MAP) == {"mine", "owned"}


@pytest.mark.parametrize(
    ("changes", "sound"),
    [
        ({}, True), ({"ownerReferences": None}, True), ({"finalizers": ["a"]}, True), ({"uid": ""}, False),
        ({"uid": 7}, False), ({"name": None}, False), ({"namespace": 7}, False), ({"finalizers": "a"}, False),
        ({"finalizers": [7]}, False), ({"ownerReferences": {"a": 1}}, False), ({"ownerReferences": [7]}, False),
        ({"ownerReferences": [{"uid": 7}]}, False), ({"deletionTimestamp": 7}, False),
    ],
)  # fmt: skip
def test_what_can_be_read_of_an_object(changes: dict[str, Any], sound: bool):  # noqa: FBT001 - a case
    assert is_sound({"metadata": {"name": "a", "uid": "u", **changes}}) is sound
    assert not is_sound({"metadata": 7})
    assert not is_sound({})
