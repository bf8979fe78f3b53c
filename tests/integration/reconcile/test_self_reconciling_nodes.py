"""The original's form: two nodes, each with a reconciler of its own that joined with a token, both on this machine.

A control plane without any host of its own beside them: API server, scheduler, controllers, signer, and a reconciler
whose inventory is empty and which tells the others the cluster's settings.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import (
    CONFIG_MAP,
    LEASE,
    NODE,
    POD,
    POD_ADDRESS,
    POD_CIDR,
    REPLICA_SET,
    SECRET,
)
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.controllers.simulation.simulated_cluster import placeholder_uid
from tests.integration.reconcile.conftest import IMAGE
from tests.integration.reconcile.self_reconciling import ControlPlane, JoinedNode
from tests.support.etcd import free_port

STATIC = """\
apiVersion: v1
kind: Pod
metadata: {name: lone}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: app, image: %s, command: [sleep, "3600"]}]
"""


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    folder = Path(tempfile.mkdtemp(prefix="mk8s-"))
    made = ControlPlane(folder)
    try:
        made.start()
        made.until(lambda: made.admin.get(CONFIG_MAP, "cluster-info", "kube-public"), 60)
        made.until(lambda: made.admin.get(CONFIG_MAP, "kube-root-ca.crt", "default"), 60)
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def nodes(plane: ControlPlane) -> Iterator[tuple[JoinedNode, JoinedNode]]:
    """Two nodes that have joined."""
    made = (
        JoinedNode(plane, plane.folder / "n0", "ssd"),
        JoinedNode(plane, plane.folder / "n1", "hdd"),
    )
    try:
        for each in made:
            each.start(*plane.join_words())
        for each in made:
            each.until(partial(plane.is_ready, each.name))
        yield made
    finally:
        for each in made:
            each.close()


def test_two_nodes_join_with_their_labels_and_addresses(plane: ControlPlane, nodes: tuple[JoinedNode, JoinedNode]):
    shown = plane.kubectl("get", "nodes", "-o", "wide", "--show-labels").stdout
    for each, disk in zip(nodes, ("ssd", "hdd"), strict=True):
        line = next(line for line in shown.splitlines() if line.startswith(each.name))
        assert {f"disk={disk}", "tier=front"} <= set(line.split()[-1].split(","))
        assert line.split()[1] == "Ready"
        node = plane.admin.get(NODE, each.name)
        kinds = {one["type"] for one in node["status"]["addresses"]}
        assert {"InternalIP", "Hostname"} <= kinds
        assert int(node["status"]["capacity"]["cpu"]) >= 1
    ranges = {plane.admin.get(NODE, each.name)["spec"]["podCIDR"] for each in nodes}
    assert len(ranges) == 2


def test_pods_alternate_between_them_and_are_reached(plane: ControlPlane, nodes: tuple[JoinedNode, JoinedNode]):
    names = [f"turn-{number}" for number in range(4)]
    for name in names:
        plane.create(name, ["sh", "-c", "echo hello from $(hostname); sleep 3600"])
    for name in names:
        nodes[0].until(partial(plane.ready, name))
    hosts = [plane.pod(name)["spec"]["nodeName"] for name in names]
    assert sorted(hosts.count(each.name) for each in nodes) == [2, 2]
    for name in names:
        nodes[0].until(lambda name=name: plane.kubectl("logs", name).stdout == f"hello from {name}\n")  # type: ignore[misc]
    assert plane.kubectl("exec", names[0], "--", "cat", "/etc/hostname").stdout.strip() == names[0]
    for name in names:
        plane.delete(name, grace_s=0)
    nodes[0].until(lambda: all(plane.gone(name) for name in names))


def test_a_node_gets_the_secrets_of_its_own_pods(plane: ControlPlane, nodes: tuple[JoinedNode, JoinedNode]):
    plane.admin.create(SECRET, {"metadata": {"name": "s", "namespace": "default"}, "stringData": {"k": "hidden"}})
    env = [{"name": "K", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
    container = {"name": "app", "image": IMAGE, "command": ["sh", "-c", "echo $K; sleep 3600"], "env": env}
    spec = {"containers": [container], "nodeName": nodes[1].name}
    plane.admin.create(POD, {"metadata": {"name": "reads", "namespace": "default"}, "spec": spec})
    nodes[1].until(lambda: plane.ready("reads"))
    nodes[1].until(lambda: plane.kubectl("logs", "reads").stdout == "hidden\n")
    plane.delete("reads", grace_s=0)
    nodes[1].until(lambda: plane.gone("reads"))


def undrifted(answer: JsonObject) -> set[str]:
    """Return the nodes that are as declared; on one machine, the services' route leads to the bridge of one of them."""
    return {name for name, each in answer["nodes"].items() if each["diff"].keys() <= {"services"}}


