"""The collector on an API that refuses and loses answers, killed in the middle: exactly what has no owner goes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound, StatusError
from minik8s_modules.api.kinds import CONFIG_MAP, EVENT, NODE, POD, REPLICA_SET, Kind
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.controllers.cleanup.collector import GarbageCollector
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.informers import Informers
from tests.support.load.storms import READS_TOO, StormyApi
from tests.support.waiting import until
from tests.support.workloads import SPACE

SETS, PODS = 4, 8


class Manager:
    """The collector, which may be killed and begun anew."""

    def __init__(self, api: FakeApi) -> None:
        self._api = api
        self.recorder = EventRecorder(api, "test")
        self.recorder.start()

    def start(self) -> None:
        """Begin."""
        self.context = Context(self._api, self.recorder, Informers(self._api))
        self._collector = GarbageCollector(self.context)
        self.context.informers.start()
        self._collector.start()

    def stop(self) -> None:
        """End."""
        self._collector.stop()
        self.context.informers.stop()
        self.context.pool.shutdown()


@pytest.fixture
def api(request: pytest.FixtureRequest) -> StormyApi:
    return StormyApi(getattr(request, "param", 1), verbs=READS_TOO, stormy=False)


@pytest.fixture
def manager(api: StormyApi) -> Iterator[Manager]:
    manager = Manager(api)
    manager.start()
    yield manager
    api.stormy = False
    manager.stop()
    manager.recorder.stop()


def owner(kind: Kind, obj: dict[str, Any]) -> dict[str, Any]:
    named = {"apiVersion": kind.api_version, "kind": kind.kind, "name": objects.name(obj), "uid": objects.uid(obj)}
    return {**named, "blockOwnerDeletion": True}


def make(api: FakeApi, kind: Kind, name: str, *owners: dict[str, Any], space: str = SPACE) -> dict[str, Any]:
    return api.create(kind, {"metadata": {"name": name, "namespace": space, "ownerReferences": [*owners]}})


def tree(api: FakeApi) -> None:
    root = make(api, CONFIG_MAP, "root")
    second = make(api, CONFIG_MAP, "second")
    for number in range(SETS):
        each = make(api, REPLICA_SET, f"set-{number}", owner(CONFIG_MAP, root))
        for index in range(PODS):
            make(api, POD, f"pod-{number}-{index}", owner(REPLICA_SET, each))
    make(api, POD, "shared", owner(CONFIG_MAP, root), owner(CONFIG_MAP, second))
    make(api, POD, "stranger")


def names(api: FakeApi, kind: Kind) -> set[str]:
    return {objects.name(each) for each in api.list(kind).items}


def delete_until_told(api: FakeApi, propagation: str) -> None:
    def is_reported() -> bool:
        try:
            api.delete(CONFIG_MAP, "root", SPACE, propagation=propagation)
        except NotFound:
            return True
        except (TemporaryError, StatusError):
            return False
        return True

    until(is_reported)


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
@pytest.mark.parametrize("api", range(3), indirect=True)
def test_in_a_storm_exactly_what_has_no_owner_goes(api: StormyApi, manager: Manager, policy: str):
    tree(api)
    api.stormy = True
    delete_until_told(api, policy)
    until(lambda: len(names(api, POD)) < SETS * PODS, 60)
    manager.stop()
    manager.start()
    until(lambda: names(api, POD) == {"shared", "stranger"}, 60)
    until(lambda: not names(api, REPLICA_SET) and names(api, CONFIG_MAP) == {"second"}, 60)
    api.stormy = False
    until(lambda: [each["name"] for each in references(api, "shared")] == ["second"], 60)


def references(api: FakeApi, name: str) -> list[dict[str, Any]]:
    return objects.owner_references(api.get(POD, name, SPACE))


@pytest.mark.parametrize("api", range(3), indirect=True)
def test_orphans_stay_in_a_storm(api: StormyApi, manager: Manager):
    tree(api)
    # the pods' own copies may lag behind the owner's deletion, in Kubernetes as here
    until(lambda: len(manager.context.informers.metadata_of(REPLICA_SET).list()) == SETS)
    api.stormy = True
    delete_until_told(api, "Orphan")
    until(lambda: names(api, CONFIG_MAP) == {"second"}, 60)
    assert len(names(api, REPLICA_SET)) == SETS
    assert len(names(api, POD)) == SETS * PODS + 2
    assert all(not objects.owner_references(each) for each in api.list(REPLICA_SET).items)


def test_what_came_while_nobody_looked_is_seen_at_the_start(api: StormyApi):
    make(api, POD, "child", owner(CONFIG_MAP, {"metadata": {"name": "gone", "uid": "uid-gone"}}))
    manager = Manager(api)
    manager.start()
    until(lambda: not names(api, POD))
    manager.stop()
    manager.recorder.stop()


def test_an_owner_in_another_namespace_is_none_and_told(api: StormyApi, manager: Manager):
    far = make(api, CONFIG_MAP, "far", space="elsewhere")
    until(lambda: manager.context.informers.metadata_of(CONFIG_MAP).list())
    make(api, POD, "child", owner(CONFIG_MAP, far))
    until(lambda: not names(api, POD))
    until(lambda: "OwnerRefInvalidNamespace" in {each["reason"] for each in api.list(EVENT).items})


def test_a_namespaced_owner_of_a_cluster_wide_object_is_never_missed(api: StormyApi, manager: Manager):
    gone = {"metadata": {"name": "gone", "uid": "uid-gone"}}
    api.create(NODE, {"metadata": {"name": "n1", "ownerReferences": [owner(CONFIG_MAP, gone)]}})
    until(lambda: "OwnerRefInvalidNamespace" in {each["reason"] for each in api.list(EVENT).items})
    assert names(api, NODE) == {"n1"}


def test_a_cluster_wide_owner_takes_what_it_owns_in_namespaces(api: StormyApi, manager: Manager):
    node = api.create(NODE, {"metadata": {"name": "n1"}})
    make(api, CONFIG_MAP, "of-node", owner(NODE, node))
    make(api, CONFIG_MAP, "of-nobody")
    api.delete(NODE, "n1")
    until(lambda: names(api, CONFIG_MAP) == {"of-nobody"})
