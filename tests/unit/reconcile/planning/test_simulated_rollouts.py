"""Plans of workloads: which pods come and go, in which order, on which nodes."""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import (
    CRON_JOB,
    DAEMON_SET,
    DEPLOYMENT,
    JOB,
    POD,
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    STATEFUL_SET,
)
from minik8s_modules.controllers.simulation.deciders import DECIDERS
from minik8s_modules.controllers.simulation.simulated_cluster import World, run_deciders
from minik8s_modules.reconcile.planning.questions import Operation, Question
from minik8s_modules.reconcile.planning.simulated_rollouts import Change, SimulatedRollout, simulated_rollout
from minik8s_modules.reconcile.planning.simulation import planned_state
from minik8s_modules.scheduler.profiles.deciding import Profiles, Scene
from tests.support.workloads import NOW, SPACE, workload

ROLLING = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}


def node(name: str, pods: int = 10) -> dict[str, Any]:
    amounts = {"cpu": "4", "memory": "8Gi", "pods": str(pods)}
    conditions = [{"type": "Ready", "status": "True"}]
    return {"metadata": {"name": name}, "spec": {}, "status": {"allocatable": amounts, "conditions": conditions}}


def deployment(replicas: int = 2, image: str = "web:1", **fields: Any) -> dict[str, Any]:
    return workload(DEPLOYMENT, {"replicas": replicas, "image": image, "strategy": ROLLING, **fields})


