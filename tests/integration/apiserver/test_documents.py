"""What kubectl reads about kinds: short documents for commands that write many objects, whole ones for all else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.apiserver.conftest import Namespace
from tests.support.apiserver import ApiServerProcess


@pytest.mark.parametrize("command", ["kubectl apply", "kubectl create", "kubectl diff", "kubectl replace"])
def test_commands_that_write_many_objects_are_told_how_to_patch_alone(server: ApiServerProcess, command: str):
    index = server.request("GET", "/openapi/v3", headers={"Kubectl-Command": command})
    assert index.headers["vary"] == "Kubectl-Command"
    short = server.request("GET", index.json["paths"]["api/v1"]["serverRelativeURL"])
    whole = server.request("GET", _whole(server)["api/v1"]["serverRelativeURL"], headers={"Kubectl-Command": command})
    assert {method for served in short.json["paths"].values() for method in served} == {"patch"}
    assert "components" not in short.json
    assert "io.k8s.api.core.v1.Pod" in whole.json["components"]["schemas"], "an address has one document for everyone"
    assert short.headers["etag"] != whole.headers["etag"]
    assert short.headers["cache-control"] == "public, immutable"


@pytest.mark.parametrize("command", ["kubectl explain", "kubectl get", "apply", ""])
def test_other_commands_are_told_everything(server: ApiServerProcess, command: str):
    assert server.request("GET", "/openapi/v3", headers={"Kubectl-Command": command}).json["paths"] == _whole(server)


def _whole(server: ApiServerProcess) -> dict[str, Any]:
    paths: dict[str, Any] = server.request("GET", "/openapi/v3").json["paths"]
    assert not [path for path, entry in paths.items() if "only=" in entry["serverRelativeURL"]]
    return paths


def test_apply_merges_lists_of_our_kinds_and_leaves_nothing_in_the_way_of_explain(
    server: ApiServerProcess, namespace: Namespace
):
    pod = {"containers": [{"name": name, "image": "minik8s/busybox:1"} for name in ("a", "b")]}
    spec = {
        "replicas": 0,
        "selector": {"matchLabels": {"app": "x"}},
        "template": {"metadata": {"labels": {"app": "x"}}, "spec": pod},
    }
    ours = {
        "apiVersion": "v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "r", "namespace": namespace.name},
        "spec": spec,
    }
    assert "created" in server.kubectl("apply", "-f", "-", stdin=json.dumps(ours)).stdout
    assert "unchanged" in server.kubectl("apply", "-f", "-", stdin=json.dumps(ours)).stdout, "a list is not exchanged"
    env = [{"op": "add", "path": "/spec/template/spec/containers/0/env", "value": [{"name": "A", "value": "1"}]}]
    server.kubectl("patch", "-f", "-", "--type=json", "-p", json.dumps(env), stdin=json.dumps(ours))
    pod["containers"][1]["image"] = "minik8s/busybox:2"
    changed = server.kubectl("apply", "-f", "-", "-o", "json", stdin=json.dumps(ours))
    assert "calculating patch" not in changed.stderr, "kubectl can read the document"
    shown = json.loads(changed.stdout)["spec"]["template"]["spec"]["containers"]
    assert [(each["image"], each.get("env")) for each in shown] == [
        ("minik8s/busybox:1", env[0]["value"]),
        ("minik8s/busybox:2", None),
    ]
    assert "imagePullPolicy" in server.kubectl("explain", "pod.spec.containers").stdout
    wrong = {**ours, "spec": {**spec, "replica": 1}}
    refused = server.kubectl("apply", "-f", "-", stdin=json.dumps(wrong), check=False)
    assert 'unknown field "spec.replica"' in refused.stderr
