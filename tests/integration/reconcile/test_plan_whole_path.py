"""Plans and drift through the API server, answered by real modules in check mode."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import (
    EVENT,
    HORIZONTAL_POD_AUTOSCALER,
    NAMESPACE,
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    SECRET,
    SERVICE,
    STORAGE_CLASS,
)
from minik8s_modules.controllers.simulation.simulated_cluster import placeholder_uid
from tests.integration.reconcile.conftest import IMAGE, Cluster


def pod(name: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "app", "image": IMAGE, "command": ["sleep", "3600"]}
    body = {"containers": [container], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": body}


def applied(cluster: Cluster, uid: str) -> set[tuple[str, str]]:
    """Return (action, Docker name) of what the daemon's items did, as Docker shows it afterwards."""
    found = set()
    for one in cluster.node.ids():
        inspect = cluster.node.docker.inspect(one)
        assert inspect is not None
        if uid in inspect["Name"]:
            found.add(("create", inspect["Name"].lstrip("/")))
    return found


def counted(cluster: Cluster) -> dict[str, float]:
    """Return what the API server answers for the node as its kubelet's metrics."""
    answer = cluster.admin.raw("GET", f"/api/v1/nodes/{cluster.node.name}/proxy/metrics")
    assert answer.status == 200, answer.data
    samples = (
        line.rsplit(" ", 1) for line in answer.data.decode().splitlines() if "reconciler" in line or "pod_start" in line
    )
    return {name: float(value) for name, value in samples if not name.startswith("#")}


def test_a_plan_is_what_the_apply_does(cluster: Cluster):
    status = cluster.plan(objects=[pod("planned")])
    assert status["messages"] == []
    steps = status["nodes"][cluster.node.name]["steps"]
    assert cluster.node.ids() == []
    created = cluster.admin.create(POD, pod("planned"))
    cluster.until(lambda: cluster.ready("planned"))
    uid, placeholder = created["metadata"]["uid"], placeholder_uid("default", "planned")
    planned = {
        (step["action"], step["detail"].replace(placeholder, uid)) for step in steps if step["action"] == "create"
    }
    assert planned == applied(cluster, uid)
    planned_ip = re.search(r"\d+\.\d+\.\d+\.\d+", json.dumps(status["nodes"][cluster.node.name]["diff"]["sandboxes"]))
    assert planned_ip is not None
    assert planned_ip[0] == cluster.pod("planned")["status"]["podIP"]
    # what is applied is no change any more
    assert cluster.plan(objects=[pod("planned")])["nodes"].get(cluster.node.name, {}).get("steps", []) == []
    deleted = cluster.plan(deleted=[pod("planned")])["nodes"][cluster.node.name]["steps"]
    assert {step["action"] for step in deleted} >= {"remove"}
    assert cluster.ready("planned")
    cluster.delete("planned", grace_s=0)
    cluster.until(lambda: cluster.node.ids() == [])


def test_drift_is_shown_then_healed_only_by_the_loop(cluster: Cluster):
    cluster.create(
        "drifts", containers=[{**pod("x")["spec"]["containers"][0], "resources": {"limits": {"memory": "64Mi"}}}]
    )
    cluster.until(lambda: cluster.ready("drifts"))
    assert cluster.plan()["nodes"][cluster.node.name]["steps"] == []
    app = cluster.container("drifts")["containerID"].removeprefix("docker://")
    subprocess.run(
        ["docker", "update", "--memory", "100m", "--memory-swap", "100m", app], check=True, capture_output=True
    )
    steps = cluster.plan()["nodes"][cluster.node.name]["steps"]
    assert [(step["section"], step["action"]) for step in steps] == [("containers", "update")]
    assert cluster.node.docker.inspect(app)["HostConfig"]["Memory"] == 100 << 20  # type: ignore[index]
    cluster.delete("drifts", grace_s=0)
    cluster.until(lambda: cluster.node.ids() == [])


