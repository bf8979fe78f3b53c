"""Rules within schemas: where they apply, what they say, and what an update may leave broken (upstream's tables)."""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.cel import PER_EXPRESSION, PER_OBJECT, Budget, validate
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
