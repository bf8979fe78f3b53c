"""RollingUpdates: every file of tests/cases/decide_rolling_update is one decision, each cut off after every step.

The storms at the end play whole updates: nodes and sidecars that answer when they like, and a controller that is killed
after any step, paused, aborted and undone.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import POD, ROLLING_UPDATE, SERVICE
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.api.pods.mirror_pods import MIRROR
from minik8s_modules.api.pods.sidecars import with_sidecar
from minik8s_modules.api.schema.structural import unknown_fields
from minik8s_modules.controllers.core.steps import Create, Delete, Step, WriteStatus
from minik8s_modules.controllers.simulation.simulated_cluster import World
from minik8s_modules.controllers.workloads.rollingupdates import (
    FINALIZER,
    UPDATED_BY,
    ObservedWorkload,
    decide_rolling_update,
    is_at_work,
)
from tests.support.workloads import NOW, SPACE, ago, cut_off, words

CASES = sorted((Path(__file__).parents[3] / "cases" / "decide_rolling_update").glob("*.yml"))
EACH = pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
KEY = Key(SPACE, "update")
OLD, NEW = ({"containers": [{"name": "app", "image": image}]} for image in ("web:1", "web:2"))


def made_update(fields: dict[str, Any], status: dict[str, Any] | None, name: str = "update") -> JsonObject:
    fields, status = dict(fields), dict(status or {})
    meta: JsonObject = {"name": name, "namespace": SPACE, "uid": f"uid-{name}", "generation": 1}
    if fields.pop("finalizer", True):
        meta["finalizers"] = [FINALIZER]
    if fields.pop("deleting", False):
        meta["deletionTimestamp"] = ago(1)
    if "pods" in status:
        status["pods"] = [{"name": pod, "labels": {"app": "web"}, "spec": OLD} for pod in status["pods"]]
    if "age" in status:
        status["batchStartTime"] = ago(status.pop("age"))
    spec = {"serviceRef": "web", "port": 80, "minimumAlive": 1, "interval": 0, "newPodSpec": NEW, **fields}
    return {"apiVersion": "v1", "kind": "RollingUpdate", "metadata": meta, "spec": spec, "status": status}


def made_pod(name: str, fields: dict[str, Any]) -> JsonObject:
    meta: JsonObject = {"name": name, "namespace": SPACE, "uid": f"uid-{name}"}
    meta["labels"] = fields.get("labels", {"app": "web"})
    if fields.get("new"):
        meta["annotations"] = {UPDATED_BY: "uid-update"}
    if fields.get("static"):
        meta["annotations"] = {MIRROR: "hash"}
    if fields.get("deleting"):
        meta["deletionTimestamp"] = ago(1)
    if "owner" in fields:
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": fields["owner"], "uid": "x", "controller": True}
        meta["ownerReferences"] = [owner]
    spec: JsonObject = dict(NEW if fields.get("new") else OLD)
    spec = {"nodeName": "n1", **(with_sidecar(spec) if fields.get("sidecar") else spec)}
    status = {
        "phase": fields.get("phase", "Running"),
        "podIP": "10.244.0.1",
        **ready(is_ready=bool(fields.get("ready"))),
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}


def ready(*, is_ready: bool) -> JsonObject:
    return {"conditions": [{"type": "Ready", "status": str(is_ready), "lastTransitionTime": ago(9)}]}


def read(path: Path) -> tuple[dict[str, Any], list[JsonObject]]:
    case = yaml.safe_load(path.read_text(encoding="utf-8"))
    service = {"selector": {"app": "web"}, "ports": [{"port": 80}]}
    collected = [] if case.get("service", 0) is None else [service]
    services = [{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": SPACE}, "spec": each}
                for each in collected]  # fmt: skip
    rivals = [made_update({}, status, name) for name, status in case.get("rivals", {}).items()]
    # what a case says of the status after is the whole of it where there was none before
    before = case.get("status") if "pods" in case.get("status", {}) else None
    update = made_update(case.get("update", {}), before)
    return case, [update, *rivals, *services, *(made_pod(*each) for each in case["pods"].items())]


def decide(world: World, update: JsonObject) -> list[Step]:
    """Decide in a world whose sidecars answer when the test has them do so."""
    pods = {objects.name(pod): pod for pod in world.all(POD)}
    seen = ObservedWorkload(world.get(SERVICE, Key(SPACE, "web")), pods, world.all(ROLLING_UPDATE))
    return decide_rolling_update(update, seen, world.now)


@EACH
def test_decide_rolling_update(path: Path):
    case, everything = read(path)
    world = World(everything, NOW)
    steps = decide(world, world.get(ROLLING_UPDATE, KEY) or {})
    assert [words(step) for step in steps] == case["steps"]
    wanted = case.get("status_after") or ({} if "pods" in case.get("status", {}) else case.get("status", {}))
    for step in steps:
        if isinstance(step, WriteStatus):
            assert unknown_fields(ROLLING_UPDATE, {"status": step.status}) == []
            assert step.status.items() >= wanted.items()
            status = objects.condition({"status": step.status}, "Progressing") or {}
            assert {status["reason"]: status["message"]}.items() >= case.get("why", {}).items()
            names = [each["name"] for each in step.status.get("pods") or []]
            assert names == case.get("records", names)
        if isinstance(step, Create):
            assert unknown_fields(POD, step.obj) == []
            image = step.obj["spec"]["containers"][0]["image"]
            assert {objects.name(step.obj): image}.items() <= case["images"].items()


@EACH
def test_cut_off_after_any_step_it_comes_to_the_same(path: Path):
    ends = cut_off(lambda: read(path)[1], ROLLING_UPDATE, KEY, decide)
    assert len({str(summary(world)) for world in ends}) == 1


def summary(world: World) -> tuple[Any, ...]:
    update = world.get(ROLLING_UPDATE, KEY) or {}
    return sorted(map(str, map(objects.metadata, world.all(POD)))), objects.status(update), objects.finalizers(update)


def test_there_are_cases():
    assert len(CASES) >= 30


def test_a_pod_keeps_its_name_and_labels_and_gets_the_whole_new_spec():
    case, everything = read(CASES[0].with_name("a-pod-that-is-gone-is-made-with-the-new-spec.yml"))
    world = World(everything, NOW)
    made = next(step.obj for step in decide(world, everything[0]) if isinstance(step, Create))
    assert case["images"] == {"a": "web:2"}
    assert made["spec"] == NEW
    assert made["metadata"] == {
        "name": "a", "namespace": SPACE, "labels": {"app": "web"}, "annotations": {UPDATED_BY: "uid-update"},
    }  # fmt: skip


# --- storms ---------------------------------------------------------------------------------------


class Storm:
    """A Service's Pods, each with a sidecar, in a world where everything takes its time."""

    def __init__(self, seed: int, total: int, alive: int) -> None:
        self.random = random.Random(seed)
        service = {"selector": {"app": "web"}, "ports": [{"port": 80}]}
        meta = {"name": "web", "namespace": SPACE}
        pods = [made_pod(f"p{number}", {"ready": True, "sidecar": True}) for number in range(total)]
        update = made_update(
            {"finalizer": False, "minimumAlive": alive, "newPodSpec": with_sidecar(NEW)}, {"phase": "Pending"}
        )
        everything = [{"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": service}, update, *pods]
        self.world, self.alive = World(everything, NOW, graceful=True), alive

    @property
    def update(self) -> JsonObject | None:
        """The update, while there is one."""
        return self.world.get(ROLLING_UPDATE, KEY)

    def want(self, state: str) -> None:
        """Have the user ask for something else."""
        update = self.update or {}
        self.world.put(ROLLING_UPDATE, {**update, "spec": {**update["spec"], "state": state}})

    def act(self) -> None:
        """Decide, and be killed after any step."""
        update = self.update
        assert update is not None
        steps = decide(self.world, update)
        for step in steps[: self.random.randint(0, len(steps))]:
            if isinstance(step, Delete):
                self.check_deletion(step.obj)
            self.world.take(ROLLING_UPDATE, self.update or {}, step)

    def check_deletion(self, pod: JsonObject) -> None:
        """Look that nobody sends requests to what is deleted, and that enough others serve."""
        status = objects.status(self.update or {})
        assert objects.name(pod) in status["withheld"]
        if not is_ready(pod):
            return
        running = {objects.name(one) for one in self.world.all(POD) if objects.status(one).get("phase") == "Running"
                   and not objects.is_deleting(one)}  # fmt: skip
        assert running <= set(status["acknowledged"])
        serving = [one for one in self.world.all(POD) if is_ready(one) and objects.name(one) not in status["withheld"]]
        assert len(serving) >= self.alive

    def live(self) -> None:
        """Let something happen on nodes and in sidecars, or nothing."""
        for pod in self.world.all(POD):
            if self.random.random() < 0.5:
                self.live_pod(pod)

    def live_pod(self, pod: JsonObject) -> None:
        """Let a Pod end or be ready, and its sidecar answer."""
        update = self.update
        if objects.is_deleting(pod):
            self.world.remove(POD, pod)
        elif not is_ready(pod):
            self.world.put(POD, {**pod, "status": {"phase": "Running", "podIP": "10.244.0.9", **ready(is_ready=True)}})
        elif update is not None and (withheld := objects.status(update).get("withheld")):
            status = objects.status(update)
            reported = sorted({*status.get("acknowledged", []), objects.name(pod)})
            assert withheld
            self.world.put(ROLLING_UPDATE, {**update, "status": {**status, "acknowledged": reported}})

    def until_done(self) -> None:
        """Go on until nothing is left to do."""
        for _ in range(2000):
            if self.update is None or not is_at_work(self.update):
                return
            self.act()
            self.live()
        raise AssertionError(objects.status(self.update or {}))

    def images(self) -> set[str]:
        """Return the images of all Pods."""
        return {pod["spec"]["containers"][0]["image"] for pod in self.world.all(POD)}