def test_what_cannot_be_realized_is_no_drift(cluster: Cluster, tmp_path: Path):
    volume = {"name": "data", "hostPath": {"path": str(tmp_path / "data"), "type": "Directory"}}
    mounting = {**pod("x")["spec"]["containers"][0], "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    tiny = {**pod("x")["spec"]["containers"][0], "resources": {"limits": {"memory": "1Mi"}}}
    cluster.create("homeless", containers=[mounting], volumes=[volume])
    cluster.create("tiny", containers=[tiny])

    def faults() -> dict[str, list[str]]:
        part = cluster.plan()["nodes"][cluster.node.name]
        if part["steps"]:  # asked before the node was told of the Pods
            return {}
        assert part["diff"] == {}
        found: dict[str, list[str]] = {}
        for fault in part.get("faults", []):
            found.setdefault(fault["about"][0]["name"], []).append(fault["reason"])
        return found

    cluster.until(lambda: "FailedMount" in faults().get("homeless", []), 60)
    cluster.delete("homeless", grace_s=0)
    cluster.delete("tiny", grace_s=0)
    cluster.until(lambda: cluster.node.ids() == [])


def test_healed_drift_is_an_event_of_the_pod_and_of_the_node(cluster: Cluster):
    cluster.create(
        "meddled", containers=[{**pod("x")["spec"]["containers"][0], "resources": {"limits": {"memory": "64Mi"}}}]
    )
    cluster.until(lambda: cluster.ready("meddled"))
    app = cluster.container("meddled")["containerID"].removeprefix("docker://")
    subprocess.run(
        ["docker", "update", "--memory", "100m", "--memory-swap", "100m", app], check=True, capture_output=True
    )
    cluster.admin.patch(NODE, cluster.node.name, "", {"metadata": {"annotations": {"minik8s.io/observe": "now"}}})
    wanted = {("Pod", "meddled"), ("Node", cluster.node.name)}

    def reported() -> set[tuple[str, str]]:
        events = cluster.admin.list(EVENT, "default", field_selector="reason=DriftHealed").items
        return {
            (one["involvedObject"]["kind"], one["involvedObject"]["name"])
            for one in events
            if "put right by minik8s_containers" in one["message"]
        }

    cluster.until(lambda: wanted <= reported(), 60)
    assert cluster.node.docker.inspect(app)["HostConfig"]["Memory"] == 64 << 20  # type: ignore[index]
    told_of_node = counted(cluster)
    assert told_of_node['minik8s_reconciler_drift_total{result="healed",section="containers"}'] >= 1
    assert told_of_node["kubelet_pod_start_duration_seconds_count"] >= 1
    items = told_of_node['minik8s_reconciler_items_total{status="ok"}']
    assert 0 < told_of_node["minik8s_reconciler_item_duration_seconds_count"] <= items + 1
    cluster.delete("meddled", grace_s=0)
    cluster.until(lambda: cluster.node.ids() == [])


def test_an_answer_has_no_secret_and_names_obstacles(cluster: Cluster):
    secret = {"metadata": {"name": "canary", "namespace": "default"}, "stringData": {"p": "c4n4ry-value"}}
    cluster.admin.create(SECRET, secret)
    container = {"name": "app", "image": IMAGE, "envFrom": [{"secretRef": {"name": "canary"}}]}
    status = cluster.plan(objects=[pod("secretive", containers=[container])])
    assert status["nodes"][cluster.node.name]["steps"]
    assert "c4n4ry" not in json.dumps(status["nodes"])
    container["envFrom"] = [{"configMapRef": {"name": "nowhere"}}]
    message = cluster.plan(objects=[pod("missing", containers=[container])])["messages"]
    assert message == ['Pod default/missing: app: CreateContainerConfigError configmap "nowhere" not found']


def test_a_namespace_that_goes_is_shown_with_its_pods_and_rules(cluster: Cluster):
    shop: dict[str, Any] = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
    cluster.admin.create(NAMESPACE, shop)
    made = pod("till", terminationGracePeriodSeconds=1)
    made["metadata"] |= {"namespace": "shop", "labels": {"app": "till"}}
    uid = cluster.admin.create(POD, made)["metadata"]["uid"]
    ports = [{"port": 80, "targetPort": 8080}]
    service = {"metadata": {"name": "till", "namespace": "shop"}, "spec": {"selector": {"app": "till"}, "ports": ports}}
    cluster.admin.create(SERVICE, service)
    cluster.until(lambda: cluster.admin.get(POD, "till", "shop")["status"].get("phase") == "Running", 60)
    cluster.until(lambda: "shop/till:80" in json.dumps(cluster.plan(deleted=[shop])["nodes"]), 60)

    def containers() -> int:
        found = (cluster.node.docker.inspect(one) for one in cluster.node.ids())
        return sum(uid in one["Name"] for one in found if one is not None)

    assert containers() == 2

    status = cluster.plan(deleted=[shop])

    steps = status["nodes"][cluster.node.name]["steps"]
    removed = {(step["section"], step["action"]) for step in steps if uid in step["key"]}
    assert {section for section, _ in removed} >= {"sandboxes", "containers"}
    assert any(step["section"] == "services" and "shop/till:80" in json.dumps(step) for step in steps)
    assert [step["pod"] for step in status["order"]] == ["shop/till"]
    assert status["messages"] == ["Namespace shop: its pods go first; their containers get up to 1 s to stop"]
    assert containers() == 2
    cluster.admin.delete(NAMESPACE, "shop")
    cluster.until(lambda: containers() == 0, 60)


def test_a_pod_gets_the_volume_that_its_plan_foretells(cluster: Cluster, tmp_path: Path):
    made: dict[str, Any] = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "disk"}}
    made |= {"provisioner": "minik8s.io/hostpath", "reclaimPolicy": "Retain", "parameters": {"path": str(tmp_path)}}
    made["volumeBindingMode"] = "WaitForFirstConsumer"
    asked = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "disk",
    }
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": asked}
    claim["metadata"] = {"name": "notes", "namespace": "default"}
    writing = {**pod("x")["spec"]["containers"][0], "command": ["sh", "-c", "echo kept > /notes/log; sleep 3600"]}
    writing["volumeMounts"] = [{"name": "notes", "mountPath": "/notes"}]
    writer = pod(
        "writer", containers=[writing], volumes=[{"name": "notes", "persistentVolumeClaim": {"claimName": "notes"}}]
    )

    status = cluster.plan(objects=[made, claim, writer])
    node = cluster.node.name
    by_class = "a PersistentVolume of 1Gi that StorageClass disk (minik8s.io/hostpath) makes for it"
    place = f"hostPath {tmp_path}/pvc-<uid> on node {node}"
    assert status["messages"] == [
        f"PersistentVolumeClaim default/notes would be bound to {by_class}",
        f"PersistentVolume pvc-<uid> of PersistentVolumeClaim default/notes would be {place}",
    ]
    planned = str(status["nodes"][node]["diff"]["volumes"]["after"])
    for kind, obj in ((STORAGE_CLASS, made), (PERSISTENT_VOLUME_CLAIM, claim), (POD, writer)):
        cluster.admin.create(kind, obj)
    cluster.until(lambda: cluster.ready("writer"))
    bound = cluster.admin.get(PERSISTENT_VOLUME_CLAIM, "notes", "default")
    volume = cluster.admin.get(PERSISTENT_VOLUME, bound["spec"]["volumeName"])
    folder = Path(objects.spec(volume)["hostPath"]["path"])
    assert str(folder) in planned.replace(placeholder_uid("default", "notes"), objects.uid(bound))
    cluster.until(lambda: (folder / "log").exists() and (folder / "log").read_text() == "kept\n")

    # a claim in use stays
    claimed = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": claim["metadata"]}
    result = cluster.plan(deleted=[claimed])
    assert (result["nodes"].get(node, {}).get("steps", []), result["messages"]) == (
        [],
        ["PersistentVolumeClaim default/notes would stay, with its data, until pods that use it are gone: writer"],
    )
    result = cluster.plan(deleted=[claimed, writer])
    released = f"PersistentVolume {objects.name(volume)} would be Released, of PersistentVolumeClaim default/notes"
    assert released in result["messages"]
    assert not any("would stay" in text for text in result["messages"])
    cluster.admin.delete(PERSISTENT_VOLUME_CLAIM, "notes", "default")
    cluster.delete("writer", grace_s=0)
    cluster.until(lambda: phase(cluster, objects.name(volume)) == "Released")
    assert (folder / "log").read_text() == "kept\n"
    cluster.admin.delete(PERSISTENT_VOLUME, objects.name(volume))
    cluster.admin.delete(STORAGE_CLASS, "disk")
    cluster.until(lambda: phase(cluster, objects.name(volume)) == "gone")