def steps_of(answer: JsonObject, node: JoinedNode) -> set[tuple[str, str]]:
    """Return action and detail of what would be done in sandboxes, containers and services of a node."""
    found = answer["nodes"][node.name]["steps"]
    return {(step["action"], step["detail"]) for step in found if step["section"] in {"sandboxes", "containers"}}


def test_a_plan_shows_what_a_node_does_when_it_is_applied(plane: ControlPlane, nodes: tuple[JoinedNode, JoinedNode]):
    node, other = nodes
    container = {"name": "app", "image": IMAGE, "command": ["sleep", "3600"], "envFrom": [{"secretRef": {"name": "t"}}]}
    plane.admin.create(SECRET, {"metadata": {"name": "t", "namespace": "default"}, "stringData": {"k": "c4n4ry"}})
    metadata = {"name": "planned", "namespace": "default", "labels": {"app": "planned"}}
    spec = {"containers": [container], "nodeName": node.name}
    pod: JsonObject = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    ports = [{"port": 80, "targetPort": 8080}]
    service: JsonObject = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "planned"},
                           "spec": {"selector": {"app": "planned"}, "ports": ports}}  # fmt: skip
    node.until(lambda: undrifted(plane.plan()) == {node.name, other.name})

    answer = plane.plan(objects=[pod, service])

    assert answer["messages"] == ["rules, names and paths are shown as they will be when 1 new pod is ready"]
    assert "c4n4ry" not in str(answer)
    assert node.machine.ids() == []
    found = re.search(r"\d+\.\d+\.\d+\.\d+", str(answer["nodes"][node.name]["diff"]["sandboxes"]["after"]))
    assert found is not None
    ip = found[0]
    for each in nodes:  # the rules are every node's, the pod is one's
        rules = str(answer["nodes"][each.name]["diff"]["services"]["after"])
        assert "default/planned:80" in rules
        assert ip in rules
    assert steps_of(answer, other) == set()
    made = plane.admin.create(POD, pod)
    node.until(lambda: plane.ready("planned"))
    assert plane.pod("planned")["status"]["podIP"] == ip
    uid, placeholder = objects.uid(made), placeholder_uid("default", "planned")
    planned = {detail.replace(placeholder, uid) for action, detail in steps_of(answer, node) if action == "create"}
    names = {str((node.machine.docker.inspect(one) or {})["Name"]).lstrip("/") for one in node.machine.ids()}
    assert planned == {name for name in names if uid in name}
    gone = plane.plan(deleted=[pod])
    assert {action for action, _ in steps_of(gone, node)} >= {"remove"}
    assert steps_of(gone, other) == set()
    assert plane.plan(deleted=[pod], nodes=[other.name])["nodes"].keys() == {other.name}
    plane.delete("planned", grace_s=0)
    node.until(lambda: plane.gone("planned"))


def test_static_pods_of_its_folder_run_and_the_api_mirrors_them(
    plane: ControlPlane, nodes: tuple[JoinedNode, JoinedNode]
):
    node, name = nodes[1], f"lone-{nodes[1].name}"
    node.manifests.mkdir()
    manifest = node.manifests / "lone.yml"
    manifest.write_text(STATIC % IMAGE)
    node.until(lambda: plane.ready(name))
    mirror = plane.pod(name)
    static = objects.annotations(mirror)["kubernetes.io/config.mirror"]
    assert mirror["metadata"]["uid"] != static
    assert plane.kubectl("exec", name, "--", "echo", "hello").stdout == "hello\n"
    running = sorted(node.machine.ids())
    assert len(running) == 2
    # drift knows it, and what only mirrors it may go
    assert undrifted(plane.plan(nodes=[node.name])) == {node.name}
    plane.delete(name, grace_s=0)
    node.until(lambda: plane.pod(name)["metadata"]["uid"] != mirror["metadata"]["uid"] and plane.ready(name))
    assert sorted(node.machine.ids()) == running
    manifest.unlink()
    node.until(lambda: plane.gone(name) and node.machine.ids() == [])


