"""Faults of nodes and of the control plane in the middle of changes: nothing lost, nothing doubled, nothing left over.

Each test leaves the cluster whole: the fixture looks, and the next test begins with it, whichever that is.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pytest

from tests.lab.errors import LabError
from tests.support.clusters import backdoor, standing
from tests.support.clusters.labcluster import LabCluster
from tests.support.clusters.wholeness import assert_whole, containers, look

HERE, THERE = "worker1", "worker2"
CHANGED_S = 240.0
# the sessions of the daemons on a node: what sshd has forked for their user
ATTENDING = ["minik8s-gateway", "minik8s-reconciler", "minik8s-apiserver"]
UNATTENDED_S = 300.0  # a node whose API answers waits for two minutes, and looks once a minute
AS_NODE = ["setpriv", "--reuid=minik8s-node", "--regid=minik8s-node", "--init-groups"]
SESSIONS = "ps -eww -o pid=,args= | awk '/sshd: minik8s-node/ && !/awk/ {print $1}'"


def begin(cluster: LabCluster, replicas: int = 4) -> None:
    """Have a Deployment behind a service, ready on both nodes."""
    cluster.apply(standing.service("web"), standing.deployment("web", replicas, standing.server_spec()))
    cluster.until(lambda: standing.all_ready(cluster, replicas))


def finish(cluster: LabCluster, replicas: int) -> None:
    """Wait for the change to be through, and for the cluster to be whole."""
    cluster.until(lambda: standing.all_ready(cluster, replicas), CHANGED_S, f"{replicas} pods are not ready")
    assert_whole(cluster)


def scale(cluster: LabCluster, replicas: int) -> None:
    """Change the number of pods."""
    cluster.kubectl("scale", "deployment/web", "-n", standing.NAMESPACE, f"--replicas={replicas}")


def roll(cluster: LabCluster) -> None:
    """Have every pod replaced."""
    cluster.kubectl("set", "env", "deployment/web", "-n", standing.NAMESPACE, f"ROLLED={time.time_ns()}")


def running(cluster: LabCluster, node: str) -> set[tuple[str, str]]:
    """Return the ids and starts of the containers that run on a node."""
    return {(one.id, one.started) for one in containers(node, look(cluster, node)) if one.running}


@contextlib.contextmanager
def stopped_sessions(cluster: LabCluster, node: str) -> Iterator[None]:
    """Freeze what sshd has forked for the daemons; what is still frozen in the end dies with its connection."""
    pids = cluster.on(node, ["sh", "-c", SESSIONS]).split()
    assert pids
    cluster.on(node, ["kill", "-STOP", *pids])
    try:
        yield
    finally:
        cluster.on(node, ["sh", "-c", 'kill -KILL "$@" 2>/dev/null || true', "sh", *pids])


def test_ssh_that_hangs_holds_up_a_change_only_until_it_is_given_up(cluster: LabCluster) -> None:
    """The connections are made anew; what had to change on that node does."""
    begin(cluster)
    with backdoor.Sampler(cluster), stopped_sessions(cluster, HERE):
        roll(cluster)
        scale(cluster, 6)
        cluster.until(lambda: rolled(cluster, 6), CHANGED_S)
        finish(cluster, 6)


def rolled(cluster: LabCluster, replicas: int) -> bool:
    """Return whether the newest template has all its pods available, and no other has any."""
    found = cluster.get("deployment", "web", "-n", standing.NAMESPACE)
    status = found["status"]
    counts = [status.get(name) for name in ("replicas", "updatedReplicas", "availableReplicas")]
    return status.get("observedGeneration") == found["metadata"]["generation"] and counts == [replicas] * 3


def test_a_full_disk_loses_nothing_once_it_is_freed(cluster: LabCluster) -> None:
    """Changes to a node without space fail, or move elsewhere; afterwards all of them are made."""
    begin(cluster)
    with backdoor.Sampler(cluster):
        cluster.lab.fill_disk(HERE)
        try:
            roll(cluster)
            scale(cluster, 6)
            cluster.apply(standing.pod("pinned", standing.pod_spec(["sleep", "86400"], nodeName=HERE)))
            cluster.until(lambda: rolled(cluster, 6) or pressed(cluster), CHANGED_S)
        finally:
            cluster.lab.free_disk(HERE)
        cluster.until(lambda: rolled(cluster, 6) and not pressed(cluster), CHANGED_S)
        assert_whole(cluster)


def pressed(cluster: LabCluster) -> bool:
    """Return whether the node says that its disk is full."""
    found = cluster.get("node", HERE)["status"]["conditions"]
    return any(one["type"] == "DiskPressure" and one["status"] == "True" for one in found)


def test_a_restarted_docker_keeps_its_containers_running(cluster: LabCluster) -> None:
    """The same containers run on, since they started; a change made meanwhile gets through."""
    begin(cluster)
    before = running(cluster, HERE)
    with backdoor.Sampler(cluster):
        cluster.on(HERE, ["systemctl", "restart", "docker"])
        assert before <= running(cluster, HERE)
        cluster.on(HERE, ["systemctl", "kill", "--signal=KILL", "docker"])
        scale(cluster, 6)
        finish(cluster, 6)
        assert before <= running(cluster, HERE)


def test_a_power_cut_in_the_middle_of_a_rollout(cluster: LabCluster) -> None:
    """A machine that goes without a goodbye and boots again gets what the rollout had for it."""
    begin(cluster)
    with backdoor.Sampler(cluster):
        roll(cluster)
        cluster.lab.power_cut(THERE)
        cluster.lab.start(THERE)
        cluster.until(lambda: rolled(cluster, 4), CHANGED_S)
        finish(cluster, 4)


def test_a_machine_that_boots_unattended_has_its_network_again(cluster: LabCluster) -> None:
    """What was declared last is there after a boot though the control plane is silent, and no process stays for it."""
    bridge = ["sh", "-c", "ip -4 -brief address show mk8s-br0 | grep -o '[0-9.]*/[0-9]*' || true"]
    before = cluster.until(lambda: cluster.on(HERE, bridge))
    cluster.on("control1", ["systemctl", "stop", *ATTENDING])
    try:
        cluster.lab.reboot(HERE)
        cluster.until(lambda: cluster.on(HERE, bridge) == before, UNATTENDED_S)
        working = ["sh", "-c", "pgrep --full '[m]inik8s.reapply' || true"]
        cluster.until(lambda: not cluster.on(HERE, working))
    finally:
        cluster.on("control1", ["systemctl", "start", *ATTENDING])


def test_the_user_of_the_runs_becomes_root_by_one_command_and_no_other(cluster: LabCluster) -> None:
    root = [*AS_NODE, "sudo", "-n", "/usr/bin/python3", "-I", "-"]
    assert cluster.on(HERE, root, text="import os; print(os.geteuid())") == "0\n"
    for refused in (["/usr/bin/python3", "-c", ""], ["/bin/sh", "-c", "true"]):
        with pytest.raises(LabError):
            cluster.on(HERE, [*AS_NODE, "sudo", "-n", *refused])
    cluster.on(HERE, [*AS_NODE, "docker", "ps"])


def kill_all(cluster: LabCluster) -> None:
    """Kill every daemon of the control plane, all at the same moment; systemd starts them again."""
    cluster.on("control1", ["sh", "-c", "systemctl kill --signal=KILL 'minik8s-*.service'"])


def test_a_control_plane_killed_in_the_middle_of_a_change(cluster: LabCluster) -> None:
    """The daemons that come back go on where the others were, with nothing made twice, and leave the rest alone."""
    begin(cluster)
    cluster.apply(standing.deployment("untouched", 2, standing.server_spec()))
    cluster.until(lambda: standing.all_ready(cluster, 2, "app=untouched"))
    before = of_app(cluster, "untouched")
    with backdoor.Sampler(cluster):
        for change, replicas in ((roll, 4), (lambda cluster: scale(cluster, 7), 7)):
            change(cluster)
            time.sleep(0.5)  # somewhere in the middle: any moment is a fair one
            kill_all(cluster)
            cluster.until(lambda replicas=replicas: rolled(cluster, replicas), CHANGED_S)  # type: ignore[misc]  # mypy cannot infer the default
            finish(cluster, replicas + 2)
    assert of_app(cluster, "untouched") == before


def of_app(cluster: LabCluster, app: str) -> set[str]:
    """Return the container ids of an app's pods, as the API tells them."""
    found = standing.pods(cluster, f"app={app}")
    return {each["containerID"] for one in found for each in one["status"]["containerStatuses"]}
