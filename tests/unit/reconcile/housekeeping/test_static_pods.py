"""Static pods: what a manifest becomes, and which pod a mirror stands for."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.mirror_pods import HASH, MIRROR, is_mirror, node_uid, static_uid
from minik8s_modules.reconcile.housekeeping.mirrors import seen_pod, seen_pods
from minik8s_modules.reconcile.housekeeping.static_pods import StaticPods, as_static, mirror_of, parse_manifests

NOW = datetime(2026, 1, 1, tzinfo=UTC)


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


CLAIM = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", "cannot be read"),
        ("kind: Service\napiVersion: v1\n", "hold a v1 Pod"),
        ("kind: Pod\napiVersion: v1\nspec: 7\n", "must be mappings"),
        (manifest(containers=[]), "spec.containers: Required value"),
        (manifest(unheard="of"), "spec.unheard"),
        (manifest(volumes=[{"name": "v", "configMap": {"name": "c"}}]), "cannot use objects of the API"),
        (
            manifest(volumes=[{"name": "v", "ephemeral": {"volumeClaimTemplate": CLAIM}}]),
            "cannot use objects of the API",
        ),
        (
            manifest(containers=[{"name": "a", "image": "i", "envFrom": [{"secretRef": {"name": "s"}}]}]),
            "cannot take variables",
        ),
        (manifest(serviceAccountName="builder"), "static pods cannot use service accounts"),
        (manifest(imagePullSecrets=[{"name": "s"}]), "spec.imagePullSecrets: static pods cannot use Secrets"),
        ("a: &a [1]\nb: [*a, *a]\n", "aliases"),
    ],
)
def test_what_is_no_static_pod_is_told(text, expected):
    parsed = parse_manifests("n1", [file("web.yml", text), file("good.yml", manifest("good"))])
    assert [pod["metadata"]["name"] for pod in parsed.pods] == ["good-n1"]
    assert expected in parsed.errors["web.yml"]


def test_of_two_files_of_one_name_the_first_holds():
    parsed = parse_manifests("n1", [file("a.yml", manifest()), file("b.yml", manifest(hostname="b"))])
    assert len(parsed.pods) == 1
    assert "hostname" not in parsed.pods[0]["spec"]
    assert parsed.errors["b.yml"] == "another file already defines a pod named web-n1"


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


def api_pod(name: str, uid: str, **marks: str) -> JsonObject:
    """A pod of the API on n1; ``marks`` are annotations that somebody forged."""
    annotations = {MIRROR: marks["mirror"], HASH: marks["mirror"]} if marks else {}
    meta = {"name": name, "namespace": "evil" if marks else "shop", "uid": uid, "annotations": annotations}
    return {"metadata": meta | {"creationTimestamp": "2026-01-02T00:00:00Z"}, "spec": {"nodeName": "n1"}}


VICTIM = "96cc29ff-b011-4f59-a94a-631cc0d9b07e"


@pytest.mark.parametrize("read", [False, True])
def test_a_pod_that_bears_another_pods_uid_as_its_mirror_is_a_pod_of_its_own(read):
    victim, forged = api_pod("victim", VICTIM), api_pod("forged-n1", "own-uid", mirror=VICTIM)
    assert (is_mirror(forged), static_uid(forged), node_uid(forged)) == (True, "", "own-uid")
    assert as_static(forged) is forged
    static = StaticPods()
    if read:
        static.take("n1", [], [], NOW)
    found = {objects.uid(pod): objects.name(pod) for pod in seen_pods("n1", [forged, victim], static)}
    assert found == {VICTIM: "victim", "own-uid": "forged-n1"}
    assert seen_pod(VICTIM, [victim], static) is victim


@pytest.mark.parametrize("fault", [{"name": "web"}, {"node": ""}, {"mirror": "0" * 31}, {"mirror": "G" * 32}])
def test_what_cannot_be_a_static_pod_is_no_mirror(fault):
    forged = api_pod(fault.get("name", "web-n1"), "u", mirror=fault.get("mirror", "0" * 32))
    forged["spec"]["nodeName"] = fault.get("node", "n1")
    assert static_uid(forged) == ""
    assert static_uid(api_pod("web-n1", "u", mirror="0" * 32)) == "0" * 32


def test_a_mirror_that_bears_the_uid_of_a_static_pod_of_another_name_changes_nothing_about_it():
    pod = only(manifest())
    uid, mirror = objects.uid(pod), mirrored(pod)
    forged = api_pod("forged-n1", "own-uid", mirror=uid) | {"status": {"phase": "Failed"}}
    static = StaticPods()
    for each in ([forged, mirror], [mirror, forged]):
        (seen,) = seen_pods("n1", each, static)
        assert objects.key(seen) == objects.key(pod)
        assert objects.key(seen_pod(uid, each, static) or {}) == objects.key(pod)
    static.take("n1", [pod], [as_static(forged)], NOW)
    assert not static.ends(uid)
    for each in ([forged, mirror], [mirror, forged]):
        (seen,) = seen_pods("n1", each, static)
        assert (objects.key(seen), seen["status"]) == (objects.key(pod), {"phase": "Running"})
        assert (seen_pod(uid, each, static) or {})["status"] == {"phase": "Running"}
    assert seen_pod(uid, [forged], static) == pod


def test_another_nodes_mirror_ends_no_static_pod():
    pod, static = only(manifest()), StaticPods()
    static.take("n1", [pod], [], NOW)
    forged = api_pod("web-n2", "own-uid", mirror=objects.uid(pod))
    forged["spec"]["nodeName"] = "n2"
    static.take("n2", [], [as_static(forged)], NOW)
    assert not static.ends(objects.uid(pod))
    assert static.of("n2") == []


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
