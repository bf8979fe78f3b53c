"""Pods of a Subset by label."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import POD, SUBSET
from minik8s_modules.api.network.subsets import pods_of
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import FakeClock
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.controllers.network.subsets import SubsetController, decide_subset
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.informers import Informers
from tests.support.waiting import until


def pod(name: str, **labels: str) -> JsonObject:
    return {"metadata": {"name": name, "namespace": "shop", "labels": labels}}


def subset(*pods: str, **labels: str) -> JsonObject:
    return {"metadata": {"name": "v2", "namespace": "shop"}, "spec": {"pods": [*pods], "labels": labels}}


def test_pods_with_the_labels_of_a_subset_are_named_in_its_status():
    one = subset("c", app="web", version="v2")
    pods = [pod("b", app="web", version="v2", more="x"), pod("a", app="web", version="v2"), pod("d", app="web")]
    going = pod("e", app="web", version="v2")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    found = decide_subset(one, [*pods, going])
    assert found is not None
    assert objects.status(found) == {"pods": ["a", "b"]}
    assert pods_of(found) == ["c", "a", "b"]
    assert decide_subset(found, [*pods, going]) is None


def test_a_subset_without_labels_has_no_pod_but_those_it_names():
    assert decide_subset(subset("c"), [pod("a"), pod("c")]) is None
    stale = {**subset("c"), "status": {"pods": ["a"]}}
    found = decide_subset(stale, [pod("a")])
    assert found is not None
    assert pods_of(found) == ["c"]


@pytest.fixture
def api() -> Iterator[FakeApi]:
    api = FakeApi(FakeClock())
    clock = FakeClock()
    context = Context(api, EventRecorder(api, "c", clock=clock), Informers(api), clock)
    controller = SubsetController(context)
    context.informers.start()
    controller.start()
    yield api
    controller.stop()
    context.informers.stop()
    context.pool.shutdown()


def test_it_follows_pods_that_come_change_and_go(api: FakeApi):
    api.create(SUBSET, subset(version="v2"))

    def named(*pods: str) -> None:
        until(lambda: pods_of(api.get(SUBSET, "v2", "shop")) == [*pods])

    api.create(POD, pod("a", version="v2"))
    api.create(POD, pod("b", version="v1"))
    named("a")
    api.update(POD, {**api.get(POD, "b", "shop"), "metadata": {**pod("b", version="v2")["metadata"]}})
    named("a", "b")
    api.delete(POD, "a", "shop")
    named("b")
