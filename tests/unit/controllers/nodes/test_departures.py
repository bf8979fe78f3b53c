"""Nodes that leave, what becomes of their pods; each decision also cut off after every step (S-19)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import CONTROLLER_REVISION, NODE, POD, REPLICA_SET
from minik8s_modules.api.nodes.leaving import LEAVING
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.base.clock import FakeClock
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.controllers.core.steps import Patch, Step
from minik8s_modules.controllers.nodes.departures import (
    DepartureController,
    ReturnController,
    decide_leaving,
    decide_return,
    note_of,
    pod_of,
)
from minik8s_modules.controllers.nodes.orphans import QUARANTINE_S, OrphanController
from minik8s_modules.controllers.simulation.simulated_cluster import World
from minik8s_modules.runtime.controller import Context
from tests.support import workloads
from tests.support.waiting import until
from tests.support.workloads import NOW

CASES = Path(__file__).parents[3] / "cases"
ORIGINAL = {"minik8s.io/dialect": "original"}


def pod(fields: JsonObject) -> JsonObject:
    made = workloads.pod({"owner": "none", **fields}, REPLICA_SET, workloads.workload(REPLICA_SET, {}))
    marks = ORIGINAL if fields.get("original") else {}
    made["metadata"]["annotations"] = {
        **marks,
        **({"kubernetes.io/config.mirror": "x"} if fields.get("mirror") else {}),
    }
    return made


def node(fields: JsonObject | None) -> JsonObject | None:
    if fields is None:
        return None
    marks = {LEAVING: fields["leaving"]} if "leaving" in fields else {}
    spec = {"unschedulable": True} if fields.get("unschedulable") else {}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "annotations": marks}, "spec": spec}


def words(step: Step) -> str:
    if isinstance(step, Patch) and step.kind is NODE:
        marks = (step.body.get("metadata") or {}).get("annotations")
        return f"leaving {marks[LEAVING] or 'null'}" if marks else "cordon"
    return workloads.words(step)


def cases(of: str) -> list[Path]:
    return sorted((CASES / of).glob("*.yml"))


@pytest.mark.parametrize("path", cases("decide_leaving"), ids=lambda path: path.stem)
def test_decide_leaving(path: Path):
    message = yaml.safe_load(path.read_text(encoding="utf-8"))
    about, noted = node(message["node"]), frozenset(message.get("noted", []))
    assert about is not None
    pods = [pod(each) for each in message["pods"]]
    assert [words(step) for step in decide_leaving(about, pods, noted, NOW)] == message["steps"]


@pytest.mark.parametrize("path", cases("decide_return"), ids=lambda path: path.stem)
def test_decide_return(path: Path):
    message = yaml.safe_load(path.read_text(encoding="utf-8"))
    note = note_of(pod({"name": "a", "original": True}))
    there = (
        pod({"name": "a", "uid": message["pod"], "deleting": message.get("deleting", False)})
        if "pod" in message
        else None
    )
    assert [words(step) for step in decide_return(note, there, node(message.get("node")))] == message["steps"]


def play(world: World, cut: int) -> None:
    """Let the node depart and noted pods come back, with only ``cut`` steps taken before a crash, then all."""
    for most in (cut, 1000):
        taken = 0
        for _ in range(20):
            steps = decide(world)[: most - taken]
            taken += len(steps)
            for step in steps:
                world.take(NODE, {}, step)


def decide(world: World) -> list[Step]:
    found = world.all(NODE)
    notes = world.all(CONTROLLER_REVISION)
    noted = {objects.name(each).removeprefix("moved-") for each in notes}
    bound = [each for each in world.all(POD) if objects.spec(each).get("nodeName")]
    steps = decide_leaving(found[0], bound, noted, NOW) if found else []
    for note in notes:
        key = objects.Key(workloads.SPACE, note["data"]["metadata"]["name"])
        steps += decide_return(note, world.get(POD, key), found[0] if found else None)
    return steps


@pytest.mark.parametrize("cut", range(12))
def test_cut_off_anywhere_every_noted_pod_comes_back_once(cut: int):
    pods = [pod({"name": "a", "original": True}), pod({"name": "b"}), pod({"name": "c", "original": True})]
    leaving = node({"leaving": "departed"})
    assert leaving is not None
    world = World([leaving, *pods], NOW)
    play(world, cut)
    assert world.all(NODE) == []
    assert world.all(CONTROLLER_REVISION) == []
    left = {objects.name(each): objects.uid(each) for each in world.all(POD)}
    assert left.keys() == {"a", "c"}
    assert left["a"] != "uid-a"
    assert all("nodeName" not in objects.spec(each) for each in world.all(POD))


def test_a_pod_is_made_anew_from_what_its_user_wrote():
    was = pod({"name": "a", "original": True})
    was["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = "{}"
    was["spec"] = {
        "nodeName": "n1",
        "priority": 0,
        "containers": [{"name": "app", "volumeMounts": [{"name": "data"}, {"name": "kube-api-access-x"}]}],
        "volumes": [{"name": "data"}, {"name": "kube-api-access-x"}],
    }
    made = pod_of(note_of(was))
    assert made["spec"] == {
        "containers": [{"name": "app", "volumeMounts": [{"name": "data"}]}],
        "volumes": [{"name": "data"}],
    }
    assert made["metadata"]["annotations"] == {
        **ORIGINAL,
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
        "minik8s.io/replaces": "uid-a",
    }
    assert made["metadata"]["labels"] == {"app": "web"}
    assert not {"uid", "creationTimestamp"} & made["metadata"].keys()
    assert "status" not in made


@pytest.fixture
def running(context: Context) -> Iterator[None]:
    parts: list[DepartureController | ReturnController] = [DepartureController(context), ReturnController(context)]
    context.informers.start()
    for part in parts:
        part.start()
    yield
    for part in parts:
        part.stop()


def uid_of(api: FakeApi, name: str) -> str:
    try:
        return objects.uid(api.get(POD, name, workloads.SPACE))
    except NotFound:
        return ""


def made(api: FakeApi, fields: JsonObject) -> str:
    wanted = pod(fields)
    wanted["metadata"].pop("uid")
    return objects.uid(api.create(POD, wanted))


@pytest.mark.usefixtures("running")
def test_s_19_a_node_departs(api: FakeApi, context: Context):
    leaving = node({})
    assert leaving is not None
    api.create(NODE, leaving)
    before = made(api, {"name": "original", "original": True})
    made(api, {"name": "bare"})
    until(lambda: len(context.informers.of(POD).list()) == 2)
    api.patch(NODE, "n1", "", {"metadata": {"annotations": {LEAVING: "departed"}}})
    until(lambda: not api.list(NODE).items)
    until(lambda: uid_of(api, "original") not in {"", before})
    until(lambda: not uid_of(api, "bare"))
    until(lambda: not api.list(CONTROLLER_REVISION).items)
    assert "nodeName" not in api.get(POD, "original", workloads.SPACE)["spec"]


def test_s_19_a_node_is_deleted(api: FakeApi, clock: FakeClock, context: Context):
    before = made(api, {"name": "original", "original": True})
    made(api, {"name": "bare"})
    orphans, returns = OrphanController(context), ReturnController(context)
    context.informers.start()
    until(lambda: len(context.informers.of(POD).list()) == 2)
    orphans.sync(Key("", "n1"))
    clock.advance(QUARANTINE_S)
    orphans.sync(Key("", "n1"))
    assert not uid_of(api, "bare")
    returns.start()
    until(lambda: uid_of(api, "original") not in {"", before})
    until(lambda: not api.list(CONTROLLER_REVISION).items)
    returns.stop()


@pytest.mark.usefixtures("running")
def test_a_drain_that_is_called_off_leaves_no_note(api: FakeApi, context: Context):
    leaving = node({"leaving": "asked", "unschedulable": True})
    assert leaving is not None
    made(api, {"name": "original", "original": True})
    until(lambda: len(context.informers.of(POD).list()) == 1)
    api.create(NODE, leaving)
    until(lambda: api.get(NODE, "n1")["metadata"]["annotations"].get(LEAVING) == "ready")
    assert len(api.list(CONTROLLER_REVISION).items) == 1
    api.patch(NODE, "n1", "", {"spec": {"unschedulable": None}})
    until(lambda: not api.list(CONTROLLER_REVISION).items)
    assert LEAVING not in api.get(NODE, "n1")["metadata"]["annotations"]
