"""Three machines of a control plane, any one of which may die, and a worker that must not notice."""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from collections.abc import Iterator

import pytest

from tests.lab.errors import LabError
from tests.machines.membership.members import Members
from tests.support.clusters import standing
from tests.support.clusters.labcluster import CommandFailed, LabCluster, is_true, recap
from tests.support.clusters.wholeness import assert_whole

WORKER, SPARE = "worker1", "spare1"
# a Lease runs out after 11 s; the rest is etcd's election, ssh, a first pass, and a machine that is busy with others
TAKEN_OVER_S = 300.0
DAEMONS = ("apiserver", "scheduler", "controllers", "certificates", "gateway", "streams", "reconciler")


@pytest.fixture(scope="module")
def cluster() -> Iterator[LabCluster]:
    """Three machines of the control plane, and a worker with a service and somebody who asks it all the time.

    MINIK8S_STANDING_CONTROL in the environment names a lab to use again, and to keep.
    """
    kept = os.environ.get("MINIK8S_STANDING_CONTROL", "")
    made = LabCluster(kept or f"c{uuid.uuid4().hex[:7]}", control=3, workers=1, spare=1)
    try:
        made.up()
        if not made.kubeconfig.exists():
            made.install()
        made.load_image(standing.IMAGE)
        made.apply(standing.namespace())
        made.apply(standing.deployment("web", 2, standing.server_spec()), standing.service("web"))
        made.apply(standing.client("asking", WORKER, f"http://web.{standing.NAMESPACE}.svc.cluster.local/"))
        made.until(lambda: standing.all_ready(made, 3))
        yield made
    finally:
        if not kept:
            made.close()


@contextlib.contextmanager
def nothing_fails(cluster: LabCluster) -> Iterator[None]:
    """Fail if a request on the worker fails, or a container or address there changes, while this lasts."""
    asking = container(cluster, "asking")
    cluster.until(lambda: standing.tally(cluster, WORKER, asking).good > 0)
    before, shape = standing.tally(cluster, WORKER, asking), running(cluster)
    yield
    cluster.until(lambda: standing.tally(cluster, WORKER, asking).good > before.good + 10)
    after = standing.tally(cluster, WORKER, asking)
    assert after.bad == before.bad, f"{after.bad - before.bad} of {after.good - before.good}: {after.last}"
    assert shape.items() <= running(cluster).items()


def running(cluster: LabCluster) -> dict[str, tuple[str, str]]:
    """Return container id and address of every ready pod, by uid."""
    return {
        pod["metadata"]["uid"]: (pod["status"]["containerStatuses"][0]["containerID"], pod["status"]["podIP"])
        for pod in standing.pods(cluster)
        if is_true(pod, "Ready")
    }


def container(cluster: LabCluster, name: str) -> str:
    pod = cluster.get("pod", name, "-n", standing.NAMESPACE)
    return str(pod["status"]["containerStatuses"][0]["containerID"]).rpartition("/")[2]


def holder(cluster: LabCluster, lease: str, control: str = "") -> str:
    """Return the machine that holds a Lease."""
    argv = ("get", "lease", lease, "-n", "kube-system", "-o", "jsonpath={.spec.holderIdentity}")
    return cluster.kubectl(*argv, control=control).partition("_")[0]


def new_pod_runs(cluster: LabCluster, control: str) -> float:
    """Have a new pod made through ``control``'s server; return after how many seconds it was Ready, and remove it."""
    name = f"new-{uuid.uuid4().hex[:6]}"
    begun = time.monotonic()
    text = json.dumps(standing.pod(name, standing.server_spec()))
    cluster.until(lambda: cluster.kubectl("apply", "-f", "-", stdin=text, control=control), TAKEN_OVER_S)
    argv = ("get", "pod", name, "-n", standing.NAMESPACE, "-o", "json")
    cluster.until(lambda: is_true(json.loads(cluster.kubectl(*argv, control=control)), "Ready"), TAKEN_OVER_S)
    took_s = time.monotonic() - begun
    cluster.kubectl("delete", "pod", name, "-n", standing.NAMESPACE, control=control)
    return took_s


def servers(cluster: LabCluster, control: str = "") -> list[str]:
    """Return the addresses of ``default/kubernetes``."""
    path = "jsonpath={.subsets[0].addresses[*].ip}"
    return cluster.kubectl("get", "endpoints", "kubernetes", "-o", path, control=control).split()


def test_a_second_run_changes_nothing(cluster: LabCluster):
    assert cluster.play("site.yml").changed == 0


def test_every_server_answers(cluster: LabCluster):
    names = {cluster.kubectl("get", "nodes", "-o", "name", control=control) for control in cluster.control}
    assert names == {f"node/{WORKER}\n"}
    cluster.until(lambda: servers(cluster) == [cluster.address(control) for control in cluster.control])
    drift = cluster.on(cluster.control[1], ["minik8s", "drift"])
    assert drift == "no changes\n"


