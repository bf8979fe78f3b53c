"""apply's three-way rule: new wins, what was dropped from the manifest goes, what others wrote stays."""

from __future__ import annotations

from minik8s_modules.api.kinds import CONFIG_MAP, POD
from minik8s_modules.api.merging.apply import LAST_APPLIED, annotated, last_applied, next_object


def test_a_key_dropped_from_the_manifest_is_removed_and_a_foreign_one_stays():
    first = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1", "b": "2"}}
    live = annotated(first)
    live["data"]["foreign"] = "x"
    second = {**first, "data": {"a": "9"}}
    assert next_object(CONFIG_MAP, live, second)["data"] == {"a": "9", "foreign": "x"}


def test_a_container_dropped_from_the_manifest_is_removed_by_its_name():
    def manifest(*names):
        containers = [{"name": name, "image": "minik8s/busybox:1"} for name in names]
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": containers}}

    live = annotated(manifest("a", "b"))
    live["spec"]["containers"][0]["imagePullPolicy"] = "IfNotPresent"
    after = next_object(POD, live, manifest("a"))
    assert after["spec"]["containers"] == [
        {"name": "a", "image": "minik8s/busybox:1", "imagePullPolicy": "IfNotPresent"}
    ]


def test_applying_the_same_manifest_again_changes_nothing():
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}}
    live = annotated(manifest)
    assert next_object(CONFIG_MAP, live, manifest) == live


def test_a_broken_annotation_counts_as_none():
    live = {"metadata": {"annotations": {LAST_APPLIED: "{"}}}
    assert last_applied(live) == {}
