"""An object that cannot be read, which somebody put into the store by hand, keeps no controller from the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import DAEMON_SET, NODE, POD, REPLICA_SET, Kind
from minik8s_modules.base.clock import FakeClock
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.controllers.cleanup.pod_gc import PodGc
from minik8s_modules.controllers.nodes.taints import TaintController
from minik8s_modules.controllers.workloads.daemonsets import DaemonSetController
from minik8s_modules.controllers.workloads.replicasets import ReplicaSetController
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.informers import Informers
from tests.support.waiting import until
from tests.support.workloads import NOW, SPACE, ago, workload

PARTS: tuple[dict[str, Any], ...] = (
    {"spec": "text"},
    {"spec": ["x"]},
    {"status": "text"},
    {"status": [None]},
    {"spec": 5},
)


@pytest.fixture
def context() -> Iterator[Context]:
    clock = FakeClock(NOW)
    api = FakeApi(clock)
    made = Context(api, EventRecorder(api, "t", clock=clock), Informers(api, clock), clock)
    yield made
    made.informers.stop()
    made.pool.shutdown()


def damage(api: FakeApi, kind: Kind, sound: dict[str, Any]) -> None:
    """Make objects like ``sound``, each with a part of another type."""
    for number, part in enumerate(PARTS):
        meta = {**sound["metadata"], "name": f"{sound['metadata']['name']}-{number}", "uid": f"bad-{number}"}
        api.create(kind, {**sound, "metadata": meta, **part})


def runs(context: Context, controller: Any, condition: Callable[[], object]) -> None:
    """Run a controller until ``condition`` is true."""
    context.informers.start()
    controller.start()
    try:
        until(condition)
    finally:
        controller.stop()


def node(name: str, ready: str = "True") -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": ready, "lastTransitionTime": ago(100)}]
    return {"metadata": {"name": name}, "spec": {}, "status": {"conditions": conditions}}


def test_a_replica_set_has_its_pods_beside_others_that_cannot_be_read(context: Context) -> None:
    api: FakeApi = context.client  # type: ignore[assignment]
    sound = workload(REPLICA_SET, {"replicas": 2})
    damage(api, REPLICA_SET, sound)
    damage(
        api, POD, {"metadata": {"name": "p", "namespace": SPACE, "labels": {"app": "web"}}, "spec": {}, "status": {}}
    )
    api.create(REPLICA_SET, workload(REPLICA_SET, {"replicas": 2, "selector": {"matchLabels": {"app": "own"}}}, "own"))
    controller = ReplicaSetController(context)

    def made() -> int:
        owners = [objects.controller_of(each) or {} for each in api.list(POD, SPACE).items]
        return len([each for each in owners if each.get("name") == "own"])

    runs(context, controller, lambda: made() == 2)


def test_a_daemon_set_has_pods_on_the_nodes_that_can_be_read(context: Context) -> None:
    api: FakeApi = context.client  # type: ignore[assignment]
    damage(api, NODE, {**node("bad"), "spec": {"taints": "text"}})
    api.create(NODE, {**node("worse"), "spec": {"taints": ["x"]}})
    api.create(NODE, node("good"))
    api.create(DAEMON_SET, workload(DAEMON_SET, {"updateStrategy": {"type": "OnDelete"}}))
    runs(context, DaemonSetController(context), lambda: "good" in str(api.list(POD, SPACE).items))


def test_a_silent_node_is_tainted_beside_nodes_that_cannot_be_read(context: Context) -> None:
    api: FakeApi = context.client  # type: ignore[assignment]
    damage(api, NODE, node("bad"))
    for name, ready in (("good", "True"), ("other", "True"), ("silent", "Unknown")):
        api.create(NODE, node(name, ready))
    runs(context, TaintController(context), lambda: objects.spec(api.get(NODE, "silent")).get("taints"))


def test_pods_that_have_ended_go_beside_what_cannot_be_read(context: Context) -> None:
    api: FakeApi = context.client  # type: ignore[assignment]
    damage(api, NODE, node("bad"))
    damage(api, POD, {"metadata": {"name": "bad", "namespace": SPACE, "deletionTimestamp": "2026-01-01T00:00:00Z"}})
    for number in range(3):
        meta = {"name": f"p{number}", "namespace": SPACE}
        api.create(POD, {"metadata": meta, "spec": {}, "status": {"phase": "Succeeded"}})
    controller = PodGc(context, terminated_pods=1)
    context.informers.start()
    until(lambda: len(context.informers.of(POD).list()) == 3 + len(PARTS))
    until(lambda: context.informers.of(NODE).list())
    controller.sync(objects.Key("", "all"))
    assert len([each for each in api.list(POD, SPACE).items if objects.name(each).startswith("p")]) == 1
