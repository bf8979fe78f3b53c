"""Static pods: what a manifest becomes, and which pod a mirror stands for."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml

from minik8s_modules.reconcile.mirrors import seen_pods
from minik8s_modules.reconcile.static_pods import StaticPods, as_static, mirror_of, parse_manifests

NOW = datetime(2026, 1, 1, tzinfo=UTC)
JsonObject = dict[str, Any]


def file(name: str, text: str) -> JsonObject:
    return {"name": name, "data": base64.b64encode(text.encode()).decode()}


def manifest(name: str = "web", **spec: Any) -> str:
    spec = {"containers": [{"name": "app", "image": "i:1"}], **spec}
    return yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})


def only(text: str) -> JsonObject:
    (pod,) = parse_manifests("n1", [file("web.yml", text)]).pods
    return pod


def mirrored(pod: JsonObject) -> JsonObject:
    mirror = mirror_of(pod)
    mirror["metadata"] |= {"uid": "mirror", "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {**mirror, "status": {"phase": "Running"}}


def test_a_manifest_becomes_a_pod_of_its_node():
    pod = only(manifest())
    meta = pod["metadata"]
    assert (meta["name"], meta["namespace"], pod["spec"]["nodeName"]) == ("web-n1", "default", "n1")
    assert meta["annotations"]["kubernetes.io/config.source"] == "file"
    assert meta["annotations"]["kubernetes.io/config.hash"] == meta["uid"]
    assert pod["spec"]["tolerations"] == [{"operator": "Exists", "effect": "NoExecute"}]
    assert only(manifest())["metadata"]["uid"] == meta["uid"]
    assert only(manifest(hostname="other"))["metadata"]["uid"] != meta["uid"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "cannot be read"),
        ("kind: Service\napiVersion: v1\n", "no v1 Pod"),
        ("kind: Pod\napiVersion: v1\nspec: 7\n", "must be mappings"),
        (manifest(containers=[]), "spec.containers: Required value"),
        (manifest(unheard="of"), "spec.unheard"),
        (manifest(volumes=[{"name": "v", "configMap": {"name": "c"}}]), "take nothing from the API"),
        (
            manifest(containers=[{"name": "a", "image": "i", "envFrom": [{"secretRef": {"name": "s"}}]}]),
            "no environment",
        ),
        (manifest(serviceAccountName="builder"), "static pods have no account"),
        (manifest(imagePullSecrets=[{"name": "s"}]), "spec.imagePullSecrets: static pods take no Secrets"),
        ("a: &a [1]\nb: [*a, *a]\n", "aliases"),
    ],
)
def test_what_is_no_static_pod_is_told(text, told):
    parsed = parse_manifests("n1", [file("web.yml", text), file("good.yml", manifest("good"))])
    assert [pod["metadata"]["name"] for pod in parsed.pods] == ["good-n1"]
    assert told in parsed.errors["web.yml"]


def test_of_two_files_of_one_name_the_first_holds():
    parsed = parse_manifests("n1", [file("a.yml", manifest()), file("b.yml", manifest(hostname="b"))])
    assert len(parsed.pods) == 1
    assert "hostname" not in parsed.pods[0]["spec"]
    assert "already" in parsed.errors["b.yml"]


def test_a_mirror_stands_for_its_static_pod_and_its_deletion_for_nothing():
    pod = only(manifest())
    mirror = mirrored(pod)
    mirror["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30}
    seen = as_static(mirror)
    assert seen["metadata"]["uid"] == pod["metadata"]["uid"]
    assert not [key for key in seen["metadata"] if key.startswith("deletion")]
    assert mirror["metadata"]["uid"] == "mirror"
    other = {"metadata": {"uid": "u"}}
    assert as_static(other) is other


def test_before_the_folder_was_read_mirrors_tell_which_pods_there_are():
    pod, static = only(manifest()), StaticPods()
    api = [mirrored(pod), {"metadata": {"uid": "u", "name": "other"}, "spec": {}}]
    assert {one["metadata"]["uid"] for one in seen_pods("n1", api, static)} == {pod["metadata"]["uid"], "u"}
    static.take("n1", [pod], [], NOW)
    found = {one["metadata"]["uid"]: one for one in seen_pods("n1", api, static)}
    assert found.keys() == {pod["metadata"]["uid"], "u"}
    assert found[pod["metadata"]["uid"]]["status"] == {"phase": "Running"}


def test_a_pod_without_its_manifest_ends_as_a_deleted_one_does():
    pod, static = only(manifest(terminationGracePeriodSeconds=7)), StaticPods()
    uid = pod["metadata"]["uid"]
    assert static.take("n1", [pod], [], NOW) == {uid}
    assert static.take("n1", [pod], [], NOW) == set()
    assert static.take("n1", [], [], NOW) == {uid}
    ending = static.get(uid)
    assert ending is not None
    assert ending["metadata"]["deletionGracePeriodSeconds"] == 7
    assert static.ends(uid)
    static.forget(uid)
    assert static.get(uid) is None


def test_a_pod_whose_manifest_went_while_nobody_looked_ends_too():
    pod, static = only(manifest()), StaticPods()
    uid = pod["metadata"]["uid"]
    assert static.take("n1", [], [as_static(mirrored(pod))], NOW) == {uid}
    assert static.ends(uid)
