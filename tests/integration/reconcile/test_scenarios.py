"""The original's scenarios S-01 to S-04 in its own dialect: a pod of two containers, its exits, restarts and deletion.

What differs from the original is meant: a restart makes a new container, so that the last one's log stays, and waits
for its back-off.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from minik8s_modules.api.kinds import POD
from minik8s_modules.api.objects import JsonObject
from tests.integration.reconcile.conftest import IMAGE, Cluster

MANIFEST = """\
apiVersion: v1
kind: Pod
metadata:
  name: test-pod
  labels: {app: test}
spec:
  containers:
    - name: one
      image: %(image)s
      command: [httpd, -f, -p, "8000", -h, /mnt/v1]
      ports: [{containerPort: 8000, protocol: tcp}]
      volumeMounts: [{name: shared, mountPath: /mnt/v1}]
    - name: two
      image: %(image)s
      command: [httpd, -f, -p, "8001", -h, /mnt/v2]
      ports: [{containerPort: 8001, protocol: tcp}]
      volumeMounts: [{name: shared, mountPath: /mnt/v2}]
  volumes: [{name: shared, emptyDir: {}}]
"""


def apply(cluster: Cluster, name: str, scripts: list[str], policy: str = "") -> None:
    """Apply a pod in the original's dialect, a container a script."""
    containers = [
        {
            "name": f"c{number}",
            "image": IMAGE,
            "command": ["sh", "-c", script],
            "ports": [{"containerPort": 80 + number, "protocol": "tcp"}],
        }
        for number, script in enumerate(scripts)
    ]
    spec: JsonObject = {"containers": containers, **({"restartPolicy": policy} if policy else {})}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(body))


def phase(cluster: Cluster, name: str) -> str:
    """Return the phase as a user reads it."""
    return cluster.kubectl("get", "pod", name, "-o", "jsonpath={.status.phase}").stdout


@pytest.fixture(autouse=True)
def cleaned(cluster: Cluster) -> Iterator[None]:
    yield
    for pod in cluster.admin.list(POD, "default").items:
        cluster.delete(pod["metadata"]["name"], grace_s=0)
    cluster.until(lambda: cluster.node.ids() == [], 60)


def test_s01_a_pod_and_s04_its_deletion(cluster: Cluster) -> None:
    cluster.kubectl("apply", "-f", "-", stdin=MANIFEST % {"image": IMAGE})
    cluster.until(lambda: phase(cluster, "test-pod") == "Running", 60)
    pod = cluster.pod("test-pod")
    assert pod["status"]["podIP"] in cluster.addresses()
    cluster.kubectl("exec", "test-pod", "-c", "one", "--", "sh", "-c", "echo seen >/mnt/v1/file")
    for container in ("one", "two"):
        for port in (8000, 8001):
            argv = ("wget", "-qO-", f"http://127.0.0.1:{port}/file")
            assert cluster.kubectl("exec", "test-pod", "-c", container, "--", *argv).stdout == "seen\n"
    assert cluster.kubectl("exec", "test-pod", "-c", "two", "--", "cat", "/mnt/v2/file").stdout == "seen\n"
    found = [cluster.node.docker.inspect(one) for one in cluster.node.ids()]
    marks = [one["Config"]["Labels"] for one in found if one]
    assert {one["minik8s.io/pod-uid"] for one in marks} == {pod["metadata"]["uid"]}
    assert {(one["minik8s.io/pod-name"], one["minik8s.io/pod-namespace"]) for one in marks} == {("test-pod", "default")}
    kinds = sorted((one["minik8s.io/type"], one["minik8s.io/container"]) for one in marks)
    assert kinds == [("app", "one"), ("app", "two"), ("sandbox", "POD")]
    # S-04
    cluster.kubectl("delete", "pod", "test-pod", "--grace-period=1")
    assert "test-pod" not in cluster.kubectl("get", "pods").stdout
    cluster.until(lambda: (cluster.node.ids(), cluster.addresses()) == ([], []), 60)
    again = cluster.kubectl("delete", "pod", "test-pod", check=False)
    assert again.returncode == 1
    assert 'Error from server (NotFound): pods "test-pod" not found' in again.stderr.splitlines()


def test_s02_exits_make_the_phase(cluster: Cluster) -> None:
    apply(cluster, "well", ["exit 0"])
    apply(cluster, "badly", ["exit 3"])
    apply(cluster, "mixed", ["sleep 3600", "exit 3"])
    cluster.until(lambda: phase(cluster, "well") == "Succeeded", 60)
    cluster.until(lambda: phase(cluster, "badly") == "Failed", 60)
    ended = cluster.until(lambda: cluster.pod("mixed")["status"]["containerStatuses"][1]["state"].get("terminated"), 60)
    assert ended["exitCode"] == 3
    assert phase(cluster, "mixed") == "Running"


def test_s03_always_restarts_what_ended_alone(cluster: Cluster) -> None:
    apply(cluster, "always", ["sleep 0.5; exit 1", "sleep 3600"], "Always")
    cluster.until(lambda: phase(cluster, "always") == "Running", 60)
    before = cluster.pod("always")["status"]
    cluster.until(lambda: cluster.container("always").get("restartCount", 0) >= 2, 90)
    after = cluster.pod("always")["status"]
    assert after["podIP"] == before["podIP"]
    assert phase(cluster, "always") == "Running"
    ending, steady = (after["containerStatuses"][number] for number in (0, 1))
    assert ending["containerID"] != before["containerStatuses"][0]["containerID"]
    assert (steady["restartCount"], steady["containerID"]) == (0, before["containerStatuses"][1]["containerID"])
    assert any(text.startswith("BackOff: ") for text in cluster.events("always"))