def test_the_token_is_used_up_and_stands_nowhere(plane: ControlPlane, nodes: tuple[JoinedNode, JoinedNode]):
    token = nodes[1].words[nodes[1].words.index("--token") + 1]
    listed = plane.minik8s("token", "list", "--no-headers").stdout.splitlines()
    assert all("yes" in line.split() for line in listed if line.startswith(token[:6]))
    argv = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True).stdout
    assert token[7:] not in argv + nodes[1].log.read_text()
    stranger = JoinedNode(plane, plane.folder / "n2", "ssd")
    message = stranger.refused(*nodes[1].words)
    assert f"token {token[:6]} has already been used" in message or "the cluster rejects the token" in message
    stranger.close()


def test_kill_9_leaves_it_and_a_restart_goes_on_without_restarting_a_container(
    plane: ControlPlane, nodes: tuple[JoinedNode, JoinedNode]
):
    node = nodes[0]
    plane.create("survives", nodeName=node.name)
    node.until(lambda: plane.ready("survives"))
    before, containers = plane.admin.get(NODE, node.name), sorted(node.machine.ids())
    started = plane.container("survives")["state"]["running"]["startedAt"]
    node.stop(signal.SIGKILL)
    assert sorted(node.machine.ids()) == containers
    plane.create("waits", nodeName=node.name)
    node.start()
    node.until(lambda: plane.ready("waits"))  # it is attended again
    plane.delete("waits", grace_s=0)
    node.until(lambda: plane.gone("waits") and len(node.machine.ids()) == len(containers))
    assert plane.is_ready(node.name)
    assert plane.ready("survives")
    assert plane.admin.get(NODE, node.name)["metadata"]["uid"] == before["metadata"]["uid"]
    status = plane.container("survives")
    assert (status["restartCount"], status["state"]["running"]["startedAt"]) == (0, started)
    assert sorted(node.machine.ids()) == containers
    plane.delete("survives", grace_s=0)
    node.until(lambda: plane.gone("survives"))


def test_ctrl_c_takes_the_node_out_and_its_pods_start_on_the_other(
    plane: ControlPlane, nodes: tuple[JoinedNode, JoinedNode]
):
    """Replicas start there, a bare pod of the original comes back under its name; a bare one of Kubernetes goes."""
    node, other = nodes
    container = {"name": "app", "image": IMAGE, "command": ["sleep", "3600"]}
    of_pod: JsonObject = {"containers": [container], "terminationGracePeriodSeconds": 1}
    template = {"metadata": {"labels": {"app": "moves"}}, "spec": of_pod}
    spec = {"replicas": 4, "selector": {"matchLabels": {"app": "moves"}}, "template": template}
    plane.admin.create(REPLICA_SET, {"metadata": {"name": "moves", "namespace": "default"}, "spec": spec})

    def running(on: str) -> int:
        return sum(plane.ready(objects.name(pod)) for pod in plane.pods_on(on) if "ownerReferences" in pod["metadata"])

    node.until(lambda: running(node.name) == 2 and running(other.name) == 2)
    bound = {**of_pod, "nodeName": node.name}  # after the replicas, which the scheduler spreads by what is there
    plane.admin.create(POD, {"metadata": {"name": "plain", "namespace": "default"}, "spec": bound})
    metadata = {"name": "original", "namespace": "default", "annotations": {"minik8s.io/dialect": "original"}}
    old = plane.admin.create(POD, {"metadata": metadata, "spec": bound})
    node.until(lambda: plane.ready("plain") and plane.ready("original"))
    assert node.stop() == 0, node.log.read_text()[-4000:]
    assert all(objects.name(each) != node.name for each in plane.admin.list(NODE).items)
    assert not any(value for key, value in node.machine.traces().items() if key != "mounts")
    other.until(lambda: running(other.name) == 4)
    other.until(lambda: objects.uid(plane.pod("original")) != objects.uid(old) and plane.ready("original"))
    assert plane.pod("original")["spec"]["nodeName"] == other.name
    assert plane.gone("plain")
    for kind in (POD_ADDRESS, POD_CIDR):
        assert all(objects.spec(each)["nodeName"] != node.name for each in plane.admin.list(kind).items)
    assert all(objects.name(each) != node.name for each in plane.admin.list(LEASE, "kube-node-lease").items)
    node.start()  # the certificate is still good: no token is needed to come back
    node.until(lambda: plane.is_ready(node.name))
    plane.delete("original", grace_s=0)
    plane.admin.delete(REPLICA_SET, "moves", "default")
    other.until(lambda: plane.pods_on(other.name) == [])