def is_ready(pod: JsonObject) -> bool:
    return bool((objects.condition(pod, "Ready") or {}).get("status") == "True") and not objects.is_deleting(pod)


@pytest.mark.parametrize("seed", range(20))
def test_killed_after_any_step_it_replaces_every_pod_and_never_one_that_is_asked(seed: int):
    storm = Storm(seed, total=5, alive=3)
    storm.until_done()
    assert objects.status(storm.update or {})["phase"] == "Finished"
    assert (storm.images(), len(storm.world.all(POD))) == ({"web:2"}, 5)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_asked_of_it_meanwhile_it_ends_as_asked_last(seed: int):
    storm = Storm(seed, total=4, alive=2)
    for _ in range(storm.random.randint(1, 6)):
        for _ in range(storm.random.randint(1, 12)):
            if is_at_work(storm.update or {}):
                storm.act()
            storm.live()
        storm.want(storm.random.choice(["Running", "Paused", "Aborted", "Undone"]))
    last = storm.random.choice([("Running", "web:2"), ("Undone", "web:1")])
    storm.want(last[0])
    storm.until_done()
    begun = bool(objects.status(storm.update or {}).get("pods"))
    assert (storm.images(), len(storm.world.all(POD))) == ({last[1] if begun else "web:1"}, 4)


@pytest.mark.parametrize("seed", range(20))
def test_deleted_meanwhile_it_leaves_no_pod_missing(seed: int):
    storm = Storm(seed, total=4, alive=1)
    for _ in range(storm.random.randint(1, 25)):
        storm.act()
        storm.live()
    storm.world.delete(ROLLING_UPDATE, storm.update or {})
    storm.until_done()
    for _ in range(50):
        storm.live()
    assert {objects.name(pod) for pod in storm.world.all(POD) if is_ready(pod)} == {"p0", "p1", "p2", "p3"}