def phase(cluster: Cluster, volume: str) -> str:
    try:
        return str(objects.status(cluster.admin.get(PERSISTENT_VOLUME, volume)).get("phase"))
    except NotFound:
        return "gone"


def test_a_workload_outside_the_bounds_of_its_autoscaler_is_scaled_in_the_plan(cluster: Cluster):
    labels = {"app": "scaled"}
    template = {"metadata": {"labels": labels}, "spec": pod("x")["spec"]}
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "scaled"}
    meta = {"name": "scaled", "namespace": "default"}
    queue = {"metric": {"name": "queue"}, "target": {"type": "Value", "value": "1"}}
    spec = {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 3}
    cluster.admin.create(
        HORIZONTAL_POD_AUTOSCALER,
        {"metadata": meta, "spec": {**spec, "metrics": [{"type": "External", "external": queue}]}},
    )
    made = {"selector": {"matchLabels": labels}, "template": template}
    workload = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": {**made, "replicas": 1}}
    status = cluster.plan(objects=[workload])
    below = "would have 2 replicas instead of 1: Current number of replicas below Spec.MinReplicas"
    assert f"HorizontalPodAutoscaler default/scaled: Deployment scaled {below}" in status["messages"]
    assert [step["action"] for step in status["order"]] == ["create", "create"]
    status = cluster.plan(objects=[{**workload, "spec": {**made, "replicas": 2}}])
    nobody = "unable to fetch metrics from external metrics API: the server could not find the requested resource"
    (message,) = (text for text in status["messages"] if text.startswith("HorizontalPodAutoscaler"))
    assert "would keep its 2 replicas, as what it uses is not known" in message
    assert nobody in message
    cluster.admin.delete(HORIZONTAL_POD_AUTOSCALER, "scaled", "default")