def test_the_control_plane_is_killed_and_started_again_and_nobody_notices(cluster: LabCluster):
    """S-18: requests succeed all the time, containers and addresses stay, objects are the same, new ones work."""
    before = cluster.get("deployments,services,pods", "-n", standing.NAMESPACE)["items"]
    with nothing_fails(cluster):
        for control in cluster.control:
            cluster.on(control, ["systemctl", "kill", "--signal=KILL", *(f"minik8s-{name}" for name in DAEMONS)])
        cluster.until(lambda: new_pod_runs(cluster, cluster.control[0]) > 0)
    after = cluster.get("deployments,services,pods", "-n", standing.NAMESPACE)["items"]
    assert [(one["metadata"]["uid"], one["spec"]) for one in after] == [
        (one["metadata"]["uid"], one["spec"]) for one in before
    ]


def test_the_machine_that_leads_loses_its_power(cluster: LabCluster):
    leader = cluster.until(lambda: holder(cluster, "minik8s-reconciler-default"))
    other = next(control for control in cluster.control if control != leader)
    try:
        with nothing_elsewhere_fails(cluster, leader, other):
            assert new_pod_runs(cluster, other) > 0
            assert holder(cluster, "minik8s-reconciler-default", other) != leader
            cluster.until(lambda: cluster.address(leader) not in servers(cluster, other), TAKEN_OVER_S)
    finally:
        cluster.lab.start(leader)
    cluster.until(lambda: len(servers(cluster, leader)) == len(cluster.control), TAKEN_OVER_S)
    assert new_pod_runs(cluster, leader) > 0
    assert_whole(cluster)


def test_machines_come_and_go_while_one_of_three_is_dead(cluster: LabCluster):
    """The first, which is asked where all are alike: a node is added and removed, and the commands say so."""
    dead, other = cluster.control[0], cluster.control[1]
    nodes = Members(cluster, control=other)
    cluster.lab.power_cut(dead)
    try:
        cluster.until(lambda: cluster.address(dead) not in servers(cluster, other), TAKEN_OVER_S)
        added = nodes.command("node", "add", f"root@{cluster.address(SPARE)}", "--name", SPARE)
        assert f"{dead} of the control plane did not answer" in " ".join(added.split())
        assert {name for name, each in recap(added).items() if each["unreachable"] or each["failed"]} == set()
        assert is_true(json.loads(cluster.kubectl("get", "node", SPARE, "-o", "json", control=other)), "Ready")
        nodes.list(SPARE, listed=True)
        removed = nodes.command("node", "remove", SPARE)
        assert "was not cleaned" not in removed
        assert cluster.kubectl("get", "nodes", "-o", "name", control=other) == f"node/{WORKER}\n"
        assert nodes.remains(SPARE) == ""
    finally:
        nodes.list(SPARE, listed=False)
        cluster.lab.start(dead)
    cluster.until(lambda: len(servers(cluster, dead)) == len(cluster.control), TAKEN_OVER_S)


def test_the_first_machine_comes_back_with_an_empty_disk(cluster: LabCluster):
    """The others have keys and data: site.yml makes it the third again, and nobody on the worker notices."""
    emptied, *others = cluster.control
    uid = cluster.get("namespace", standing.NAMESPACE)["metadata"]["uid"]
    with nothing_fails(cluster):
        cluster.lab.empty_disk(emptied)
        assert not cluster.on(emptied, ["sh", "-c", "ls -d /etc/minik8s /opt/minik8s 2>/dev/null || true"])
        cluster.play("site.yml")
        cluster.fetch_kubeconfig()
        assert cluster.get("namespace", standing.NAMESPACE)["metadata"]["uid"] == uid
        cluster.until(lambda: servers(cluster) == [cluster.address(control) for control in cluster.control])
        assert new_pod_runs(cluster, emptied) > 0
    assert cluster.play("site.yml").changed == 0
    # it votes: one of the others may be away now
    cluster.lab.power_cut(others[0])
    try:
        assert new_pod_runs(cluster, emptied) > 0
    finally:
        cluster.lab.start(others[0])


@contextlib.contextmanager
def nothing_elsewhere_fails(cluster: LabCluster, leader: str, other: str) -> Iterator[None]:
    """Cut a machine's power; fail if the worker's requests fail meanwhile."""
    asking = container(cluster, "asking")
    before = standing.tally(cluster, WORKER, asking)
    cluster.lab.power_cut(leader)
    with pytest.raises((LabError, CommandFailed)):
        cluster.on(leader, ["true"], timeout_s=10)
    yield
    after = standing.tally(cluster, WORKER, asking)
    assert after.good > before.good
    assert after.bad == before.bad, f"{after.bad - before.bad} of {after.good - before.good}: {after.last}"
    ids = json.loads(cluster.kubectl("get", "pod", "asking", "-n", standing.NAMESPACE, "-o", "json", control=other))
    assert str(ids["status"]["containerStatuses"][0]["containerID"]).endswith(asking)
