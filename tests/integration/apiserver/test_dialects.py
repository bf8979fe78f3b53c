"""A namespace whose label says that manifests in it are the original's: created, applied, replaced, planned."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.integration.apiserver.conftest import Namespace
from tests.support.apiserver import Answer

KEY = "minik8s.io/dialect"
MERGE = {"Content-Type": "application/merge-patch+json"}
SSA = {"Content-Type": "application/apply-patch+yaml"}
BOX: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "box"},
    "spec": {
        "automountServiceAccountToken": False,  # an admitted volume could not be left out by a PUT
        "containers": [{"name": "box", "image": "alpine:latest", "command": ["sh"]}],
    },
}


def label(namespace: Namespace, value: str | None) -> Answer:
    path = f"/api/v1/namespaces/{namespace.name}"
    return namespace.server.request("PATCH", path, {"metadata": {"labels": {KEY: value}}}, headers=MERGE)


@pytest.fixture
def originals(namespace: Namespace) -> Namespace:
    assert label(namespace, "original").code == 200
    return namespace


def make(namespace: Namespace, **metadata: Any) -> Answer:
    body = {**BOX, "metadata": {**BOX["metadata"], **metadata}}
    return namespace.server.request("POST", namespace.path("pods"), body)


def container(obj: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = obj["spec"]["containers"][0]
    return found


def test_a_pod_without_any_mark_has_a_terminal_there_and_nowhere_else(namespace: Namespace):
    assert "tty" not in container(make(namespace).json)
    label(namespace, "original")
    made = make(namespace, name="late").json
    assert container(made) | {"args": ["sh"], "tty": True, "imagePullPolicy": "IfNotPresent"} == container(made)
    assert "command" not in container(made)
    assert made["spec"]["restartPolicy"] == "Never"
    assert made["metadata"]["annotations"][KEY] == "original"


def test_what_was_there_before_the_label_is_read_as_it_was(namespace: Namespace):
    made = make(namespace).json
    label(namespace, "original")
    made["metadata"]["labels"] = {"a": "b"}
    assert namespace.server.request("PUT", namespace.path("pods", "box"), made).code == 200
    after = namespace.get("box", "pods").json
    assert container(after)["command"] == ["sh"]
    assert KEY not in after["metadata"].get("annotations", {})


@pytest.mark.parametrize("server_side", [False, True])
def test_such_a_manifest_is_applied_again_without_a_change(originals: Namespace, server_side: bool):  # noqa: FBT001
    text, more = yaml.safe_dump(BOX), ["--server-side"] if server_side else []
    versions = list[str]()
    for _ in range(3):
        done = originals.server.kubectl("apply", "-n", originals.name, *more, "-f", "-", stdin=text)
        assert done.returncode == 0, done.stderr
        versions.append(originals.get("box", "pods").json["metadata"]["resourceVersion"])
    assert versions[1] == versions[2]
    assert container(originals.get("box", "pods").json)["args"] == ["sh"]


def test_a_replaced_manifest_means_what_it_meant(originals: Namespace):
    make(originals)
    replaced = originals.server.request("PUT", originals.path("pods", "box"), BOX)
    assert replaced.code == 200, replaced.json
    assert container(replaced.json)["args"] == ["sh"]


def test_pods_of_controllers_and_what_says_kubernetes_stay_as_they_are(originals: Namespace):
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": True}
    assert container(make(originals, ownerReferences=[owner]).json)["command"] == ["sh"]
    assert container(make(originals, name="other", annotations={KEY: "kubernetes"}).json)["command"] == ["sh"]


def test_a_plan_shows_what_would_be_made(originals: Namespace):
    pod = {**BOX, "metadata": {"name": "box", "namespace": originals.name}}
    body = {"apiVersion": "minik8s.io/v1", "kind": "Plan", "metadata": {"name": "p"}, "spec": {"objects": [pod]}}
    planned = originals.server.request("POST", "/apis/minik8s.io/v1/plans", body)
    assert planned.code == 201, planned.json
    assert container(planned.json["status"]["objects"][0]["after"])["tty"] is True


def test_no_other_dialect_is_known(namespace: Namespace):
    refused = label(namespace, "swarm")
    assert refused.code == 422
    assert 'Unsupported value: "swarm": supported values: "kubernetes", "original"' in refused.json["message"]
