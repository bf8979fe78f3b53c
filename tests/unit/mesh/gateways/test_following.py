"""The copies of routes within the mesh: informers call with their lock held, and nobody may wait for anybody then."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from minik8s_modules.api.kind import Kind
from minik8s_modules.api.kinds import CUSTOM_RESOURCE_DEFINITION
from minik8s_modules.api.network.gateway_api import GATEWAY_KINDS
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import FakeClock
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.client.informer import Informer
from minik8s_modules.mesh.gateways.following import RouteCopies
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.informers import Informers
from tests.support.gateway_api import definitions
from tests.support.waiting import until
from tests.unit.mesh.gateways.test_meshing import within

LONG_S = 60.0


@pytest.fixture
def api() -> FakeApi:
    api = FakeApi(FakeClock())
    for each in definitions():
        held = [{"type": kind, "status": "True"} for kind in ("NamesAccepted", "Established")]
        status = {"acceptedNames": each["spec"]["names"], "conditions": held}
        made = api.create(CUSTOM_RESOURCE_DEFINITION, each)
        api.update(CUSTOM_RESOURCE_DEFINITION, {**made, "status": status}, subresource="status")
    return api


@pytest.fixture
def context(api: FakeApi) -> Iterator[Context]:
    clock = FakeClock()
    context = Context(api, EventRecorder(api, "c", clock=clock), Informers(api), clock)
    yield context
    # in a thread of its own: two that wait for each other would keep the test itself from ending
    ending = threading.Thread(target=context.informers.stop, daemon=True)
    ending.start()
    ending.join(LONG_S)
    context.pool.shutdown()


def grant(name: str) -> JsonObject:
    spec = {"from": [], "to": [{"group": "", "kind": "Service"}]}
    return {"metadata": {"name": name, "namespace": "shop"}, "spec": spec}


def kinds_of(context: Context) -> list[Kind]:
    """Return the kinds of routes and grants as they are defined."""
    wanted = {GATEWAY_KINDS.routes.kind, GATEWAY_KINDS.grants.kind}
    return [each for each in context.informers.custom.all() if each.kind in wanted]


def before_copies(context: Context, of_kind: Callable[[Kind, Informer], None]) -> None:
    """Have ``of_kind`` see the informers of routes and grants before the copies do: its handlers are called first."""

    def seen(kind: Kind, present: bool) -> None:  # noqa: FBT001 - a follower's signature
        if present and kind.kind in {GATEWAY_KINDS.routes.kind, GATEWAY_KINDS.grants.kind}:
            of_kind(kind, context.informers.of(kind))

    context.informers.custom.follow(seen)


def test_a_reader_and_an_informer_that_tells_do_not_wait_for_each_other(
    api: FakeApi, context: Context, monkeypatch: pytest.MonkeyPatch
):
    told, reading = threading.Event(), threading.Event()
    reader = threading.Thread(target=lambda: (told.wait(LONG_S), copies.get()), daemon=True)

    def slow(_old: JsonObject | None, _new: JsonObject | None) -> None:
        told.set()
        assert reading.wait(LONG_S)  # the reader has come to this informer's lock, which this thread holds

    def meddle(kind: Kind, informer: Informer) -> None:
        if kind.kind == GATEWAY_KINDS.grants.kind:
            informer.add_handler(slow)
            monkeypatch.setattr(informer, "list", partial(_listed, informer, reader, reading))

    before_copies(context, meddle)
    copies = RouteCopies(context)
    copies.start()
    context.informers.start()
    try:
        until(lambda: copies.ready)
        reader.start()
        api.create(GATEWAY_KINDS.grants, grant("one"))
        reader.join(LONG_S)
        assert not reader.is_alive(), "it holds a lock that the informer's thread waits for, which holds the other"
        api.create(GATEWAY_KINDS.routes, within())
        until(lambda: (len(copies.get().routes), len(copies.get().grants)) == (1, 1))
    finally:
        copies.stop()


def _listed(informer: Informer, reader: threading.Thread, reading: threading.Event) -> list[JsonObject]:
    if threading.current_thread() is reader:
        reading.set()
    return Informer.list(informer)


def test_two_informers_that_tell_at_once_do_not_wait_for_each_other(api: FakeApi, context: Context):
    both = threading.Barrier(2)
    heard = threading.Semaphore(0)

    def meet(_old: JsonObject | None, _new: JsonObject | None) -> None:
        both.wait(LONG_S)

    def after(_old: JsonObject | None, _new: JsonObject | None) -> None:
        heard.release()

    before_copies(context, lambda _kind, informer: informer.add_handler(meet))
    copies = RouteCopies(context)
    copies.start()
    before_copies(context, lambda _kind, informer: informer.add_handler(after))
    context.informers.start()
    try:
        until(lambda: copies.ready)
        for number in range(20):
            api.create(GATEWAY_KINDS.grants, grant(f"g{number}"))
            api.create(GATEWAY_KINDS.routes, within(f"r{number}"))
            assert heard.acquire(timeout=LONG_S)
            assert heard.acquire(timeout=LONG_S)
    finally:
        copies.stop()


def test_who_follows_is_told_of_every_last_change_and_of_none_that_changes_nothing(api: FakeApi, context: Context):
    copies = RouteCopies(context)
    seen: list[int] = []
    copies.follow(lambda: seen.append(len(copies.get().routes)))
    copies.start()
    context.informers.start()
    try:
        until(lambda: copies.ready)
        made = api.create(GATEWAY_KINDS.routes, within())
        until(lambda: seen[-1:] == [1])
        before = len(seen)
        api.update(GATEWAY_KINDS.routes, {**made, "status": {"parents": []}}, subresource="status")
        api.delete(GATEWAY_KINDS.routes, "web", "shop")
        until(lambda: seen[-1:] == [0])
        assert len(seen) == before + 1
        assert kinds_of(context)
        for each in definitions():
            api.delete(CUSTOM_RESOURCE_DEFINITION, each["metadata"]["name"])
        until(lambda: not kinds_of(context))
        assert copies.ready
    finally:
        copies.stop()
    assert not any(each.name == "mesh-routes" and each.is_alive() for each in threading.enumerate())
