"""ReplicaSets and Deployments: the controllers as a process, kubectl, a real API server; a thread plays the node."""

from __future__ import annotations

import json
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Invalid, NotFound
from minik8s_modules.api.kinds import DEPLOYMENT, EVENT, LEGACY_REPLICA_SET, POD, REPLICA_SET, REPLICATION_CONTROLLER
from tests.integration.control.conftest import Cluster, Daemon
from tests.support.playing import STUCK, PlayingNode
from tests.support.waiting import until

PATIENCE_S = 60.0


def workload(kind: str, name: str, space: str, replicas: int = 3, **spec: Any) -> dict[str, Any]:
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "app", "image": "minik8s/busybox:1"}]},
    }
    selector = {"matchLabels": {"app": name}}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": space},
        "spec": {"replicas": replicas, "selector": selector, "template": template, **spec},
    }


def pods(cluster: Cluster, space: str) -> list[dict[str, Any]]:
    return [pod for pod in cluster.admin.list(POD, space).items if not objects.is_deleting(pod)]


def ready_replicas(cluster: Cluster, kind: Any, name: str, space: str) -> int:
    status = objects.status(cluster.admin.get(kind, name, space))
    return int(status.get("availableReplicas") or 0)


def words(cluster: Cluster, space: str, about: str) -> set[tuple[str, str]]:
    events = cluster.admin.list(EVENT, space).items
    return {(each["reason"], each["message"]) for each in events if each["involvedObject"]["name"] == about}


def test_a_replica_set_makes_replaces_and_deletes_its_pods(cluster: Cluster, daemon: Daemon, node: PlayingNode):
    space = cluster.namespace()
    cluster.admin.create(REPLICA_SET, workload("ReplicaSet", "web", space))
    until(lambda: ready_replicas(cluster, REPLICA_SET, "web", space) == 3, PATIENCE_S)
    first = pods(cluster, space)
    assert all(each["metadata"]["generateName"] == "web-" for each in first)
    gone = objects.name(first[0])
    cluster.admin.delete(POD, gone, space)
    until(lambda: len([p for p in pods(cluster, space) if objects.name(p) != gone]) == 3, PATIENCE_S)
    cluster.server.kubectl("-n", space, "scale", "rs/web", "--replicas=1")
    until(lambda: len(pods(cluster, space)) == 1, PATIENCE_S)
    until(lambda: cluster.admin.get(REPLICA_SET, "web", space)["status"]["replicas"] == 1, PATIENCE_S)
    name = objects.name(first[1])
    until(lambda: ("SuccessfulCreate", f"Created pod: {name}") in words(cluster, space, "web"), PATIENCE_S)
    assert any(reason == "SuccessfulDelete" for reason, _ in words(cluster, space, "web"))


def test_a_replication_controller_scales_adopts_and_leaves_its_pods(
    cluster: Cluster, daemon: Daemon, node: PlayingNode
):
    space, kubectl = cluster.namespace(), cluster.server.kubectl
    made = {**workload("ReplicationController", "web", space, 2), "apiVersion": "v1"}
    orphan = made["spec"]["template"] | {"apiVersion": "v1", "kind": "Pod"}
    cluster.admin.create(POD, {**orphan, "metadata": {**orphan["metadata"], "name": "before", "namespace": space}})
    del made["spec"]["selector"]
    kubectl("create", "-f", "-", stdin=json.dumps(made))
    assert cluster.admin.get(REPLICATION_CONTROLLER, "web", space)["spec"]["selector"] == {"app": "web"}
    until(lambda: ready_replicas(cluster, REPLICATION_CONTROLLER, "web", space) == 2, PATIENCE_S)
    owner = objects.controller_of(cluster.admin.get(POD, "before", space)) or {}
    assert (owner.get("apiVersion"), owner.get("kind"), owner.get("name")) == ("v1", "ReplicationController", "web")
    kubectl("-n", space, "scale", "rc/web", "--replicas=3")
    until(lambda: ready_replicas(cluster, REPLICATION_CONTROLLER, "web", space) == 3, PATIENCE_S)
    columns = kubectl("-n", space, "get", "rc", "-o", "wide", "--no-headers").stdout.split()
    assert columns[:4] == ["web", "3", "3", "3"]
    assert columns[-1] == "app=web"
    kubectl("-n", space, "label", "pod/before", "app=debugged", "--overwrite")
    until(lambda: objects.controller_of(cluster.admin.get(POD, "before", space)) is None, PATIENCE_S)
    until(lambda: ready_replicas(cluster, REPLICATION_CONTROLLER, "web", space) == 3, PATIENCE_S)
    kubectl("-n", space, "delete", "rc/web", "--cascade=orphan")
    until(lambda: [objects.controller_of(each) for each in pods(cluster, space)] == [None] * 4, PATIENCE_S)
    kubectl("create", "-f", "-", stdin=json.dumps(made))
    until(lambda: ready_replicas(cluster, REPLICATION_CONTROLLER, "web", space) == 2, PATIENCE_S)
    kubectl("-n", space, "delete", "rc/web")
    until(lambda: [objects.name(each) for each in pods(cluster, space)] == ["before"], PATIENCE_S)


