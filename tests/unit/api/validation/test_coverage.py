"""No field of a served kind is ignored: generated from the OpenAPI definitions and coverage.yml.

Each field is classified; coverage_tests.yml names a test that exists for what is implemented; what is refused is seen
refused, and what is warned about is seen warned about, on an object built for the field.
"""

from __future__ import annotations

import ast
from functools import cache
from typing import Any

import pytest
import yaml

from minik8s_modules.api.kinds import KINDS, NODE
from minik8s_modules.api.schema import coverage, structural
from minik8s_modules.api.validation import validate_create, warnings
from tests.unit.api import samples

FIELDS = [(kind, found) for kind in KINDS.all() for found in coverage.covered(kind)]


def those(treatment):
    return [
        pytest.param(kind, found, id=f"{kind.kind}.{kind.group}:{found.path}")
        for kind, found in FIELDS
        if found.rule is not None and found.rule.treatment == treatment
    ]


def test_every_field_is_classified():
    assert not [f"{kind.kind} {found.path}" for kind, found in FIELDS if found.rule is None]


def test_every_rule_speaks_about_a_field_that_is_there():
    known = {}
    for kind in KINDS.all():
        for name in structural.closure([kind.definition]):
            for prefix in ("io.k8s.apimachinery.pkg.apis.", "io.k8s.api.", "io."):
                if name.startswith(prefix):
                    known[name.removeprefix(prefix)] = set(structural.shape(name).fields)
                    break
    stale = [
        f"{name}.{field}"
        for name, rules in coverage.rules().items()
        for field in rules
        if field not in known.get(name, ())
    ]
    assert not stale


@cache
def functions(file: str) -> set[str]:
    tree = ast.parse((samples.ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


TESTS = yaml.safe_load((samples.ROOT / "tests/unit/api/coverage_tests.yml").read_text(encoding="utf-8"))


def test_every_implemented_field_and_no_other_names_its_tests():
    implemented = {
        name: {field for field, rule in rules.items() if rule.treatment == "implemented"}
        for name, rules in coverage.rules().items()
    }
    assert {name: set(fields) for name, fields in TESTS.items()} == {k: v for k, v in implemented.items() if v}


def ids() -> set[str]:
    named = [each for fields in TESTS.values() for each in fields.values()]
    return {test for each in named for test in ([each] if isinstance(each, str) else each)}


@pytest.mark.parametrize("test", sorted(ids()))
def test_what_is_implemented_names_a_test_that_exists(test):
    file, _, function = test.partition("::")
    assert (samples.ROOT / file).is_file()
    if file.endswith(".py"):
        assert function in functions(file)
    else:
        assert file.startswith("tests/cases/")


def value_for(shape: structural.Shape, unless: tuple[Any, ...]) -> Any:
    """Return a value of the right type that the rule does not accept silently."""
    for candidate in _candidates(shape):
        if not any(candidate == each and isinstance(candidate, bool) == isinstance(each, bool) for each in unless):
            return candidate
    raise AssertionError(f"no value of {shape.kind} outside {unless}")


def _candidates(shape: structural.Shape) -> list[Any]:
    simple: dict[str, list[Any]] = {
        "string": ["odd"], "integer": [3], "number": [1.5], "boolean": [True, False], "quantity": ["1"], "intstr": [1],
        "any": [{"odd": 1}],
    }  # fmt: skip
    if shape.format == "date-time":
        return ["2026-01-01T00:00:00Z"]
    if shape.kind in simple:
        return simple[shape.kind]
    if shape.kind == "list":
        assert shape.items is not None
        return [[_candidates(shape.items)[0]]]
    if shape.kind == "map":
        assert shape.items is not None
        return [{"odd": _candidates(shape.items)[0]}]
    name = next(iter(shape.fields))
    return [{}, {name: _candidates(shape.fields[name])[0]}]


def put(obj: Any, path: str, value: Any) -> Any:
    """Put ``value`` at a path like ``spec.containers[].env[].name``, making what is missing on the way."""
    head, _, rest = path.partition(".")
    name = head.removesuffix("[]")
    if not rest:
        obj[name] = value
    elif head.endswith("[]"):
        items = obj.setdefault(name, [])
        if not items:
            items.append({})
        put(items[0], rest, value)
    else:
        put(obj.setdefault(name, {}), rest, value)
    return obj


def with_field(kind, found):
    obj = put(samples.sample(kind), found.path, value_for(found.shape, found.rule.unless))
    assert not structural.unknown_fields(kind, obj)
    assert not structural.type_errors(kind, obj)
    return obj, found.path.replace("[]", "[0]")


@pytest.mark.parametrize(("kind", "found"), those("refused"))
def test_what_is_refused_is_invalid(kind, found):
    obj, path = with_field(kind, found)
    causes = [cause for cause in validate_create(kind, samples.created(obj)) if cause.field == path]
    assert any("not supported by minik8s" in cause.message for cause in causes)


@pytest.mark.parametrize(("kind", "found"), those("warned"))
def test_what_is_warned_about_is_told(kind, found):
    obj, path = with_field(kind, found)
    warned = [text for text in warnings(kind, samples.created(obj)) if "stored, but minik8s does not act on it" in text]
    assert any(path in text.partition(": ")[0].split(", ") for text in warned)


@pytest.mark.parametrize(("kind", "found"), those("refused") + those("warned"))
def test_what_is_accepted_silently_asks_for_nothing(kind, found):
    for value in found.rule.unless:
        obj = put(samples.sample(kind), found.path, value)
        if structural.type_errors(kind, obj):
            continue  # false, "" and [] are in one list for fields of all types
        stored = samples.created(obj)
        path = found.path.replace("[]", "[0]")
        assert path not in {cause.field for cause in validate_create(kind, stored) if "minik8s" in cause.message}
        assert not any(path in text for text in warnings(kind, stored))


@pytest.mark.parametrize("effect", ["NoSchedule", "PreferNoSchedule", "NoExecute"])
def test_no_effect_of_a_taint_is_warned_about(effect):
    node = samples.merged(samples.sample(NODE), {"spec": {"taints": [{"key": "a", "effect": effect}]}})
    assert validate_create(NODE, samples.created(node)) == []
    assert warnings(NODE, samples.created(node)) == []
