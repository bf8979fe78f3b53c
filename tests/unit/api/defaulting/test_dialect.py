"""The original's manifests, by cases and by two of its own samples."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import yaml

from minik8s_modules.api.defaulting.conversion import stored_kind, to_storage
from minik8s_modules.api.defaulting.dialect import to_canonical
from minik8s_modules.api.kinds import KINDS, POD
from minik8s_modules.api.schema import structural
from minik8s_modules.api.validation import validate_create, warnings
from tests.unit.api import samples


@samples.cases("to_canonical")
def test_to_canonical(path: Path):
    case = samples.read(path)
    kind = KINDS.by_name(case.get("resource", case["object"]["kind"]))
    assert kind is not None
    before = copy.deepcopy(case["object"])
    around = case.get("around", "")
    canonical = to_canonical(kind, case["object"], around)
    expected = before if case["result"] == "same" else case["result"]
    assert canonical == expected
    assert case["object"] == before
    assert to_canonical(kind, canonical) == to_canonical(kind, canonical, around) == canonical


@pytest.mark.parametrize("path", sorted((samples.ROOT / "examples" / "original").glob("*.yaml")), ids=lambda p: p.stem)
def test_an_original_manifest_applies_unchanged(path: Path):
    manifest = yaml.safe_load(path.read_text())
    pod = to_canonical(POD, manifest)
    assert not structural.unknown_fields(POD, pod)
    assert not structural.type_errors(POD, pod)
    stored = samples.created(pod)
    assert not validate_create(POD, stored)
    container = stored["spec"]["containers"][0]
    assert container["tty"] is True
    assert container["ports"][0]["protocol"] == "TCP"
    assert container.get("args") == manifest["spec"]["containers"][0].get("command")
    assert stored["spec"]["restartPolicy"] == manifest["spec"].get("restartPolicy", "Never")


def test_there_are_original_manifests():
    assert {path.name for path in (samples.ROOT / "examples" / "original").glob("*.yaml")} >= {
        "01-pod.yaml",
        "15-pod-custom-metric.yaml",
    }


def test_reading_in_the_dialect_is_told():
    pod = samples.sample(POD)
    pod["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "protocol": "tcp"}]
    warned = warnings(POD, samples.created(to_canonical(POD, pod)))
    assert len(warned) == 1
    assert warned[0].startswith("read in the dialect of the original MiniK8s")


@samples.cases("original_manifests")
def test_the_originals_manifests_are_valid_and_canonical_when_stored(path: Path):
    manifest = yaml.safe_load(path.read_text())
    kind = samples.kind_of(manifest)
    obj = to_canonical(kind, manifest)
    assert not structural.unknown_fields(kind, obj)
    stored = to_storage(kind, samples.created(obj))
    assert validate_create(stored_kind(kind), stored) == []
    assert to_canonical(stored_kind(kind), stored) == stored
