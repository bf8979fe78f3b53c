"""Pods of nodes that nobody hears of: tests/cases/decide_silence, and the controller by a fake clock."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import NODE, POD, REPLICA_SET
from minik8s_modules.api.objects import Key
from minik8s_modules.base.clock import FakeClock
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.controllers.nodes.silent_nodes import UNHEARD_S, SilentNodeController, decide_silence
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.informers import Informers
from tests.support.waiting import until
from tests.support.workloads import NOW, SPACE, pod, words, workload

CASES = sorted((Path(__file__).parents[3] / "cases" / "decide_silence").glob("*.yml"))
PODS: list[dict[str, Any]] = [{"name": "a", "ready": 5}, {"name": "b", "ready": 9}, {"name": "waits"}]
ENDED: dict[str, Any] = {"name": "ended", "ready": 5, "phase": "Succeeded"}


def node(name: str, ready: str) -> dict[str, Any]:
    condition = {"type": "Ready", "status": ready}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"conditions": [condition]}}


def pods(*fields: dict[str, Any]) -> list[dict[str, Any]]:
    return [pod(each, REPLICA_SET, workload(REPLICA_SET, {})) for each in fields]


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_decide_silence(path: Path):
    case = yaml.safe_load(path.read_text())
    nodes: list[dict[str, Any]] = [node(name, ready) for name, ready in case["nodes"].items()]
    for each in nodes:
        if each["metadata"]["name"] in case.get("virtual", []):
            each["metadata"]["labels"] = {"type": "virtual-kubelet"}
    steps = decide_silence(nodes[0], nodes, pods(*PODS, ENDED), case["silent"], NOW)
    assert [words(step) for step in steps] == case["steps"]


@pytest.fixture
def api() -> FakeApi:
    api = FakeApi()
    for one in (node("n1", "True"), node("n2", "True")):
        api.create(NODE, one)
    for each in pods(*PODS):
        api.create(POD, each)
    return api


@pytest.fixture
def controller(api: FakeApi, clock: FakeClock) -> Iterator[SilentNodeController]:
    context = Context(api, EventRecorder(api, "c", clock=clock), Informers(api, clock=clock), clock)
    controller = SilentNodeController(context)
    context.informers.start()
    controller.start()
    yield controller
    controller.stop()
    context.informers.stop()


def ready(api: FakeApi, name: str) -> str:
    return str((objects.condition(api.get(POD, name, SPACE), "Ready") or {}).get("status"))


def say(api: FakeApi, name: str, status: str) -> None:
    known = api.get(NODE, name)
    known["status"]["conditions"] = [{"type": "Ready", "status": status}]
    api.update(NODE, known, subresource="status")


def test_a_node_that_stays_silent_takes_its_pods_readiness_along(api, clock, controller):
    say(api, "n1", "Unknown")
    until(lambda: "n1" in controller._silent_since_s)
    assert ready(api, "a") == "True"
    clock.advance(UNHEARD_S)
    controller._loop.add(Key("", "n1"))  # its timer sleeps in real time
    until(lambda: ready(api, "a") == ready(api, "b") == "False")
    assert ready(api, "waits") == "None"


def test_a_node_that_comes_back_in_time_loses_nothing(api, clock, controller):
    say(api, "n1", "Unknown")
    until(lambda: "n1" in controller._silent_since_s)
    say(api, "n1", "True")
    until(lambda: "n1" not in controller._silent_since_s)
    clock.advance(UNHEARD_S)
    assert ready(api, "a") == "True"


def test_where_the_last_node_has_fallen_silent_pods_stay_as_they_were_until_another_node_is_ready(
    api, clock, controller
):
    for name in ("n1", "n2"):
        say(api, name, "Unknown")
    until(lambda: {"n1", "n2"} <= controller._silent_since_s.keys())
    clock.advance(UNHEARD_S)
    controller.sync(Key("", "n1"))
    assert ready(api, "a") == "True"
    say(api, "n2", "True")
    until(lambda: ready(api, "a") == ready(api, "b") == "False")


def test_a_change_of_one_node_has_no_other_node_looked_at(api, clock):
    """With thousands of nodes that would be a square."""
    context = Context(api, EventRecorder(api, "c", clock=clock), Informers(api, clock=clock), clock)
    controller = SilentNodeController(context)
    machine, other = node("n1", "True"), node("n2", "True")
    virtual = node("v", "True")
    virtual["metadata"]["labels"] = {"type": "kwok"}
    every, n1, n2, v = Key("", ""), Key("", "n1"), Key("", "n2"), Key("", "v")

    def keys(old: Any, new: Any) -> list[Key]:
        return list(controller._if_it_matters(old, new))

    assert keys(None, machine) == [n1, every]
    assert keys(None, other) == [n2]
    assert keys(None, virtual) == [v]
    assert keys(machine, machine) == []
    assert keys(machine, node("n1", "Unknown")) == [n1]
    assert keys(node("n1", "Unknown"), None) == [n1]
    assert keys(other, None) == [n2, every]  # the last machine; a virtual node says nothing of machines
    assert keys(virtual, None) == [v, every]