def test_a_name_that_is_alive_is_taken(plane: ControlPlane, nodes: tuple[JoinedNode, JoinedNode]):
    thief = JoinedNode(plane, plane.folder / "thief", "ssd")
    thief.name = nodes[1].name
    try:
        message = thief.refused(*plane.join_words())
        assert f"NodeIsAlive): node {nodes[1].name} is in the cluster and alive" in message
    finally:
        thief.close()


def test_mistakes_are_told_and_leave_no_node(plane: ControlPlane):
    node = JoinedNode(plane, plane.folder / "mistaken", "ssd")
    try:
        words = plane.join_words()
        pinned, token = words.index("--discovery-token-ca-cert-hash") + 1, words.index("--token") + 1
        wrong = [*words]
        wrong[pinned] = f"sha256:{'0' * 64}"
        assert "it is another cluster, or somebody intercepts the connection" in node.refused(*wrong)
        wrong = [*words]
        wrong[token] = "abcdef.0123456789abcdef"
        assert "the cluster rejects the token" in node.refused(*wrong)
        assert "give --token and --ca-hash" in node.refused("-j", plane.server.url)
        node.file.write_text("{apiVersion: v1, kind: Node, metadata: {labels: {node-role.kubernetes.io/x: y}}}")
        assert "not allowed to set the labels: node-role.kubernetes.io/x" in node.refused(*words)
        assert all(objects.name(each) != node.name for each in plane.admin.list(NODE).items)
    finally:
        node.close()


def test_an_expired_token_is_refused_and_removed(plane: ControlPlane):
    token = plane.minik8s("token", "create", "--ttl", "2s").stdout.strip()
    path = "/apis/certificates.k8s.io/v1/certificatesigningrequests/none"
    plane.until(lambda: plane.server.request("GET", path, token=token).code == 401, 60)
    plane.until(
        lambda: all(token[:6] not in objects.name(each) for each in plane.admin.list(SECRET, "kube-system").items), 60
    )


def test_an_api_server_that_is_away_is_waited_for(plane: ControlPlane):
    node = JoinedNode(plane, plane.folder / "early", "ssd")
    try:
        node.start("-j", f"https://127.0.0.1:{free_port()}", *plane.join_words()[2:])
        end = time.monotonic() + 60
        while "cannot be reached" not in (node.log.read_text() if node.log.exists() else ""):
            assert time.monotonic() < end
            time.sleep(0.1)
        assert node.stop(signal.SIGTERM) == 0
    finally:
        node.close()


def test_tokens_are_listed_without_secrets_and_deleted(plane: ControlPlane):
    token = plane.minik8s("token", "create", "--ttl", "2h", "--description", "rack 7").stdout.strip()
    shown = plane.minik8s("token", "list").stdout
    line = next(line for line in shown.splitlines() if line.startswith(token[:6]))
    assert line.endswith("no     rack 7")
    assert token[7:] not in shown
    plane.minik8s("token", "delete", token[:6])
    assert token[:6] not in plane.minik8s("token", "list", "--no-headers").stdout
    assert "--ttl soon" in plane.minik8s("token", "create", "--ttl", "soon", check=False).stderr
