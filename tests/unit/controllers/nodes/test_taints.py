"""Taints of nodes, evictions by them: tests/cases/decide_taints and decide_eviction, cut off after every step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound, StatusError
from minik8s_modules.api.kinds import NODE, POD, REPLICA_SET
from minik8s_modules.base.clock import FakeClock, parse_rfc3339
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.controllers.core.steps import Patch, RecordEvent, Step
from minik8s_modules.controllers.nodes import taints
from minik8s_modules.controllers.nodes.taint_eviction import TaintEvictionController, decide_eviction, taint_id
from minik8s_modules.controllers.nodes.taints import TaintController, decide_taints
from minik8s_modules.controllers.simulation.simulated_cluster import World
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.informers import Informers
from tests.support.waiting import until
from tests.support.workloads import NOW, SPACE, ago, cut_off, pod, words, workload

ROOT = Path(__file__).parents[3] / "cases"
TAINTS, EVICTIONS = (sorted((ROOT / name).glob("*.yml")) for name in ("decide_taints", "decide_eviction"))
PREFIX = "node.kubernetes.io/"


def node(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    taints: list[dict[str, Any]] = [{"key": "example.com/other", "effect": "NoExecute"}] if "others" in fields else []
    if "taint" in fields:
        taints.append({"key": PREFIX + fields["taint"], "effect": "NoExecute", "timeAdded": ago(77)})
    ready = {"type": "Ready", "status": fields.get("ready"), "lastTransitionTime": ago(fields.get("since", 5))}
    labels = {
        "topology.kubernetes.io/zone": fields.get("zone", ""),
        **({"type": "kwok"} if "virtual" in fields else {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints},
        "status": {"conditions": [ready] if "ready" in fields else []},
    }


def named(step: Step) -> str:
    match step:
        case Patch(_, obj, body):
            keys = [each["key"] for each in body["spec"]["taints"] or []]
            ours = [key.removeprefix(PREFIX) for key in keys if key.startswith(PREFIX)]
            more = " with others" if "example.com/other" in keys else ""
            return f"{objects.name(obj)} {' '.join(ours) or 'none'}{more}"
        case RecordEvent(obj):
            return f"tell {objects.name(obj)}"
    return words(step)


@pytest.mark.parametrize("path", TAINTS, ids=lambda path: path.stem)
def test_decide_taints(path: Path):
    case = yaml.safe_load(path.read_text(encoding="utf-8"))
    nodes = [node(name, one) for name, one in case["nodes"].items()]
    steps = decide_taints(nodes, case.get("last"), NOW)
    assert [named(step) for step in steps] == case["steps"]
    if "kept" in case:
        assert isinstance(steps[0], Patch)
        assert steps[0].body["spec"]["taints"][0]["timeAdded"] == ago(77)
    # cut off after any step, it comes to the same, if time passes
    ends = set()
    for cut in range(len(steps) + 1):
        world = World(nodes, NOW)
        for step in steps[:cut]:
            world.take(NODE, nodes[0], step)
        for _ in range(8):
            for step in decide_taints(world.all(NODE), None, NOW):
                world.take(NODE, nodes[0], step)
        ends.add(str([each["spec"] for each in world.all(NODE)]))
    assert len(ends) == 1


def evicted(case: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    taints: list[dict[str, Any]] = [dict(each) for each in case["taints"]]
    for taint in taints:
        if "added" in taint:
            taint["timeAdded"] = ago(taint.pop("added"))
    fields: dict[str, Any] = {"name": "p", "node": "n1"}
    fields |= {field: case[field] for field in ("phase", "deleting") if field in case}
    made = pod(fields, REPLICA_SET, workload(REPLICA_SET, {}))
    made["spec"]["tolerations"] = case.get("tolerations", [])
    if "scheduled" in case:
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": ago(case["scheduled"])}
        made["status"]["conditions"] = [scheduled]
    on = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "spec": {"taints": taints}}
    return made, on


@pytest.mark.parametrize("path", EVICTIONS, ids=lambda path: path.stem)
def test_decide_eviction(path: Path):
    case = yaml.safe_load(path.read_text(encoding="utf-8"))
    made, on = evicted(case)
    moments = {taint_id(on, each): World([], NOW).now for each in on["spec"]["taints"]}
    if "seen" in case:
        moments = dict.fromkeys(moments, parse_rfc3339(ago(case["seen"])))

    def decide(_world: World, about: dict[str, Any]) -> list[Step]:
        return decide_eviction(about, on, moments, NOW)

    steps = decide(World([], NOW), made)
    assert [words(step) for step in steps] == case["steps"]
    ends = cut_off(lambda: [made], POD, objects.Key(SPACE, "p"), decide)
    goes = any(step.startswith("delete") for step in case["steps"])
    assert [world.get(POD, objects.Key(SPACE, "p")) is None for world in ends[: len(steps)]] == [goes] * len(
        ends[: len(steps)]
    )
    assert decide_eviction(made, None, moments, NOW) == []


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def eviction(api: FakeApi, clock: FakeClock) -> Iterator[TaintEvictionController]:
    """Both controllers at work; a fake clock wakes nobody, so tests call ``sync`` when time has passed."""
    context = Context(api, EventRecorder(api, "c", clock=clock), Informers(api), clock)
    running = (TaintController(context), TaintEvictionController(context))
    context.informers.start()
    for each in running:
        each.start()
    yield running[1]
    for each in running:
        each.stop()
    context.informers.stop()
    context.pool.shutdown()


def test_a_silent_node_loses_its_pods_after_what_they_tolerate_and_not_when_it_comes_back(
    api: FakeApi, clock: FakeClock, eviction: TaintEvictionController
):
    tolerated = {"key": f"{PREFIX}unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for name in ("a", "b"):
        api.create(NODE, {"metadata": {"name": name}, "spec": {}, "status": ready("True")})
        spec = {"nodeName": name, "tolerations": [tolerated]}
        made = {"metadata": {"name": f"on-{name}", "namespace": SPACE}, "spec": spec, "status": {"phase": "Running"}}
        api.create(POD, made)
    api.patch(NODE, "b", "", {"status": ready("Unknown")}, subresource="status")
    until(lambda: tainted(api, "b"))
    clock.advance(299)
    api.patch(NODE, "b", "", {"status": ready("True")}, subresource="status")
    until(lambda: not tainted(api, "b"))
    clock.advance(60)
    api.patch(NODE, "a", "", {"status": ready("Unknown")}, subresource="status")
    until(lambda: tainted(api, "a"))
    eviction.sync(objects.Key(SPACE, "on-a"))
    assert not gone(api, "on-a")
    clock.advance(301)
    until(lambda: gone_after_a_look(api, eviction, "on-a"))
    eviction.sync(objects.Key(SPACE, "on-b"))
    assert not gone(api, "on-b")


def test_nodes_that_take_long_to_look_at_are_not_looked_at_again_with_each_change_of_one(
    api: FakeApi, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
):
    looks: list[float] = []

    def slowly(*_: object) -> list[Step]:
        looks.append(clock.monotonic())
        clock.advance(takes_s)
        return []

    monkeypatch.setattr(taints, "decide_taints", slowly)
    context = Context(api, EventRecorder(api, "c", clock=clock), Informers(api), clock)
    controller = TaintController(context)
    for takes_s, rest_s in ((0.0005, 0.0), (0.05, 0.5), (3.0, 1.0)):
        looks.clear()
        key = objects.Key("", "all")
        controller.sync(key)
        clock.advance(max(0.0, rest_s - 0.01))
        controller.sync(key)
        assert len(looks) == (1 if rest_s else 2), takes_s
        clock.advance(1.0)
        controller.sync(key)
        assert len(looks) == (2 if rest_s else 3), takes_s
        clock.advance(1.0)
    context.pool.shutdown()


def ready(status: str) -> dict[str, Any]:
    return {"conditions": [{"type": "Ready", "status": status}]}


def gone_after_a_look(api: FakeApi, eviction: TaintEvictionController, name: str) -> bool:
    with contextlib.suppress(StatusError):
        eviction.sync(objects.Key(SPACE, name))
    return gone(api, name)


def tainted(api: FakeApi, name: str) -> bool:
    return bool(objects.spec(api.get(NODE, name)).get("taints"))


def gone(api: FakeApi, name: str) -> bool:
    try:
        return objects.is_deleting(api.get(POD, name, SPACE))
    except NotFound:
        return True


def test_there_are_cases():
    assert len(TAINTS) >= 12
    assert len(EVICTIONS) >= 12
