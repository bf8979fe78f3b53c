"""CEL rules after the schema."""

from __future__ import annotations

import pytest

from minik8s_modules.api.custom import checking, rules
from minik8s_modules.api.objects import JsonObject

SPEC: JsonObject = {
    "type": "object",
    "required": ["size"],
    "properties": {"size": {"type": "integer", "minimum": 1}, "most": {"type": "integer"}},
    "x-kubernetes-validations": [
        {"rule": "!has(self.most) || self.size <= self.most", "message": "too large"},
        {"rule": "self.size >= oldSelf.size", "message": "never smaller", "reason": "FieldValueForbidden"},
    ],
}
SCHEMA: JsonObject = {"type": "object", "properties": {"spec": SPEC}}
CHECK = rules.with_rules(SCHEMA, checking.checker(SCHEMA))


def told(new: JsonObject, old: JsonObject | None = None) -> list[str]:
    return [str(each) for each in CHECK({"spec": new}, None if old is None else {"spec": old})]


@pytest.mark.parametrize(
    ("new", "old", "wanted"),
    [
        ({"size": 2}, None, []),
        ({"size": 2, "most": 1}, None, ['spec: Invalid value: "object": too large']),
        ({"size": 1}, {"size": 2}, ["spec: Forbidden: never smaller"]),
        ({"size": 2, "most": 1}, {"size": 2, "most": 1}, []),
    ],
)
def test_rules_are_asked_of_what_changes(new, old, wanted):
    assert told(new, old) == wanted


def test_rules_are_not_asked_of_what_the_schema_refuses():
    first, second = told({})
    assert first == "spec.size: Required value"
    assert second.startswith("<nil>: Invalid value: null: some validation rules were not checked")
    assert told({"size": 0, "most": -1}) == [
        "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1",
        'spec: Invalid value: "object": too large',
    ]


def test_a_schema_without_rules_costs_nothing_more():
    plain: JsonObject = {"type": "object"}
    check = checking.checker(plain)
    assert rules.with_rules(plain, check) is check


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("Required", "a: Required value: told"),
        ("Forbidden", "a: Forbidden: told"),
        ("Duplicate", 'a: Duplicate value: "x"'),
        ("Invalid", 'a: Invalid value: "x": told'),
        ("NotSupported", 'a: Unsupported value: "x": told'),
        ("InternalError", "a: Internal error: told"),
    ],
)
def test_errors_are_told_as_kubernetes_tells_them(kind, wanted):
    assert str(rules.cause_of(kind, "a", "x", "told")) == wanted
