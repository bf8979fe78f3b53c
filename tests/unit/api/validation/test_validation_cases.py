"""Each file of tests/cases/validate_create and validate_update is one rule; its name is the sentence."""

from __future__ import annotations

from pathlib import Path

from minik8s_modules.api.defaulting.defaults import apply_defaults
from minik8s_modules.api.kinds import KINDS
from minik8s_modules.api.lifecycle.strategy import prepare_update
from minik8s_modules.api.objects import metadata
from minik8s_modules.api.validation import validate_create, validate_update
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
