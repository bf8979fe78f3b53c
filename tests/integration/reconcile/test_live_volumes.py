"""What a running container sees of changed objects: files of volumes follow, variables and sub-paths stay."""

from __future__ import annotations

import subprocess
from typing import Any

from minik8s_modules.api.kinds import CONFIG_MAP, POD, SECRET
from tests.integration.reconcile.conftest import IMAGE, Cluster


def run(cluster: Cluster, name: str, *argv: str) -> str:
    """Return what a command prints in the pod's container."""
    app = cluster.container(name)["containerID"].removeprefix("docker://")
    return subprocess.run(["docker", "exec", app, *argv], check=True, capture_output=True, text=True).stdout


def spec() -> dict[str, Any]:
    key = {"configMapKeyRef": {"name": "settings", "key": "k"}}
    label = {"fieldRef": {"fieldPath": "metadata.labels['tier']"}}
    memory = {"resourceFieldRef": {"containerName": "app", "resource": "limits.memory", "divisor": "1Mi"}}
    container = {
        "name": "app",
        "image": IMAGE,
        "command": ["sleep", "3600"],
        "resources": {"limits": {"memory": "64Mi"}},
        "env": [{"name": "K", "valueFrom": key}, {"name": "TIER", "valueFrom": label}],
        "volumeMounts": [
            {"name": "all", "mountPath": "/all"},
            {"name": "settings", "mountPath": "/settings"},
            {"name": "settings", "mountPath": "/one", "subPath": "k"},
            {"name": "secret", "mountPath": "/secret"},
            {"name": "later", "mountPath": "/later"},
        ],
    }
    fields = [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}, {"path": "memory", **memory}]
    volumes = [
        {"name": "all", "projected": {"sources": [{"downwardAPI": {"items": fields}}, {"secret": {"name": "pw"}}]}},
        {"name": "settings", "configMap": {"name": "settings", "defaultMode": 0o440}},
        {"name": "secret", "secret": {"secretName": "pw", "items": [{"key": "p", "path": "deep/p", "mode": 0o400}]}},
        {"name": "later", "configMap": {"name": "later", "optional": True}},
    ]
    return {"containers": [container], "volumes": volumes}


def test_labels_and_configuration_reach_a_running_container(cluster: Cluster):
    where = {"namespace": "default"}
    cluster.admin.create(CONFIG_MAP, {"metadata": {**where, "name": "settings"}, "data": {"k": "old"}})
    cluster.admin.create(SECRET, {"metadata": {**where, "name": "pw"}, "stringData": {"p": "first"}})
    metadata = {**where, "name": "live", "labels": {"tier": "front"}}
    cluster.admin.create(POD, {"metadata": metadata, "spec": spec()})
    cluster.until(lambda: cluster.ready("live"))
    before = cluster.container("live")["containerID"]
    # modes as declared; all of an update or nothing: files are links through ..data
    assert run(cluster, "live", "stat", "-L", "-c", "%a", "/settings/k", "/secret/deep/p").split() == ["440", "400"]
    assert run(cluster, "live", "sh", "-c", "readlink /settings/k; readlink /secret/deep").split() == [
        "..data/k",
        "..data/deep",
    ]
    shown = run(cluster, "live", "cat", "/all/labels", "/all/memory", "/all/p", "/settings/k", "/secret/deep/p")
    assert shown == 'tier="front"64firstoldfirst'
    assert run(cluster, "live", "ls", "/later") == ""

    cluster.admin.patch(CONFIG_MAP, "settings", "default", {"data": {"k": "new", "more": "x"}})
    cluster.admin.patch(SECRET, "pw", "default", {"stringData": {"p": "second"}})
    cluster.admin.patch(POD, "live", "default", {"metadata": {"labels": {"tier": "back"}}})
    cluster.admin.create(CONFIG_MAP, {"metadata": {**where, "name": "later"}, "data": {"now": "there"}})

    paths = ("/all/labels", "/all/p", "/settings/k", "/settings/more", "/secret/deep/p", "/later/now")
    wanted = 'tier="back"secondnewxsecondthere'
    cluster.until(lambda: _read(cluster, paths) == wanted)
    assert run(cluster, "live", "cat", "/one") == "old", "a sub-path is a mount of its own"
    assert run(cluster, "live", "sh", "-c", "echo $K $TIER") == "old front\n"
    assert cluster.container("live")["containerID"] == before
    assert cluster.container("live")["restartCount"] == 0
    cluster.delete("live", grace_s=0)
    cluster.until(lambda: cluster.gone("live") and cluster.node.ids() == [])


def _read(cluster: Cluster, paths: tuple[str, ...]) -> str:
    try:
        return run(cluster, "live", "cat", *paths)
    except subprocess.CalledProcessError:
        return ""