def test_the_originals_replica_set_names_its_pods_as_the_original_does(
    cluster: Cluster, daemon: Daemon, node: PlayingNode
):
    space = cluster.namespace()
    manifest = {
        "apiVersion": "v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "shop-rs", "namespace": space},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"tier": "front"}},
            "template": {
                "metadata": {"name": "shop-front", "namespace": space, "labels": {"tier": "front"}},
                "spec": {"containers": [{"name": "web", "image": "minik8s/busybox:1"}]},
            },
        },
    }
    cluster.admin.create(LEGACY_REPLICA_SET, manifest)
    until(lambda: len(pods(cluster, space)) == 2, PATIENCE_S)
    assert all(
        objects.name(each).startswith("shop-front-") and len(objects.name(each)) == len("shop-front-") + 36
        for each in pods(cluster, space)
    )
    manifest["metadata"]["name"] = "other"  # type: ignore[index]
    manifest["spec"]["template"]["metadata"]["namespace"] = "default"  # type: ignore[index]
    with pytest.raises(Invalid, match=r"spec.template.metadata.namespace"):
        cluster.admin.create(LEGACY_REPLICA_SET, manifest)


def test_every_verb_of_kubectl_rollout(cluster: Cluster, daemon: Daemon, node: PlayingNode):
    space = cluster.namespace()
    kubectl = cluster.server.kubectl
    cluster.admin.create(DEPLOYMENT, workload("Deployment", "web", space))
    rollout = ("-n", space, "rollout")
    done = kubectl(*rollout, "status", "deployment/web", f"--timeout={PATIENCE_S}s").stdout
    assert "successfully rolled out" in done
    kubectl("-n", space, "set", "image", "deployment/web", "app=minik8s/busybox:2")
    kubectl(*rollout, "status", "deployment/web", f"--timeout={PATIENCE_S}s")
    assert {p["spec"]["containers"][0]["image"] for p in pods(cluster, space)} == {"minik8s/busybox:2"}
    history = kubectl(*rollout, "history", "deployment/web").stdout
    assert [line.split()[0] for line in history.splitlines()[2:] if line.strip()] == ["1", "2"]
    assert "minik8s/busybox:1" in kubectl(*rollout, "history", "deployment/web", "--revision=1").stdout
    kubectl(*rollout, "undo", "deployment/web", "--to-revision=1")
    kubectl(*rollout, "status", "deployment/web", f"--timeout={PATIENCE_S}s")
    assert {p["spec"]["containers"][0]["image"] for p in pods(cluster, space)} == {"minik8s/busybox:1"}
    assert len(cluster.admin.list(REPLICA_SET, space).items) == 2
    kubectl(*rollout, "pause", "deployment/web")
    kubectl("-n", space, "set", "image", "deployment/web", "app=minik8s/busybox:3")
    kubectl("-n", space, "scale", "deployment/web", "--replicas=4")
    until(lambda: ready_replicas(cluster, DEPLOYMENT, "web", space) == 4, PATIENCE_S)
    assert {p["spec"]["containers"][0]["image"] for p in pods(cluster, space)} == {"minik8s/busybox:1"}
    kubectl(*rollout, "resume", "deployment/web")
    kubectl(*rollout, "status", "deployment/web", f"--timeout={PATIENCE_S}s")
    assert {p["spec"]["containers"][0]["image"] for p in pods(cluster, space)} == {"minik8s/busybox:3"}
    before = {objects.name(each) for each in pods(cluster, space)}
    kubectl(*rollout, "restart", "deployment/web")
    kubectl(*rollout, "status", "deployment/web", f"--timeout={PATIENCE_S}s")
    until(lambda: not before & {objects.name(each) for each in pods(cluster, space)}, PATIENCE_S)
    assert any(reason == "ScalingReplicaSet" for reason, _ in words(cluster, space, "web"))


