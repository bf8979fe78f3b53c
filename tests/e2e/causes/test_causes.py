"""Why a pod does not run is told in plain words, by `minik8s describe` in one line and by kubectl's describe, too."""

from __future__ import annotations

import time
from typing import Any

import pytest

from minik8s_modules.api.kinds import POD
from tests.support.clusters.installed import IMAGE, Installed

APP: dict[str, Any] = {"name": "app", "image": IMAGE, "command": ["sleep", "3600"]}
MOUNTING = {**APP, "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
PODS: dict[str, tuple[dict[str, Any], str]] = {
    # first: after 40 s such a pod is gone
    "no-such-node": ({"containers": [APP], "nodeName": "nowhere"}, "node nowhere does not exist"),
    "no-such-image": (
        {"containers": [{**APP, "image": "registry.invalid/nothing:1"}]},
        r'ImagePullBackOff: Back-off pulling image "registry.invalid/nothing:1": ErrImagePull: ',
    ),
    "never-pulled": (
        {"containers": [{**APP, "image": "nothing:1", "imagePullPolicy": "Never"}]},
        'ErrImageNeverPull: Container image "nothing:1" is not present with pull policy of Never',
    ),
    "no-configmap": (
        {"containers": [{**APP, "envFrom": [{"configMapRef": {"name": "missing"}}]}]},
        'CreateContainerConfigError: configmap "missing" not found',
    ),
    "no-secret": (
        {"containers": [MOUNTING], "volumes": [{"name": "v", "secret": {"secretName": "missing"}}]},
        'ContainerCreating: MountVolume.SetUp failed for volume "v" : secret "missing" not found',
    ),
    "no-host-path": (
        {"containers": [MOUNTING], "volumes": [{"name": "v", "hostPath": {"path": "/not/here", "type": "Directory"}}]},
        'MountVolume.SetUp failed for volume "v" : hostPath type check failed: /not/here is not a directory',
    ),
    "too-large": (
        {"containers": [{**APP, "resources": {"requests": {"cpu": "999"}}}]},
        "Unschedulable: 0/1 nodes are available: 1 Insufficient cpu.",
    ),
    "no-such-label": (
        {"containers": [APP], "nodeSelector": {"disk": "none"}},
        "Unschedulable: 0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.",
    ),
    "out-of-memory": (
        {
            "containers": [
                {
                    **APP,
                    "command": ["sh", "-c", "x=a; while true; do x=$x$x$x$x; done"],
                    "resources": {"limits": {"memory": "16Mi"}},
                }
            ]
        },
        "(OOMKilled: it exited with 137)",
    ),
    "failing-init": (
        {"initContainers": [{**APP, "name": "first", "command": ["sh", "-c", "exit 3"]}], "containers": [APP]},
        "container first: CrashLoopBackOff: ",
    ),
    "no-such-program": ({"containers": [{**APP, "command": ["/no/such/program"]}]}, "(StartError: "),
    "as-root": (
        {"containers": [{**APP, "securityContext": {"runAsNonRoot": True}}]},
        "CreateContainerConfigError: container has runAsNonRoot and image will run as root",
    ),
}
PATIENCE_S = 60.0


@pytest.fixture(scope="module", autouse=True)
def pods(cluster: Installed, namespace: str) -> None:
    """All of them at once: none must keep another waiting."""
    for name, (spec, _) in PODS.items():
        cluster.admin.create(POD, {"metadata": {"name": name, "namespace": namespace}, "spec": spec})


@pytest.mark.parametrize("name", PODS)
def test_the_cause_is_told(cluster: Installed, namespace: str, name: str) -> None:
    cause, deadline = PODS[name][1], time.monotonic() + PATIENCE_S
    while True:
        done = cluster.minik8s("describe", "pod", "-n", namespace, name).stdout
        line = next((each for each in done.splitlines() if each.startswith("Cause:")), "")
        if cause in line:
            return
        assert time.monotonic() < deadline, done
        time.sleep(0.2)


def test_kubectl_tells_the_cause_of_a_mount_too(cluster: Installed, namespace: str) -> None:
    for name in ("no-host-path", "no-secret"):
        assert (
            PODS[name][1].partition("MountVolume")[2]
            in cluster.kubectl("describe", "pod", "-n", namespace, name).stdout
        )
