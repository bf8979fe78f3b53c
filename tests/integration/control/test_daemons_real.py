"""DaemonSets and StatefulSets: the controllers as a process, kubectl, a real API server; a thread plays the nodes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import CONTROLLER_REVISION, DAEMON_SET, NODE, PERSISTENT_VOLUME_CLAIM, POD, STATEFUL_SET
from minik8s_modules.controllers.workloads.daemon_pods import node_of
from tests.integration.control.conftest import Cluster, Daemon
from tests.support.playing import PlayingNode
from tests.support.waiting import until

PATIENCE_S = 60.0


def workload(kind: str, name: str, space: str, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "app", "image": "minik8s/busybox:1"}]
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": containers}}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": space},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": template, **spec},
    }


def pods(cluster: Cluster, space: str) -> list[dict[str, Any]]:
    return [pod for pod in cluster.admin.list(POD, space).items if not objects.is_deleting(pod)]


def images(cluster: Cluster, space: str) -> list[str]:
    return [pod["spec"]["containers"][0]["image"].rpartition(":")[2] for pod in pods(cluster, space)]


def rolled_out(cluster: Cluster, what: str, space: str) -> None:
    done = cluster.server.kubectl("-n", space, "rollout", "status", what, f"--timeout={PATIENCE_S:g}s").stdout
    assert "successfully rolled out" in done or "roll out complete" in done or "rolling update complete" in done, done


def every_verb_of_rollout(cluster: Cluster, what: str, space: str, copies: int) -> None:
    kubectl = cluster.server.kubectl
    rollout = ("-n", space, "rollout")
    rolled_out(cluster, what, space)
    kubectl("-n", space, "set", "image", what, "app=minik8s/busybox:2")
    rolled_out(cluster, what, space)
    assert images(cluster, space) == ["2"] * copies
    history = kubectl(*rollout, "history", what).stdout
    assert [line.split()[0] for line in history.splitlines()[2:] if line.strip()] == ["1", "2"]
    assert "minik8s/busybox:1" in kubectl(*rollout, "history", what, "--revision=1").stdout
    kubectl(*rollout, "undo", what)
    rolled_out(cluster, what, space)
    assert images(cluster, space) == ["1"] * copies
    history = kubectl(*rollout, "history", what).stdout
    assert [line.split()[0] for line in history.splitlines()[2:] if line.strip()] == ["2", "3"]
    assert len(cluster.admin.list(CONTROLLER_REVISION, space).items) == 2
    before = {objects.uid(pod) for pod in pods(cluster, space)}
    kubectl(*rollout, "restart", what)
    rolled_out(cluster, what, space)
    assert not before & {objects.uid(pod) for pod in pods(cluster, space)}


def test_a_daemon_set_follows_the_nodes_and_rolls(cluster: Cluster, daemon: Daemon, node: PlayingNode):
    space = cluster.namespace()
    chosen = {"pool": space}
    for name in (cluster.node(), cluster.node()):
        cluster.admin.patch(NODE, name, "", {"metadata": {"labels": chosen}})
    made = workload("DaemonSet", "agent", space)
    made["spec"]["template"]["spec"]["nodeSelector"] = chosen
    answer = cluster.admin.create(DAEMON_SET, made)
    assert answer["spec"]["updateStrategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    every_verb_of_rollout(cluster, "daemonset/agent", space, 2)
    third = cluster.node()
    cluster.admin.patch(NODE, third, "", {"metadata": {"labels": chosen}})
    until(lambda: third in {node_of(pod) for pod in pods(cluster, space)}, PATIENCE_S)
    cluster.admin.patch(NODE, third, "", {"metadata": {"labels": {"pool": "other"}}})
    until(lambda: len(pods(cluster, space)) == 2, PATIENCE_S)
    until(lambda: _settled(cluster, "agent", space, 2).get("numberMisscheduled") == 0, PATIENCE_S)


def _settled(cluster: Cluster, name: str, space: str, wanted: int) -> dict[str, Any]:
    status = objects.status(cluster.admin.get(DAEMON_SET, name, space))
    return status if status.get("numberAvailable") == status["desiredNumberScheduled"] == wanted else {}


def test_a_surge_of_daemons_leaves_no_node_without_one(cluster: Cluster, daemon: Daemon, node: PlayingNode):
    space = cluster.namespace()
    chosen = {"pool": space}
    cluster.admin.patch(NODE, cluster.node(), "", {"metadata": {"labels": chosen}})
    rolling = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    made = workload("DaemonSet", "agent", space, updateStrategy=rolling)
    made["spec"]["template"]["spec"]["nodeSelector"] = chosen
    cluster.admin.create(DAEMON_SET, made)
    until(lambda: _settled(cluster, "agent", space, 1), PATIENCE_S)
    cluster.server.kubectl("-n", space, "set", "image", "daemonset/agent", "app=minik8s/busybox:2")
    rolled_out(cluster, "daemonset/agent", space)
    until(lambda: images(cluster, space) == ["2"], PATIENCE_S)


def test_a_stateful_set_keeps_names_and_order_and_rolls(cluster: Cluster, daemon: Daemon, node: PlayingNode):
    space = cluster.namespace()
    cluster.admin.create(STATEFUL_SET, workload("StatefulSet", "db", space, replicas=3, serviceName="peers"))
    every_verb_of_rollout(cluster, "statefulset/db", space, 3)
    found = sorted(pods(cluster, space), key=objects.name)
    assert [objects.name(pod) for pod in found] == ["db-0", "db-1", "db-2"]
    assert [pod["metadata"]["creationTimestamp"] for pod in found] == sorted(
        (pod["metadata"]["creationTimestamp"] for pod in found), reverse=True
    ), "a rolling update replaces the last pod first"
    cluster.server.kubectl("-n", space, "delete", "pod", "db-1")
    gone = objects.uid(found[1])
    until(lambda: gone not in {objects.uid(pod) for pod in pods(cluster, space)}, PATIENCE_S)
    until(lambda: len(pods(cluster, space)) == 3, PATIENCE_S)
    cluster.server.kubectl("-n", space, "scale", "sts/db", "--replicas=1")
    until(lambda: [objects.name(pod) for pod in pods(cluster, space)] == ["db-0"], PATIENCE_S)
    until(lambda: objects.status(cluster.admin.get(STATEFUL_SET, "db", space))["replicas"] == 1, PATIENCE_S)


def test_claims_are_made_and_outlive_their_pods(cluster: Cluster, daemon: Daemon, node: PlayingNode):
    space = cluster.namespace()
    template = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}}}}  # fmt: skip
    policy = {"whenScaled": "Delete", "whenDeleted": "Retain"}
    made = workload("StatefulSet", "db", space, replicas=2, serviceName="peers", volumeClaimTemplates=[template],
                    persistentVolumeClaimRetentionPolicy=policy, podManagementPolicy="Parallel")  # fmt: skip
    path = cluster.folder / "claims.json"
    path.write_text(json.dumps(made))
    assert "Warning" not in cluster.server.kubectl("apply", "-f", str(path)).stderr
    until(lambda: len(pods(cluster, space)) == 2, PATIENCE_S)

    def claims() -> list[str]:
        return sorted(map(objects.name, cluster.admin.list(PERSISTENT_VOLUME_CLAIM, space).items))

    assert claims() == ["data-db-0", "data-db-1"]
    cluster.server.kubectl("-n", space, "scale", "sts/db", "--replicas=1")
    until(lambda: claims() == ["data-db-0"], PATIENCE_S)
    cluster.server.kubectl("-n", space, "delete", "sts/db")
    until(lambda: not cluster.admin.list(POD, space).items, PATIENCE_S)
    assert claims() == ["data-db-0"]


def test_killed_in_the_middle_of_a_rollout_a_stateful_set_goes_on(cluster: Cluster, daemon: Daemon, node: PlayingNode):
    space = cluster.namespace()
    cluster.admin.create(STATEFUL_SET, workload("StatefulSet", "db", space, replicas=4, serviceName="peers"))
    rolled_out(cluster, "statefulset/db", space)
    cluster.server.kubectl("-n", space, "set", "image", "sts/db", "app=minik8s/busybox:2")
    until(lambda: "2" in images(cluster, space), PATIENCE_S)
    daemon.kill9()
    daemon.start()
    rolled_out(cluster, "statefulset/db", space)
    assert images(cluster, space) == ["2"] * 4


@pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet"])
def test_a_rollout_is_told_and_undone(cluster: Cluster, daemon: Daemon, node: PlayingNode, kind: str):
    space = cluster.namespace()
    chosen = {"pool": space}
    cluster.admin.patch(NODE, cluster.node(), "", {"metadata": {"labels": chosen}})
    made = workload(kind, "web", space, **({"replicas": 1, "serviceName": "peers"} if kind == "StatefulSet" else {}))
    made["spec"]["template"]["spec"]["nodeSelector"] = chosen
    cluster.admin.create(STATEFUL_SET if kind == "StatefulSet" else DAEMON_SET, made)
    what = f"{kind.lower()}/web"
    rolled_out(cluster, what, space)
    cluster.server.kubectl("-n", space, "set", "image", what, "app=minik8s/busybox:2")
    rolled_out(cluster, what, space)

    def rollout(*argv: str) -> str:
        return cluster.server.kubectl("rollout", *argv, what, "-n", space).stdout

    assert [line.split()[0] for line in rollout("history").splitlines()[2:] if line] == ["1", "2"]
    assert "minik8s/busybox:1" in rollout("history", "--revision=1")
    assert "rolled back" in rollout("undo")
    rolled_out(cluster, what, space)
    assert images(cluster, space) == ["1"]
