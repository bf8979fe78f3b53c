"""Each file of tests/cases/validate_create and validate_update is one rule; its name is the sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from minik8s_modules.api import validation
from minik8s_modules.api.defaulting.defaults import apply_defaults
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.kinds import KINDS, POD
from minik8s_modules.api.lifecycle.strategy import prepare_update
from minik8s_modules.api.objects import JsonObject, metadata, name, spec
from minik8s_modules.api.validation import validate_create, validate_update
from minik8s_modules.api.validation.registry import CREATE, OF_SPEC
from tests.unit.api import samples


@samples.cases("validate_create")
def test_create(path: Path):
    case = samples.read(path)
    kind = KINDS.by_name(case["kind"])
    assert kind is not None
    obj = samples.created(samples.merged(samples.sample(kind), case["change"]))
    assert list(map(str, validate_create(kind, obj))) == case["says"]


@samples.cases("validate_update")
def test_update(path: Path):
    case = samples.read(path)
    kind = KINDS.by_name(case["kind"])
    assert kind is not None
    old = samples.created(samples.merged(samples.sample(kind), case["old"]))
    metadata(old).update(case["old"].get("metadata", {}))  # what create would not take from a client
    new = samples.merged(old, case["new"])
    apply_defaults(kind, new)
    prepare_update(kind, new, old)
    assert list(map(str, validate_update(kind, new, old))) == case["says"]


@samples.cases("validate_create")
def test_what_is_checked_again_only_where_the_spec_changes_depends_on_nothing_else(path: Path):
    case = samples.read(path)
    kind = KINDS.by_name(case["kind"])
    assert kind is not None
    if kind.id in OF_SPEC:
        obj = samples.created(samples.merged(samples.sample(kind), case["change"]))
        for told in ({}, {"resourceVersion": "1"}):
            bare = {"metadata": {"name": name(obj), **told}, "spec": spec(obj)}
            assert CREATE[kind.id](bare) == CREATE[kind.id](obj)


@pytest.mark.parametrize(
    ("grace_s", "change", "checked"),
    [
        (30, {"metadata": {"labels": {"tier": "web"}}}, False),
        (30, {"spec": {"terminationGracePeriodSeconds": 1}}, True),
        (1, {"spec": {"terminationGracePeriodSeconds": True}}, True),  # equal to 1, and no number
    ],
)
def test_the_spec_of_a_pod_is_checked_where_it_changes(
    monkeypatch: pytest.MonkeyPatch, grace_s: int, change: JsonObject, *, checked: bool
):
    asked: list[JsonObject] = []

    def check(obj: JsonObject) -> list[Cause]:
        asked.append(obj)
        return []

    monkeypatch.setattr(validation, "CREATE", {POD.id: check})
    monkeypatch.setattr(validation, "UPDATE", {})
    old = samples.created(samples.merged(samples.sample(POD), {"spec": {"terminationGracePeriodSeconds": grace_s}}))
    new = samples.merged(old, change)
    prepare_update(POD, new, old)
    assert validate_update(POD, new, old) == []
    assert asked == ([new] if checked else [])
