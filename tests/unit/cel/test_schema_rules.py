"""Rules within schemas: where they apply, what they say, and what an update may leave broken (upstream's tables)."""

from __future__ import annotations

import re
from typing import Any

import pytest

from minik8s_modules.cel import PER_EXPRESSION, PER_OBJECT, Budget, compile_schema, validate
from minik8s_modules.cel.schema.declared import declare
from minik8s_modules.cel.schema.field_path import normalized
from minik8s_modules.cel.schema.rules import compile_rule
from tests.support.cel_cases import cases, compiled, printed


def _cases(name: str) -> list[Any]:
    return [pytest.param(case, id=case["name"]) for case in cases(name)]


@pytest.mark.parametrize("case", _cases("schema_levels"))
def test_a_rule_applies_where_it_stands(case: dict[str, Any]) -> None:
    schema = compiled(case["schema"], root=True)
    errors = validate(schema, case["object"], case.get("old"), "root", ratcheting=False)
    wanted = list(case.get("errors", []))
    assert len(errors) == len(wanted), errors
    for error in errors:
        match = next((text for text in wanted if text in printed(error)), None)
        assert match is not None, error
        wanted.remove(match)


@pytest.mark.parametrize("case", _cases("reasons"))
def test_reason_and_field_path_shape_the_error(case: dict[str, Any]) -> None:
    errors = validate(compiled(case["schema"], root=True), case["object"], None, "root")
    assert [{"type": error.type, "path": error.path} for error in errors] == case.get("errors", [])


@pytest.mark.parametrize("case", _cases("optional_old_self"))
def test_optional_old_self(case: dict[str, Any]) -> None:
    schema = compiled(case["schema"], root=False)
    errors = validate(schema, case.get("object"), case.get("old"), "root", ratcheting=False)
    assert len(errors) == len(case.get("errors", [])), errors
    for error, text in zip(errors, case.get("errors", []), strict=True):
        assert text in printed(error)


@pytest.mark.parametrize("case", _cases("ratcheting"))
def test_what_an_update_leaves_as_it_was_may_stay_broken(case: dict[str, Any]) -> None:
    schema = compiled(case["schema"], root=False)
    budget = Budget(case.get("budget", PER_OBJECT))
    found = validate(schema, case["object"], case.get("old"), "root", budget)
    errors = [printed(each) for each in found if not each.warning]
    assert len(errors) == len(case.get("errors", [])), errors
    assert all(any(text in error for error in errors) for text in case.get("errors", [])), errors
    assert sorted(printed(each) for each in found if each.warning) == sorted(case.get("warnings", []))


@pytest.mark.parametrize("case", _cases("messages"))
def test_a_message_expression_that_gives_no_message_leaves_the_declared_one(case: dict[str, Any]) -> None:
    rule = {"rule": "false", "messageExpression": case["expression"].replace("LONG", "a" * 5121)}
    if "message" in case:
        rule["message"] = case["message"]
    schema = {"type": "object", "properties": {"str": {"type": "string"}}, "x-kubernetes-validations": [rule]}
    budget = Budget(case["budget"], case.get("per_expression", PER_EXPRESSION))
    (error,) = validate(compiled(schema, root=False), {"str": "a string"}, None, "root", budget)
    assert case["expected"] in printed(error)
    if "remaining" in case:
        assert budget.remaining == case["remaining"]


@pytest.mark.parametrize("case", _cases("gateway_api"))
def test_rules_of_gateway_api_compile(case: dict[str, Any]) -> None:
    schema, errors = compile_schema(case["schema"])
    assert errors == []
    assert not schema.empty


def _spec(rule: dict[str, Any], **field: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"f": field}, "x-kubernetes-validations": [rule]}},
    }


_STRINGS = {"type": "array", "items": {"type": "string"}}
_FEW = {"type": "array", "maxItems": 2000, "items": {"type": "string", "maxLength": 2}}
_LOST = "oldSelf cannot be used on the uncorrelatable portion of the schema within schema.properties[l]"


@pytest.mark.parametrize(
    ("rule", "field", "path", "kind", "detail"),
    [
        ({"rule": ""}, _STRINGS, "rule", "Required", "rule is not specified"),
        ({"rule": "true", "message": " "}, _STRINGS, "message", "Invalid", "must be non-empty"),
        ({"rule": "true\n"}, _STRINGS, "", "", ""),
        ({"rule": "true ||\n false"}, _STRINGS, "message", "Required", "if rule contains line breaks"),
        ({"rule": "true", "reason": "Because"}, _STRINGS, "reason", "NotSupported", "supported values"),
        ({"rule": "true", "fieldPath": ".g"}, _STRINGS, "fieldPath", "Invalid", "must be a valid path"),
        ({"rule": "true", "fieldPath": ".f"}, _STRINGS, "", "", ""),
        ({"rule": "self.g == 1"}, _STRINGS, "rule", "Invalid", "undefined field 'g'"),
        ({"rule": "self.f"}, _STRINGS, "rule", "Invalid", "cel expression must evaluate to a bool"),
        ({"rule": "self.f.all(x, self.f.all(y, x == y))"}, _FEW, "rule", "Forbidden", "exceeds budget by factor of"),
        ({"rule": "self.f.all(x, x == 'a')"}, _STRINGS | {"maxItems": 10}, "", "", ""),
        ({"rule": "true", "messageExpression": "1"}, _STRINGS, "messageExpression", "Invalid", "evaluate to a string"),
        ({"rule": "true", "optionalOldSelf": True}, _STRINGS, "optionalOldSelf", "Invalid", "may not be set"),
    ],
)  # fmt: skip
def test_a_schema_is_refused_with_the_path_of_its_mistake(
    rule: dict[str, Any], field: dict[str, Any], path: str, kind: str, detail: str
) -> None:
    _, errors = compile_schema(_spec(rule, **field), "schema")
    if not path:
        assert errors == []
        return
    (error,) = errors
    assert error.path == f"schema.properties[spec].x-kubernetes-validations[0].{path}"
    assert error.type == kind
    assert detail in error.detail


