"""Nobody attends the node: it restarts containers by itself, and nothing runs twice when the control plane is back."""

from __future__ import annotations

import os
import signal
import time

from tests.support.clusters.installed import RUN, Installed
from tests.support.docker.docker_watch import DockerWatch

LONG_AGO_S = 600
ATTENDED = RUN / "attended"


def app_of(cluster: Installed, uid: str) -> tuple[str, int, bool]:
    """Return id, process id and liveness of the pod's newest app container."""
    found = sorted(name for name in cluster.containers(uid) if "_POD_" not in name)
    identity = cluster.containers(uid)[found[-1]]
    inspected = cluster.docker.inspect(identity)
    assert inspected is not None
    return identity, inspected["State"]["Pid"], inspected["State"]["Running"]


def age_attendance() -> None:
    """Let two minutes pass since the gateway was here last, and since anybody looked."""
    long_ago = time.time() - LONG_AGO_S
    os.utime(ATTENDED, (long_ago, long_ago))
    for known in (RUN / "attendance.json", RUN.with_suffix(".glance")):
        known.unlink(missing_ok=True)


def test_an_attended_node_leaves_everything_to_the_reconciler(cluster: Installed, namespace: str) -> None:
    uid = cluster.pod("watched", namespace)["metadata"]["uid"]
    cluster.until(lambda: cluster.ready("watched", namespace))
    cluster.service("stop", "reconciler")
    try:
        os.kill(app_of(cluster, uid)[1], signal.SIGKILL)
        cluster.until(lambda: not app_of(cluster, uid)[2])
        assert cluster.reapply() == []
        assert not app_of(cluster, uid)[2]
    finally:
        cluster.service("start", "reconciler")
    cluster.until(lambda: cluster.pods(namespace)["watched"]["status"]["containerStatuses"][0]["restartCount"] == 1)
    cluster.until(lambda: cluster.ready("watched", namespace))


def test_an_unattended_node_restarts_by_policy_and_nothing_twice(cluster: Installed, namespace: str) -> None:
    for policy in ("Always", "Never"):
        cluster.pod(policy.lower(), namespace, restartPolicy=policy)
    cluster.until(lambda: all(cluster.ready(name, namespace) for name in ("always", "never")))
    uids = {name: pod["metadata"]["uid"] for name, pod in cluster.pods(namespace).items()}
    with DockerWatch(cluster.node) as docker:
        cluster.service("stop", "gateway", "reconciler")
        try:
            for uid in uids.values():
                os.kill(app_of(cluster, uid)[1], signal.SIGKILL)
            cluster.until(lambda: not any(app_of(cluster, uid)[2] for uid in uids.values()))
            age_attendance()
            cluster.reapply()  # unless the node's timer was faster
            cluster.until(lambda: app_of(cluster, uids["always"])[2], 60, "the node did not restart its container")
            assert not app_of(cluster, uids["never"])[2]
            alive = app_of(cluster, uids["always"])
            assert cluster.reapply() == []
        finally:
            cluster.service("start", "gateway", "reconciler")
        cluster.until(cluster.whole)
        cluster.until(lambda: ATTENDED.stat().st_mtime > time.time() - 60, 60, "nobody attends the node again")
        cluster.until(lambda: cluster.ready("always", namespace))
        cluster.until(lambda: cluster.pods(namespace)["never"]["status"]["phase"] == "Failed")
        cluster.pod("later", namespace)
        cluster.until(lambda: cluster.ready("later", namespace))
    assert app_of(cluster, uids["always"]) == alive
    assert not docker.doubles, docker.doubles