def test_a_rollout_that_does_not_move_is_told(cluster: Cluster, daemon: Daemon, node: PlayingNode):
    space = cluster.namespace()
    made = workload("Deployment", "web", space, 2, progressDeadlineSeconds=2)
    made["spec"]["template"]["metadata"]["labels"][STUCK] = "yes"
    cluster.admin.create(DEPLOYMENT, made)

    def reason() -> str:
        found = objects.condition(cluster.admin.get(DEPLOYMENT, "web", space), "Progressing")
        return str((found or {}).get("reason"))

    until(lambda: reason() == "ProgressDeadlineExceeded", PATIENCE_S)
    done = cluster.server.kubectl("-n", space, "rollout", "status", "deployment/web", check=False)
    assert done.returncode == 1
    assert "exceeded its progress deadline" in done.stderr


def test_killed_in_the_middle_of_a_rollout_it_goes_on(cluster: Cluster, daemon: Daemon, node: PlayingNode):
    space = cluster.namespace()
    strategy = {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    cluster.admin.create(DEPLOYMENT, workload("Deployment", "web", space, 6, strategy=strategy))
    until(lambda: ready_replicas(cluster, DEPLOYMENT, "web", space) == 6, PATIENCE_S)
    cluster.server.kubectl("-n", space, "set", "image", "deployment/web", "app=minik8s/busybox:2")
    until(lambda: len(cluster.admin.list(REPLICA_SET, space).items) == 2, PATIENCE_S)
    daemon.kill9()
    least = len(pods(cluster, space))
    daemon.start()
    cluster.server.kubectl("-n", space, "rollout", "status", "deployment/web", f"--timeout={PATIENCE_S}s")
    assert least >= 6
    assert len(pods(cluster, space)) == 6


def test_the_api_server_killed_in_the_middle_of_a_rollout_costs_time_only(
    cluster: Cluster, daemon: Daemon, node: PlayingNode
):
    space = cluster.namespace()
    strategy = {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 2}}
    cluster.admin.create(DEPLOYMENT, workload("Deployment", "web", space, 8, strategy=strategy))
    until(lambda: ready_replicas(cluster, DEPLOYMENT, "web", space) == 8, PATIENCE_S)
    cluster.server.kubectl("-n", space, "set", "image", "deployment/web", "app=minik8s/busybox:2")
    until(lambda: len(cluster.admin.list(REPLICA_SET, space).items) == 2, PATIENCE_S)
    cluster.server.kill9()
    cluster.server.start()
    cluster.server.kubectl("-n", space, "rollout", "status", "deployment/web", f"--timeout={PATIENCE_S}s")
    until(lambda: len(pods(cluster, space)) == 8, PATIENCE_S)
    assert {p["spec"]["containers"][0]["image"] for p in pods(cluster, space)} == {"minik8s/busybox:2"}


def test_overlapping_selectors_do_not_fight(cluster: Cluster, daemon: Daemon, node: PlayingNode):
    space = cluster.namespace()
    for name in ("one", "two"):
        made = workload("ReplicaSet", "shared", space, 2)
        made["metadata"]["name"] = name
        cluster.admin.create(REPLICA_SET, made)
    until(lambda: ready_replicas(cluster, REPLICA_SET, "one", space) == 2, PATIENCE_S)
    until(lambda: ready_replicas(cluster, REPLICA_SET, "two", space) == 2, PATIENCE_S)
    owners = sorted((objects.controller_of(each) or {})["name"] for each in pods(cluster, space))
    assert owners == ["one", "one", "two", "two"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"replicas": -1}, "spec.replicas"),
        ({"replicas": 10**9}, "spec.replicas"),
        ({"selector": {"matchLabels": {"app": "other"}}}, "spec.template.metadata.labels"),
        ({"selector": {}}, "spec.selector"),
    ],
)
@pytest.mark.parametrize("kind", [REPLICA_SET, DEPLOYMENT], ids=lambda kind: kind.kind)
def test_bad_input_is_refused_with_its_field(cluster: Cluster, kind: Any, change: dict[str, Any], field: str):
    with pytest.raises(Invalid, match=field):
        cluster.admin.create(kind, workload(kind.kind, "bad", "default", **change))
    with pytest.raises(NotFound):
        cluster.admin.get(kind, "bad", "default")


def test_a_scale_beyond_reason_is_refused(cluster: Cluster, daemon: Daemon):
    space = cluster.namespace()
    cluster.admin.create(DEPLOYMENT, workload("Deployment", "web", space, 0))
    done = cluster.server.kubectl("-n", space, "scale", "deployment/web", "--replicas=1000000000", check=False)
    assert done.returncode == 1
    assert "spec.replicas" in done.stderr