@pytest.mark.parametrize(
    ("listed", "refused"),
    [({}, [_LOST]), ({"x-kubernetes-list-type": "set"}, [_LOST]), ({"x-kubernetes-list-type": "map"}, [])],
)  # fmt: skip
def test_old_self_is_refused_where_items_have_no_old_value(listed: dict[str, Any], refused: list[str]) -> None:
    item = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 10}},
        "x-kubernetes-validations": [{"rule": "self.name == oldSelf.name"}],
    }
    keys = {"x-kubernetes-list-map-keys": ["name"]} if listed.get("x-kubernetes-list-type") == "map" else {}
    schema = {"type": "object", "properties": {"l": {"type": "array", "maxItems": 5, "items": item, **listed, **keys}}}
    _, errors = compile_schema(schema, "schema")
    assert [error.detail for error in errors] == refused


def test_all_rules_of_a_schema_together_have_a_limit() -> None:
    rule = {"rule": "self.f.all(x, x.contains('abc'))"}
    field = {"type": "array", "maxItems": 1000, "items": {"type": "string", "maxLength": 10000}}
    schema = _spec(rule, **field)
    _, one = compile_schema(schema)
    assert one == []
    schema["properties"]["spec"]["x-kubernetes-validations"] = [rule] * 40
    _, errors = compile_schema(schema, "schema")
    assert [error.path for error in errors][-1] == "schema"
    assert "estimated rule cost total for entire OpenAPIv3 schema exceeds budget" in errors[-1].detail


def test_a_long_list_of_an_update_is_compared_by_its_keys() -> None:
    items = [{"name": str(number), "n": number} for number in range(5000)]
    item: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}, "n": {"type": "integer"}}}
    item["x-kubernetes-validations"] = [{"rule": "self.n == oldSelf.n"}]
    listed = {"type": "array", "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    schema = compiled({"type": "object", "properties": {"l": listed}}, root=True)
    changed = [*items[:-1], {"name": "4999", "n": 0}]
    errors = validate(schema, {"l": changed[::-1]}, {"l": items})
    assert [error.path for error in errors] == ["l[0]"]


@pytest.mark.parametrize("case", _cases("compilation"))
def test_what_upstream_refuses_to_compile_is_refused(case: dict[str, Any]) -> None:
    kind = declare(case["schema"], "selfType", root=False)
    assert kind is not None
    for declared, wanted in zip(case["schema"]["x-kubernetes-validations"], case["expected"], strict=True):
        rule = compile_rule(declared, case["schema"], kind)
        assert wanted.get("error", "") in rule.failure
        assert bool(rule.failure) == ("error" in wanted)
        assert wanted.get("message", "") in rule.message_failure
        assert bool(rule.message_failure) == ("message" in wanted)
        assert rule.uses_old == wanted.get("transition", rule.uses_old)


def _field_paths() -> list[Any]:
    found = cases("field_paths")
    return [pytest.param(found[0]["schema"], case, id=case["name"]) for case in found]


@pytest.mark.parametrize(("schema", "case"), _field_paths())
def test_a_field_path_leads_to_a_field_or_is_refused(schema: dict[str, Any], case: dict[str, Any]) -> None:
    if "error" in case:
        with pytest.raises(ValueError, match=re.escape(case["error"])):
            normalized(case["path"], schema)
    else:
        path = normalized(case["path"], schema)
        assert path == case.get("result", path)


def test_a_text_of_unknown_size_is_too_dear_for_a_message() -> None:
    """As upstream (validation_test.go, "rule invalidated by messageExpression exceeding per-CRD estimated cost")."""
    rule = {"rule": "true", "messageExpression": "string(self[0]) + string(self[1]) + string(self[2])"}
    part = {"type": "array", "items": {"type": "string"}, "x-kubernetes-validations": [rule]}
    _, errors = compile_schema({"type": "object", "properties": {"f": part}}, "schema")
    at = "schema.properties[f].x-kubernetes-validations[0].messageExpression"
    assert sorted((error.path, error.type) for error in errors) == [
        ("schema", "Forbidden"), (at, "Forbidden"), (at, "Forbidden"),
    ]  # fmt: skip
