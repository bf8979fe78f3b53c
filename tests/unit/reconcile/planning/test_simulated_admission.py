"""What a plan makes of the API server's answers about Pods: quotas that are counted, and controllers without end."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Forbidden
from minik8s_modules.api.kinds import POD, ROLLING_UPDATE, STATEFUL_SET
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.controllers.core.steps import Create
from minik8s_modules.controllers.simulation.simulated_cluster import World
from minik8s_modules.reconcile.planning import simulated_admission, simulation
from minik8s_modules.reconcile.planning.questions import parse_question
from minik8s_modules.reconcile.planning.simulated_admission import Admitting
from minik8s_modules.reconcile.planning.simulated_rollouts import simulated_rollout
from minik8s_modules.reconcile.planning.simulation import planned_state
from tests.support.workloads import NOW, SPACE, workload
from tests.unit.reconcile.planning.test_simulated_rollouts import deployment, node

NODES = [node("a", pods=50)]
ONE: JsonObject = {"metadata": {"name": "q", "namespace": SPACE}, "spec": {"hard": {"pods": "1"}}}


def pod(owner: JsonObject, **meta: str) -> JsonObject:
    reference = {key: owner[key] for key in ("apiVersion", "kind")} | {"name": objects.name(owner), "controller": True}
    made = {"namespace": SPACE, "ownerReferences": [{**reference, "uid": objects.uid(owner)}], **meta}
    return {"metadata": made, "spec": {"containers": [{"name": "app", "image": "web:1"}]}}


def made_of(*workloads: JsonObject) -> tuple[JsonObject, dict[str, JsonObject]]:
    """Return a question, and the Pods that the API server is told first."""
    body: JsonObject = {"objects": [{"operation": "create", "object": each} for each in workloads]}
    found = planned_state(parse_question({**body, "admits": True}), [], NODES, NOW)
    return body, dict(found.made)


def test_a_quota_is_counted_again_each_time_a_pod_goes():
    owner = workload(STATEFUL_SET, {"replicas": 1, "serviceName": "web"})
    world, admitting = World([owner], NOW), Admitting({"pods": {}, "quotas": [ONE]})
    world.admit = admitting
    for _ in range(3):
        world.take(STATEFUL_SET, owner, Create(POD, pod(owner, name="web-0")))
        (made,) = world.all(POD)
        world.remove(POD, made)
    assert not world.refused
    world.take(STATEFUL_SET, owner, Create(POD, pod(owner, name="web-0")))
    with pytest.raises(Forbidden, match="exceeded quota: q"):
        admitting(world, owner, pod(owner, name="web-1"))


@pytest.mark.parametrize(("limit", "room"), [("_MOST_FORMS", 2), ("_MOST_BYTES", 1500)])
def test_more_forms_of_pods_than_are_admitted_are_told(monkeypatch: pytest.MonkeyPatch, limit: str, room: int):
    monkeypatch.setattr(simulated_admission, limit, room)
    body, made = made_of(workload(STATEFUL_SET, {"replicas": 3, "serviceName": "web"}))
    assert len(made) == 2
    assert len(orjson.dumps([*made.values()])) < 1500
    admission = {"pods": {key: {"pod": each} for key, each in made.items()}, "quotas": []}
    found = planned_state(parse_question({**body, "admission": admission}), [], NODES, NOW)
    assert len(found.order) == 3
    (message,) = found.messages
    assert message.text.startswith(f"StatefulSet {SPACE}/web: what admission makes of 1 Pod is not known: a plan has ")


def test_what_admission_knows_is_not_told_again():
    body, made = made_of(workload(STATEFUL_SET, {"replicas": 3, "serviceName": "web"}))
    first, *later = made
    admission = {"pods": {first: {"pod": made[first]}}, "quotas": []}
    further = parse_question({**body, "admission": admission, "further": True})
    assert further.admits
    found = planned_state(further, [], NODES, NOW)
    assert [*found.made] == later
    why = "the rollout came to it only after admission of others"
    assert [each.text for each in found.messages] == [
        f"StatefulSet {SPACE}/web: what admission makes of 2 Pods is not known: {why}"
    ]


def test_an_api_server_of_a_former_release_does_not_ask():
    body, _ = made_of(deployment(3))
    (message,) = planned_state(parse_question(body), [], NODES, NOW).messages
    why = "the API server was not asked"
    assert message.text == f"Deployment {SPACE}/web: what admission makes of 3 Pods is not known: {why}"


def _without_labels(made: JsonObject) -> JsonObject:
    return {"metadata": {**made["metadata"], "labels": {}}, "spec": made["spec"]}


def test_controllers_without_end_are_found_together(monkeypatch: pytest.MonkeyPatch):
    several = [{**deployment(2), "metadata": {"name": name, "namespace": SPACE}} for name in ("a", "b", "c")]
    body, made = made_of(*several)
    admission = {"pods": {key: {"pod": _without_labels(each)} for key, each in made.items()}, "quotas": []}
    rollouts = list[Any]()

    def counted(*around: Any, **options: Any) -> Any:
        rollouts.append(options)
        return simulated_rollout(*around, **options)

    monkeypatch.setattr(simulation, "simulated_rollout", counted)
    found = planned_state(parse_question({**body, "admission": admission}), [], NODES, NOW)
    assert [step["action"] for step in found.order] == ["create"] * 6
    assert len([each for each in found.messages if "would make Pods without end" in each.text]) == 3
    assert len(rollouts) == 2


def test_a_workload_of_strangers_may_want_many_pods():
    owner = {"apiVersion": "example.com/v1", "kind": "Crowd", "metadata": {"name": "c", "namespace": SPACE, "uid": "u"}}
    each = pod(owner, generateName="c-")
    probe = Admitting(None)
    probe(World([], NOW), owner, {**each, "metadata": {**each["metadata"], "name": "c-0"}})
    (key,) = probe.made
    admitting = Admitting({"pods": {key: {"pod": each}}, "quotas": []})
    for number in range(500):
        admitting(World([], NOW), owner, {**each, "metadata": {**each["metadata"], "name": f"c-{number}"}})
    assert admitting.endless == set()


def test_pods_without_a_controller_are_those_of_what_makes_them():
    meta = {"name": "to-2", "namespace": SPACE, "uid": "u"}
    update: JsonObject = {"apiVersion": "v1", "kind": ROLLING_UPDATE.kind, "metadata": meta}
    world = World([update], NOW)
    world.admit = Admitting({"pods": {}, "quotas": [{**ONE, "spec": {"hard": {"pods": "0"}}}]})
    bare = {"metadata": {"name": "web-0", "namespace": SPACE}, "spec": pod(update)["spec"]}
    world.take(ROLLING_UPDATE, update, Create(POD, bare))
    (note,) = Admitting(None).notes(world, [update])
    assert note.text.startswith(f"RollingUpdate {SPACE}/to-2: at least 1 Pod would be refused: ")
    assert [one.kind for one in note.about] == ["RollingUpdate"]
