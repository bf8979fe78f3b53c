"""What kubectl reads of the original's files: objects as Kubernetes spells them, all else untouched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.original.manifests import in_kubernetes_terms, read_manifests

POD = "kind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n  - {name: c, image: a, command: [sleep, '9']}\n"


def read(text: str, dialect: str = "") -> list[dict[str, Any]] | None:
    found = in_kubernetes_terms("-", text, recursive=False, dialect=dialect)
    return None if found is None else [json.loads(line) for line in found.splitlines()]


def test_an_object_without_version_is_one_of_v1(capsys):
    assert read(POD) == [{**yaml.safe_load(POD), "apiVersion": "v1"}]
    assert "no apiVersion; read as v1" in capsys.readouterr().err
    listed = read(f"apiVersion: v1\nkind: List\nitems: [{{{POD.splitlines()[0]}}}]\n")
    assert listed is not None
    assert listed[0]["items"] == [{"apiVersion": "v1", "kind": "Pod"}]


def test_the_originals_command_is_kubernetes_args():
    for text, dialect in (
        (f"apiVersion: v1\n{POD}", "original"),
        (f"apiVersion: v1\n{POD}".replace("image: a", "image: a, ports: [{containerPort: 8, protocol: tcp}]"), ""),
    ):
        found = read(text, dialect)
        assert found is not None
        assert found[0]["metadata"]["annotations"] == {"minik8s.io/dialect": "original"}
        assert found[0]["spec"]["containers"][0]["args"] == ["sleep", "9"]


@pytest.mark.parametrize(
    "text",
    [
        f"apiVersion: v1\n{POD}",
        f"apiVersion: v1\n{POD}---\n---\napiVersion: example.test/v1\nkind: New\n",
        "a: [",
        "a: \udcff",
        "- a\n",
        "metadata: {name: x}\n",
    ],
)
def test_what_is_kubernetes_own_or_nothing_at_all_is_left_to_kubectl(text):
    assert read(text) is None


def test_a_namespace_that_is_asked_for_must_be_the_objects(tmp_path):
    path = tmp_path / "m.yml"
    path.write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: shop}\n")
    assert len(read_manifests([str(path)], "shop", only=True)) == 1
    assert len(read_manifests([str(path)], "default")) == 1
    with pytest.raises(UsageError, match=r'"shop" does not match the namespace "default".*--namespace=shop'):
        read_manifests([str(path)], "default", only=True)


def test_a_kind_that_v1_has_not_is_told_with_where_it_is():
    with pytest.raises(UsageError, match=r"document 1: .*v1 has no kind Deployment; there is Deployment of apps/v1"):
        read("kind: Deployment\nmetadata: {name: x}\n")


def test_a_folder_is_read_as_one(tmp_path: Path):
    (tmp_path / "a.yml").write_text(f"apiVersion: v1\n{POD}")
    (tmp_path / "b.yaml").write_text(POD.replace("web", "old"))
    (tmp_path / "notes.txt").write_text("kind: Pod\n")
    found = in_kubernetes_terms(str(tmp_path), None, recursive=False, dialect="")
    assert found is not None
    assert [each["metadata"]["name"] for each in map(json.loads, found.splitlines())] == ["web", "old"]
    for path in (str(tmp_path / "none.yml"), "https://example.test/a.yml"):
        assert in_kubernetes_terms(path, None, recursive=False, dialect="") is None


def test_plan_reads_the_same_objects_with_their_namespace(tmp_path: Path):
    path = tmp_path / "m.yml"
    path.write_text(f"{POD}---\napiVersion: v1\nkind: NamespaceList\nitems: [{{apiVersion: v1, kind: Namespace}}]\n")
    pod, namespace = (one.object for one in read_manifests([str(path)], "shop", dialect="original"))
    assert (pod["metadata"]["namespace"], pod["spec"]["containers"][0]["args"]) == ("shop", ["sleep", "9"])
    assert namespace["metadata"] == {"annotations": {"minik8s.io/dialect": "original"}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("metadata: {name: x}\n", "document 1: no kind"),
        ("apiVersion: apps/v2\nkind: Deployment\n", "there is Deployment of apps/v1"),
        ("apiVersion: v1\nkind: Podd\n", "kind Podd of v1 is not served"),
        ("apiVersion: v1\nkind: Pod\nmetadata: x\n", "metadata must be a mapping, not str"),
        ("- a\n- b\n", "an object must be a mapping, not list"),
        ("a: [\n", "is not valid YAML"),
        ("", "no objects in"),
    ],
)
def test_what_plan_cannot_read_is_explained(tmp_path: Path, text: str, message: str):
    path = tmp_path / "m.yml"
    path.write_text(text)
    with pytest.raises(UsageError, match=message) as raised:
        read_manifests([str(path)], "default")
    assert "m.yml" in str(raised.value)
    with pytest.raises(UsageError, match="manifests are not downloaded"):
        read_manifests(["https://example.test/m.yml"], "default")


def test_kinds_of_other_groups_are_the_servers_to_know(tmp_path):
    path = tmp_path / "m.yml"
    path.write_text("apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: a}\nspec: {match: =}\n")
    ((found, _),) = read_manifests([str(path)], "shop")
    assert (found["metadata"]["namespace"], found["spec"]) == ("shop", {"match": "="})
    path.write_text("apiVersion: networking.k8s.io/v1\nkind: Widget\nmetadata: {name: a}\n")
    with pytest.raises(UsageError, match="is not served"):
        read_manifests([str(path)], "shop")


def test_a_kustomization_among_files_is_told_how_to_be_given(tmp_path: Path):
    (tmp_path / "kustomization.yaml").write_text("namePrefix: a-\n")
    with pytest.raises(UsageError, match=r"kustomization\.yaml, document 1: give a kustomization's folder by -k"):
        read_manifests([str(tmp_path)], "default")
