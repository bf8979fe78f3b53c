"""Workloads on real pods: the original's replica set (S-09), a Deployment rolled by kubectl, and what plan foretold."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import (
    DAEMON_SET,
    DEPLOYMENT,
    JOB,
    LIMIT_RANGE,
    NAMESPACE,
    POD,
    RESOURCE_QUOTA,
    STATEFUL_SET,
)
from tests.integration.reconcile.conftest import IMAGE, Cluster
from tests.support.clusters import journeys

PATIENCE_S = 90.0
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


@pytest.fixture
def space(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    name = str(request.node.name).replace("_", "-")[:50].strip("-")
    cluster.admin.create(NAMESPACE, {"metadata": {"name": name}})
    return name


def deployment(space: str, replicas: int, command: str = "sleep 3600") -> dict[str, Any]:
    app = {"name": "app", "image": IMAGE, "command": ["sh", "-c", f"trap 'exit 0' TERM; {command} & wait"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": space},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [app], "terminationGracePeriodSeconds": 1},
            },
        },
    }


def test_s09_a_replica_set_of_the_original(cluster: Cluster, space: str):
    def kubectl(*arguments: str, stdin: str = "") -> str:
        return str(cluster.kubectl("-n", space, *arguments, stdin=stdin).stdout)

    journeys.replica_set(kubectl, cluster.until)


def test_a_plan_foretells_which_pods_come_and_go(cluster: Cluster, space: str):
    planned = cluster.plan(objects=[deployment(space, 2)])
    assert [(step["action"], step["node"]) for step in planned["order"]] == [("create", cluster.node.name)] * 2
    diff = planned["nodes"][cluster.node.name]["diff"]
    assert sorted(diff) == ["containers", "sandboxes", "secrets", "volumes"]
    cluster.admin.create(DEPLOYMENT, deployment(space, 2))
    rollout = ("-n", space, "rollout", "status", "deployment/web", f"--timeout={PATIENCE_S:.0f}s")
    cluster.kubectl(*rollout)
    before = {objects.name(pod) for pod in cluster.admin.list(POD, space).items}
    planned = cluster.plan(objects=[deployment(space, 2, "sleep 7200")])
    assert [step["action"] for step in planned["order"]] == ["create", "delete", "create", "delete"]
    gone = {step["pod"].partition("/")[2] for step in planned["order"] if step["action"] == "delete"}
    assert gone == before
    cluster.kubectl("-n", space, "apply", "-f", "-", stdin=yaml.safe_dump(deployment(space, 2, "sleep 7200")))
    cluster.kubectl(*rollout)
    after = {objects.name(pod) for pod in cluster.admin.list(POD, space).items if not objects.is_deleting(pod)}
    assert len(after) == 2
    assert not after & before
    cluster.admin.patch(DEPLOYMENT, "web", space, {"spec": {"replicas": 0}})
    cluster.until(lambda: not cluster.admin.list(POD, space).items, PATIENCE_S)


def test_a_plan_foretells_which_pods_are_refused_and_what_the_others_get(cluster: Cluster, space: str):
    for kind, name, spec in (
        (RESOURCE_QUOTA, "few", {"hard": {"pods": "1"}}),
        (LIMIT_RANGE, "small", {"limits": [{"type": "Container", "default": {"memory": "64Mi"}}]}),
    ):
        cluster.admin.create(kind, {"metadata": {"name": name, "namespace": space}, "spec": spec})
    cluster.until(lambda: objects.status(cluster.admin.get(RESOURCE_QUOTA, "few", space)).get("used"))
    planned = cluster.plan(objects=[deployment(space, 3)])
    (place,) = planned["order"]
    diff = planned["nodes"][cluster.node.name]["diff"]
    (message,) = (text for text in planned["messages"] if "refused" in text)
    assert message.startswith(f"Deployment {space}/web: at least 2 Pods would be refused: pods ")
    assert str(64 << 20) in diff["containers"]["after"]
    assert "kube-api-access" in diff["volumes"]["after"]
    cluster.admin.create(DEPLOYMENT, deployment(space, 3))
    why = message.partition("is forbidden: ")[2]

    def refused() -> bool:
        conditions = objects.status(cluster.admin.get(DEPLOYMENT, "web", space)).get("conditions") or []
        return any(one["type"] == "ReplicaFailure" and why in one["message"] for one in conditions)

    cluster.until(refused, PATIENCE_S)
    (pod,) = cluster.admin.list(POD, space).items
    assert objects.name(pod).startswith(place["pod"].partition("/")[2].rpartition("-")[0])
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {"memory": "64Mi"}
    assert any("kube-api-access" in each["name"] for each in pod["spec"]["volumes"])
    cluster.admin.delete(NAMESPACE, space)
    cluster.admin.create(NAMESPACE, {"metadata": {"name": f"{space[:40]}-2", "labels": RESTRICTED}})
    planned = cluster.plan(objects=[deployment(f"{space[:40]}-2", 3)])
    assert "order" not in planned
    assert any(
        'at least 3 Pods would be refused: pods "web-' in text and "PodSecurity" in text for text in planned["messages"]
    )
    cluster.admin.delete(NAMESPACE, f"{space[:40]}-2")


def test_controllers_killed_in_the_middle_of_a_rollout_lose_no_pod(cluster: Cluster, space: str):
    cluster.admin.create(DEPLOYMENT, deployment(space, 3))
    rollout = ("-n", space, "rollout", "status", "deployment/web", f"--timeout={PATIENCE_S:.0f}s")
    cluster.kubectl(*rollout)
    cluster.admin.patch(DEPLOYMENT, "web", space, {"spec": _restarted()})
    cluster.until(lambda: _new(cluster, space), PATIENCE_S)  # four at once are soon three again
    cluster.daemons["controllers"].kill()
    assert len(_running(cluster, space)) >= 3
    cluster.daemons["controllers"].start()
    cluster.until(lambda: len(_new(cluster, space)) >= 2, PATIENCE_S)
    assert len(_running(cluster, space)) >= 3
    cluster.kubectl(*rollout)
    cluster.until(lambda: len(cluster.admin.list(POD, space).items) == 3, PATIENCE_S)
    assert len(_new(cluster, space)) == 3
    cluster.admin.patch(DEPLOYMENT, "web", space, {"spec": {"replicas": 0}})
    cluster.until(lambda: not cluster.admin.list(POD, space).items, PATIENCE_S)


def _restarted() -> dict[str, Any]:
    return {"template": {"metadata": {"annotations": {"again": "1"}}}}


def _running(cluster: Cluster, space: str) -> list[dict[str, Any]]:
    found = cluster.admin.list(POD, space).items
    return [pod for pod in found if objects.status(pod).get("phase") == "Running" and not objects.is_deleting(pod)]


def _new(cluster: Cluster, space: str) -> list[dict[str, Any]]:
    return [pod for pod in _running(cluster, space) if objects.annotations(pod).get("again")]


# --- jobs, daemons, pods with names ---------------------------------------------------------------


def job(space: str, name: str, script: str, **spec: Any) -> dict[str, Any]:
    app = {"name": "app", "image": IMAGE, "command": ["sh", "-c", script]}
    template = {"spec": {"containers": [app], "restartPolicy": "Never", "terminationGracePeriodSeconds": 1}}
    meta = {"name": name, "namespace": space}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": template, **spec}}


def test_a_job_of_indexes_runs_on_real_pods(cluster: Cluster, space: str):
    script = 'echo -n "$JOB_COMPLETION_INDEX $(hostname)" > /dev/termination-log'
    cluster.admin.create(JOB, job(space, "part", script, completions=3, parallelism=2, completionMode="Indexed"))
    cluster.kubectl("-n", space, "wait", "--for=condition=complete", "job/part", f"--timeout={PATIENCE_S:.0f}s")
    status = objects.status(cluster.admin.get(JOB, "part", space))
    assert (status["completedIndexes"], status["succeeded"], status.get("failed", 0)) == ("0-2", 3, 0)
    pods = cluster.admin.list(POD, space).items
    message = [objects.dig(pod, "status", "containerStatuses", 0, "state", "terminated", "message") for pod in pods]
    assert sorted(map(str, message)) == ["0 part-0", "1 part-1", "2 part-2"]
    cluster.kubectl("-n", space, "delete", "job/part")
    cluster.until(lambda: not cluster.admin.list(POD, space).items, PATIENCE_S)


def test_a_job_is_failed_by_the_exit_code_of_a_real_container(cluster: Cluster, space: str):
    rules = [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42], "containerName": "app"}}]
    cluster.admin.create(JOB, job(space, "bad", "exit 42", podFailurePolicy={"rules": rules}))
    cluster.kubectl("-n", space, "wait", "--for=condition=failed", "job/bad", f"--timeout={PATIENCE_S:.0f}s")
    failed = objects.condition(cluster.admin.get(JOB, "bad", space), "Failed") or {}
    assert failed["reason"] == "PodFailurePolicy"
    assert "failed with exit code 42 matching FailJob rule at index 0" in failed["message"]
    cluster.kubectl("-n", space, "delete", "job/bad")
    cluster.until(lambda: not cluster.admin.list(POD, space).items, PATIENCE_S)


def test_a_daemon_set_and_a_stateful_set_run_on_real_pods(cluster: Cluster, space: str):
    template = deployment(space, 1)["spec"]["template"]
    daemons = {"selector": {"matchLabels": {"app": "web"}}, "template": template}
    meta = {"name": "agent", "namespace": space}
    cluster.admin.create(DAEMON_SET, {"metadata": meta, "spec": daemons})
    named = {**template, "metadata": {"labels": {"app": "db"}}}
    states = {"replicas": 2, "serviceName": "peers", "selector": {"matchLabels": {"app": "db"}}, "template": named}
    cluster.admin.create(STATEFUL_SET, {"metadata": {"name": "db", "namespace": space}, "spec": states})
    for what in ("daemonset/agent", "statefulset/db"):
        cluster.kubectl("-n", space, "rollout", "status", what, f"--timeout={PATIENCE_S:.0f}s")
    pods = {objects.name(pod): pod for pod in cluster.admin.list(POD, space).items}
    assert {"db-0", "db-1"} < set(pods)
    app = pods["db-1"]["status"]["containerStatuses"][0]["containerID"].removeprefix("docker://")
    assert cluster.node.execute(app, "hostname").split() == ["db-1"]
    assert {pod["spec"]["nodeName"] for pod in pods.values()} == {cluster.node.name}
    for what in ("daemonset/agent", "statefulset/db"):
        cluster.kubectl("-n", space, "delete", what)
    cluster.until(lambda: not cluster.admin.list(POD, space).items, PATIENCE_S)