def running(replicas: int, nodes: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return workloads and pods as they stand after a rollout."""
    found = simulated_rollout([Change("create", deployment(replicas))], [], [], nodes, NOW)
    world = World([deployment(replicas)], NOW)
    pods = [pod for pod in found.pods.values() if pod is not None]

    def live(imagined: World) -> bool:
        waiting = [pod for pod in imagined.all(POD) if not objects.status(pod)]
        for number, pod in enumerate(waiting):
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T11:00:00Z"}
            spec = {**pod["spec"], "nodeName": objects.name(nodes[number % len(nodes)])}
            imagined.put(POD, {**pod, "spec": spec, "status": {"phase": "Running", "conditions": [ready]}})
        return bool(waiting)

    assert run_deciders(world, DECIDERS.items(), live)
    assert len(world.all(POD)) == len(pods) == replicas
    return [*world.all(DEPLOYMENT), *world.all(REPLICA_SET)], world.all(POD)


def shown(found: SimulatedRollout) -> list[str]:
    return [f"{step['action']} {step['node']}" for step in found.order]


def test_a_new_deployment_shows_its_pods_on_their_nodes():
    found = simulated_rollout([Change("create", deployment(3))], [], [], [node("a"), node("b")], NOW)
    assert shown(found) == ["create a", "create b", "create a"]
    assert all(pod is not None and objects.spec(pod)["nodeName"] for pod in found.pods.values())
    assert found == simulated_rollout([Change("create", deployment(3))], [], [], [node("a"), node("b")], NOW)


def test_a_new_template_shows_what_comes_before_what_goes():
    nodes = [node("a")]
    known, pods = running(2, nodes)
    found = simulated_rollout([Change("update", deployment(2, "web:2"))], known, pods, nodes, NOW)
    assert [step["action"] for step in found.order] == ["create", "delete", "create", "delete"]
    gone = {uid for uid, pod in found.pods.items() if pod is None}
    assert gone == {objects.uid(pod) for pod in pods}
    assert len(found.pods) == 4


def steps(found: SimulatedRollout) -> list[tuple[int, str, str]]:
    """Return turn, action and owner of each step."""
    return [(step["turn"], step["action"], step["owner"].removeprefix("ReplicaSet/web-")) for step in found.order]


def test_the_pod_that_a_larger_size_adds_to_the_old_set_is_the_first_to_go():
    nodes = [node("a")]
    known, pods = running(2, nodes)
    (old,) = {(objects.controller_of(pod) or {})["name"].removeprefix("web-") for pod in pods}
    found = simulated_rollout([Change("update", deployment(3, "web:2"))], known, pods, nodes, NOW)
    result = steps(found)
    extra = found.order[0]
    assert result[0] == (1, "create", old)
    assert [(step["turn"], step["action"]) for step in found.order if step["pod"] == extra["pod"]] == [
        (1, "create"),
        (2, "delete"),
    ]
    assert [turn for turn, action, owner in result if (action, owner) == ("delete", old)] == [2, 3, 4]
    assert {step["node"] for step in found.order} == {"a"}


@pytest.mark.parametrize("min_ready_s", [0, 3600])
def test_pods_that_were_made_last_go_first(min_ready_s: int):
    nodes = [node("a")]
    known, pods = running(2, nodes)
    spec = {"maxSurge": 0, "maxUnavailable": 1}
    slow = deployment(
        2, "web:2", minReadySeconds=min_ready_s, strategy={"type": "RollingUpdate", "rollingUpdate": spec}
    )
    found = simulated_rollout([Change("update", slow)], known, pods, nodes, NOW)
    assert [(turn, action) for turn, action, _ in steps(found)] == [
        (1, "delete"), (1, "create"), (2, "delete"), (2, "create"),
    ]  # fmt: skip


def test_names_that_are_made_with_their_pods_are_told_apart():
    nodes = [node("a")]
    known, pods = running(1, nodes)
    found = simulated_rollout([Change("update", deployment(1, "web:2"))], known, pods, nodes, NOW)
    assert [(step["action"], step.get("nameUnknown", False)) for step in found.order] == [
        ("create", True),
        ("delete", False),
    ]
    peers = workload(STATEFUL_SET, {"replicas": 1, "serviceName": "peers"})
    assert [
        step.get("nameUnknown") for step in simulated_rollout([Change("create", peers)], [], [], nodes, NOW).order
    ] == [None]


def test_where_pods_fit_nowhere_the_rollout_ends_as_the_real_one_stalls():
    nodes = [node("a", pods=2)]
    known, pods = running(2, nodes)
    found = simulated_rollout([Change("update", deployment(2, "web:2"))], known, pods, nodes, NOW)
    assert [step["action"] for step in found.order] == ["create"]
    assert found.pods == {}
    (message,) = found.messages
    assert "would get no further" in message.text


def test_a_smaller_size_shows_which_pods_go():
    nodes = [node("a"), node("b")]
    known, pods = running(3, nodes)
    found = simulated_rollout([Change("update", deployment(1))], known, pods, nodes, NOW)
    assert [step["action"] for step in found.order] == ["delete", "delete"]
    assert {objects.spec(pod)["nodeName"] for pod in pods} == {"a", "b"}


def test_a_deleted_deployment_takes_its_pods_along():
    nodes = [node("a")]
    known, pods = running(2, nodes)
    found = simulated_rollout([Change("delete", deployment(2))], known, pods, nodes, NOW)
    assert set(found.pods.values()) == {None}
    assert len(found.order) == 2


def test_other_workloads_are_left_alone():
    nodes = [node("a")]
    other = workload(REPLICA_SET, {"replicas": 5, "selector": {"matchLabels": {"app": "x"}}}, "other")
    found = simulated_rollout([Change("create", deployment(1))], [other], [], nodes, NOW)
    assert len(found.order) == 1


@pytest.mark.parametrize("version", ["v1", "apps/v1"])
def test_a_replica_set_is_unrolled_in_both_versions(version: str):
    obj = {**workload(REPLICA_SET, {"replicas": 2}), "apiVersion": version}
    question = Question((Operation("create", obj),), frozenset())
    found = planned_state(question, [], [node("a")], NOW)
    assert len(found.pods) == 2
    assert found.messages == ()
    assert [step["owner"] for step in found.order] == ["ReplicaSet/web", "ReplicaSet/web"]
    assert all(step["pod"].startswith(f"{SPACE}/web-") for step in found.order)


def test_a_replication_controller_is_unrolled():
    obj = workload(REPLICATION_CONTROLLER, {"replicas": 2, "selector": {"app": "web"}})
    found = planned_state(Question((Operation("create", obj),), frozenset()), [], [node("a")], NOW)
    assert found.messages == ()
    assert [step["owner"] for step in found.order] == ["ReplicationController/web"] * 2


def as_running(pod: dict[str, Any]) -> dict[str, Any]:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T11:00:00Z"}
    return {**pod, "apiVersion": "v1", "kind": "Pod", "status": {"phase": "Running", "conditions": [ready]}}


def test_a_daemon_set_shows_a_pod_on_every_node_that_wants_one():
    tainted = node("n3")
    tainted["spec"]["taints"] = [{"key": "gpu", "effect": "NoSchedule"}]
    nodes = [node("n1"), node("n2"), tainted]
    found = simulated_rollout([Change("create", workload(DAEMON_SET, {}))], [], [], nodes, NOW)
    assert sorted(shown(found)) == ["create n1", "create n2"]
    assert found.messages == ()


def test_a_new_template_of_a_stateful_set_shows_the_last_pod_first():
    nodes = [node("n1")]
    before = workload(STATEFUL_SET, {"replicas": 2, "serviceName": "peers"})
    made = simulated_rollout([Change("create", before)], [], [], nodes, NOW)
    pods = [as_running(pod) for pod in made.pods.values() if pod is not None]
    for pod in pods:
        pod["metadata"]["ownerReferences"][0]["uid"] = "uid-web"
        pod["metadata"]["uid"] = f"old-{pod['metadata']['name']}"
    after = workload(STATEFUL_SET, {"replicas": 2, "serviceName": "peers", "image": "web:2"})
    found = simulated_rollout([Change("update", after)], [before], pods, nodes, NOW)
    assert [(step["action"], step["pod"]) for step in found.order] == [
        ("delete", f"{SPACE}/web-1"), ("create", f"{SPACE}/web-1"),
        ("delete", f"{SPACE}/web-0"), ("create", f"{SPACE}/web-0"),
    ]  # fmt: skip


def test_a_job_shows_the_pods_it_starts_with_and_a_cron_job_those_that_are_due():
    nodes = [node("n1")]
    job = workload(JOB, {"completions": 5, "parallelism": 2, "backoffLimit": 6})
    assert shown(simulated_rollout([Change("create", job)], [], [], nodes, NOW)) == ["create n1"] * 2
    cron = workload(CRON_JOB, {"schedule": "* * * * *", "status": {"lastScheduleTime": "2026-01-01T11:58:00Z"}})
    cron["spec"]["jobTemplate"] = {"spec": {"template": cron["spec"].pop("template")}}
    assert shown(simulated_rollout([Change("update", cron)], [cron], [], nodes, NOW)) == ["create n1"]


def test_between_workloads_no_order_is_told_and_it_is_said():
    other = {"selector": {"matchLabels": {"app": "api"}}, "template": {"labels": {"app": "api"}}}
    web, api = deployment(), workload(DEPLOYMENT, {"replicas": 2, "strategy": ROLLING, **other}, "api")
    found = simulated_rollout([Change("create", web), Change("create", api)], [], [], [node("n1"), node("n2")], NOW)
    (note,) = found.messages
    assert note.text == (
        f"the order between Deployment {SPACE}/web, Deployment {SPACE}/api is not predicted: each takes its own turns; "
        "which of them comes first may change which nodes their pods get"
    )
    assert {(one.kind, one.name) for one in note.about} == {("Deployment", "web"), ("Deployment", "api")}
    assert {place["workload"] for place in found.order} == {"Deployment/web", "Deployment/api"}


def test_of_one_workload_the_order_is_told():
    found = simulated_rollout([Change("create", deployment(replicas=2))], [], [], [node("n1"), node("n2")], NOW)
    assert found.messages == ()


SIDECARS = [(True, "enabled", ["envoy"]), (True, "disabled", []), (False, "enabled", [])]


@pytest.mark.parametrize(("mesh", "label", "names"), SIDECARS)
def test_pods_that_controllers_would_make_have_the_sidecars_that_they_would_get(
    mesh: bool,  # noqa: FBT001 - a case
    label: str,
    names: list[str],
):
    asked = Question((Operation("create", deployment(2)),), frozenset())
    space = {"kind": "Namespace", "metadata": {"name": SPACE, "labels": {"minik8s.io/inject": label}}}
    found = planned_state(asked, [], [node("a")], NOW, scene=Scene(Profiles(), (space,)), mesh=mesh)
    made = [pod for pod in found.pods.values() if pod is not None]
    assert len(made) == 2
    for pod in made:
        assert [each["name"] for each in pod["spec"].get("initContainers") or []] == names
