"""S-10 and S-11 on real pods: a CPU burner by autoscaling/v2, a memory hog by the original's form; short windows."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
import yaml

from minik8s_modules.api.kinds import DEPLOYMENT, HORIZONTAL_POD_AUTOSCALER, NAMESPACE, POD, REPLICA_SET
from minik8s_modules.api.objects import JsonObject, condition, name
from tests.support.clusters.installed import Installed

# two samples, ten seconds apart, and a decision, on a machine three times slower than one's own
PATIENCE_S = 180
BURNS = "while true; do if [ -e /tmp/burn ]; then timeout 1 sh -c 'while :; do :; done'; else sleep 1; fi; done"


@pytest.fixture
def namespace(cluster: Installed) -> Iterator[str]:
    name = f"autoscaling-{uuid.uuid4().hex[:8]}"
    cluster.admin.create(NAMESPACE, {"metadata": {"name": name}})
    yield name
    cluster.drop_namespace(name)


def template(app: str, command: str, requests: dict[str, str], limits: dict[str, str]) -> JsonObject:
    container = {"name": "app", "image": "minik8s/busybox:1", "command": ["sh", "-c", command]}
    resources = {"requests": requests, "limits": limits}
    spec = {"terminationGracePeriodSeconds": 0, "containers": [{**container, "resources": resources}]}
    return {"metadata": {"labels": {"app": app}}, "spec": spec}


def running(cluster: Installed, namespace: str) -> list[str]:
    pods = cluster.admin.list(POD, namespace).items
    return [name(pod) for pod in pods if (condition(pod, "Ready") or {}).get("status") == "True"]


def in_each(cluster: Installed, namespace: str, command: str) -> None:
    for pod in running(cluster, namespace):
        cluster.kubectl("-n", namespace, "exec", pod, "--", "sh", "-c", command)


def test_s10_a_burner_is_scaled_up_and_down(cluster: Installed, namespace: str):
    made = template("burner", BURNS, {"cpu": "20m"}, {"cpu": "60m"})
    selector = {"matchLabels": {"app": "burner"}}
    spec = {"replicas": 1, "selector": selector, "template": made}
    cluster.admin.create(DEPLOYMENT, {"metadata": {"name": "burner", "namespace": namespace}, "spec": spec})
    cluster.kubectl("-n", namespace, "autoscale", "deployment", "burner", "--max=2", "--cpu-percent=50")
    down = {"stabilizationWindowSeconds": 0}
    behavior = {"spec": {"behavior": {"scaleDown": down}}}
    cluster.admin.patch(HORIZONTAL_POD_AUTOSCALER, "burner", namespace, behavior)
    cluster.until(lambda: len(running(cluster, namespace)) == 1, PATIENCE_S, "the burner does not run")
    in_each(cluster, namespace, "touch /tmp/burn")
    cluster.until(lambda: len(running(cluster, namespace)) == 2, PATIENCE_S, "it was not scaled up")
    done = cluster.kubectl("-n", namespace, "describe", "hpa", "burner").stdout
    assert "New size: 2; reason: cpu resource utilization (percentage of request) above target" in done
    in_each(cluster, namespace, "rm -f /tmp/burn")
    cluster.until(lambda: replicas(cluster, namespace) == 1, PATIENCE_S, "it was not scaled down")
    shown = cluster.kubectl("-n", namespace, "get", "hpa", "--no-headers").stdout
    assert shown.split()[:2] == ["burner", "Deployment/burner"]


def replicas(cluster: Installed, namespace: str) -> int:
    return int(cluster.admin.get(DEPLOYMENT, "burner", namespace)["spec"]["replicas"])


def test_s11_a_memory_hog_is_scaled_up_and_down_by_the_originals_form(cluster: Installed, namespace: str):
    made = template("hog", "sleep 3600", {}, {"memory": "100Mi"})
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "hog"}}, "template": made}
    cluster.admin.create(REPLICA_SET, {"metadata": {"name": "hog", "namespace": namespace}, "spec": spec})
    policy = {"type": "Pods", "value": 1, "periodSeconds": 25}
    autoscaler = {
        "apiVersion": "v1",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "hog", "namespace": namespace},
        "spec": {
            "scaleTargetRef": {"kind": "ReplicaSet", "name": "hog"},
            "minReplicas": 1,
            "maxReplicas": 2,
            "scaleWindowSeconds": 5,
            "metrics": [{"name": "memory", "target": {"type": "AverageValue", "averageValue": 20}}],
            "behavior": {"scaleUp": policy, "scaleDown": policy},
        },
    }
    cluster.until(lambda: len(running(cluster, namespace)) == 1, PATIENCE_S, "the hog does not run")
    in_each(cluster, namespace, "dd if=/dev/zero of=/dev/shm/hog bs=1M count=40 2>/dev/null")
    cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(autoscaler))
    cluster.until(lambda: len(running(cluster, namespace)) == 2, PATIENCE_S, "it was not scaled up")
    in_each(cluster, namespace, "rm -f /dev/shm/hog")

    def is_one() -> bool:
        return bool(cluster.admin.get(REPLICA_SET, "hog", namespace)["spec"]["replicas"] == 1)

    cluster.until(is_one, PATIENCE_S, "it was not scaled down")
