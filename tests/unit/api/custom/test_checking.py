"""Validation of custom objects, in Kubernetes' words."""

from __future__ import annotations

import pytest

from minik8s_modules.api.custom.checking import checker
from minik8s_modules.api.custom.closest import closest


def faults_of(schema, value, old=None):
    return [str(each) for each in checker({"type": "object", "properties": {"spec": schema}})(
        {"spec": value}, None if old is None else {"spec": old}
    )]  # fmt: skip


EITHER = [{"required": ["a"]}, {"required": ["b"]}]


@pytest.mark.parametrize(
    ("schema", "value", "wanted"),
    [
        ({"type": "integer"}, "x", 'spec: Invalid value: "string": spec in body must be of type integer: "string"'),
        ({"type": "string"}, 1, 'spec: Invalid value: "integer": spec in body must be of type string: "integer"'),
        ({"type": "string"}, None, 'spec: Invalid value: "null": spec in body must be of type string: "null"'),
        (
            {"x-kubernetes-int-or-string": True},
            True,
            'spec: Invalid value: "boolean": spec in body must be of type integer,string: "boolean"',
        ),
        (
            {"type": "integer", "minimum": 1},
            0,
            "spec: Invalid value: 0: spec in body should be greater than or equal to 1",
        ),
        (
            {"type": "integer", "maximum": 1},
            2,
            "spec: Invalid value: 2: spec in body should be less than or equal to 1",
        ),
        (
            {"type": "number", "minimum": 1, "exclusiveMinimum": True},
            1,
            "spec: Invalid value: 1: spec in body should be greater than 1",
        ),
        ({"type": "integer", "multipleOf": 2}, 3, "spec: Invalid value: 3: spec in body should be a multiple of 2"),
        ({"type": "string", "maxLength": 1}, "ab", "spec: Too long: may not be more than 1 bytes"),
        (
            {"type": "string", "minLength": 2},
            "a",
            'spec: Invalid value: "a": spec in body should be at least 2 chars long',
        ),
        ({"type": "string", "pattern": "^a$"}, "b", "spec: Invalid value: \"b\": spec in body should match '^a$'"),
        ({"type": "string", "enum": ["a", "="]}, "b", 'spec: Unsupported value: "b": supported values: "a", "="'),
        (
            {"type": "string", "format": "ipv4"},
            "x",
            'spec: Invalid value: "x": spec in body must be of type ipv4: "x"',
        ),
        ({"type": "array", "items": {}, "maxItems": 1}, [1, 2], "spec: Too many: 2: must have at most 1 items"),
        (
            {"type": "array", "items": {}, "minItems": 1},
            [],
            "spec: Invalid value: 0: spec in body should have at least 1 items",
        ),
        ({"type": "object", "maxProperties": 1}, {"a": 1, "b": 2}, "spec: Too many: 2: must have at most 1 items"),
        ({"type": "object", "required": ["a"]}, {}, "spec.a: Required value"),
        (
            {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            ["a", "b", "a"],
            'spec[2]: Duplicate value: "a"',
        ),
        (
            {
                "type": "array",
                "items": {"type": "object"},
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["n"],
            },
            [{"n": 1, "v": 1}, {"n": 1, "v": 2}],
            'spec[1]: Duplicate value: {"n": 1}',
        ),
        (
            {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "integer"}}},
            {"k": [1, "x"]},
            'spec.k[1]: Invalid value: "string": spec.k[1] in body must be of type integer: "string"',
        ),
        (
            {"type": "object", "not": {"required": ["a"]}},
            {"a": 1},
            '<nil>: Invalid value: "": "spec" must not validate the schema (not)',
        ),
    ],
)
def test_what_is_wrong_is_told(schema, value, wanted):
    assert faults_of(schema, value) == [wanted]


def test_several_schemas_are_told_with_the_nearest_miss():
    wanted = '<nil>: Invalid value: "": "spec" must validate at least one schema (anyOf)'
    assert faults_of({"type": "object", "anyOf": EITHER}, {}) == [wanted, "spec.a: Required value"]
    wanted = '<nil>: Invalid value: "": "spec" must validate one and only one schema (oneOf). Found none valid'
    assert faults_of({"type": "object", "oneOf": EITHER}, {}) == [wanted, "spec.a: Required value"]
    wanted = (
        '<nil>: Invalid value: "": "spec" must validate one and only one schema (oneOf). Found 2 valid alternatives'
    )
    assert faults_of({"type": "object", "oneOf": EITHER}, {"a": 1, "b": 1}) == [wanted]
    wanted = '<nil>: Invalid value: "": "spec" must validate all the schemas (allOf)'
    assert faults_of({"type": "object", "allOf": EITHER}, {"a": 1}) == ["spec.b: Required value", wanted]
    assert faults_of({"type": "object", "allOf": EITHER}, {}) == [
        "spec.a: Required value",
        "spec.b: Required value",
        f"{wanted}. None validated",
    ]


def test_the_nearest_miss_is_what_looks_at_most_of_the_value():
    """Gateway API's addresses: its tests want to hear of the address, not that the type might be another."""
    address = {"type": {"enum": ["IPAddress"]}, "value": {"anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]}}
    branches = [{"properties": {"type": {"not": {"enum": ["IPAddress"]}}}}, {"properties": address}]
    fields = {"type": {"type": "string"}, "value": {"type": "string"}}
    schema = {"type": "object", "properties": fields, "oneOf": branches}
    assert faults_of(schema, {"type": "IPAddress", "value": "1.2.3.4:8080"}) == [
        '<nil>: Invalid value: "": "spec" must validate one and only one schema (oneOf). Found none valid',
        '<nil>: Invalid value: "": "spec.value" must validate at least one schema (anyOf)',
        'spec.value: Invalid value: "1.2.3.4:8080": spec.value in body must be of type ipv4: "1.2.3.4:8080"',
    ]


@pytest.mark.parametrize(
    ("schema", "value", "place"),
    [
        ({"properties": {"a": {"type": "string"}}}, {"a": 1}, 1),
        ({"additionalProperties": {"type": "string"}}, {"a": 1, "b": 2}, 1),
        ({"items": {"type": "string"}}, [1, 2], 1),
        ({"format": "date-time"}, "x", 1),
        ({"allOf": [{"minimum": 3}]}, 2, 1),
        ({"oneOf": [{"minimum": 3}]}, 2, 1),
        ({"properties": {"b": {}}}, {"a": 1}, 0),
        ({"additionalProperties": False}, {"a": 1}, 0),
        ({"minLength": 3}, "x", 0),
        ({"enum": [True]}, None, 0),
    ],
)
def test_the_first_of_equals_is_nearest(schema, value, place):
    assert closest([{"not": {}}, schema], value) == place


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "integer"}, 1.0),
        ({"type": "number"}, 1),
        ({"type": "string", "nullable": True}, None),
        ({"type": "string", "format": "no-such-format"}, "x"),
        ({"x-kubernetes-int-or-string": True}, "80%"),
        ({"x-kubernetes-preserve-unknown-fields": True}, {"a": [1, {"b": None}]}),
        ({"type": "object", "anyOf": EITHER}, {"b": 1}),
        ({"type": "string", "enum": ["=", "on"]}, "="),
    ],
)
def test_what_is_right_is_not(schema, value):
    assert faults_of(schema, value) == []


LIST = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["n"],
    "items": {"type": "object", "properties": {"n": {"type": "string"}, "v": {"type": "integer", "minimum": 1}}},
}
PLAIN = {"type": "array", "items": {"type": "integer", "minimum": 1}}


@pytest.mark.parametrize(
    ("schema", "old", "new", "faults"),
    [
        ({"type": "object", "required": ["a"]}, {"b": 1}, {"b": 1}, 0),
        ({"type": "object", "required": ["a"]}, {"b": 1}, {"b": 2}, 1),
        (LIST, [{"n": "a", "v": 0}], [{"n": "b", "v": 1}, {"n": "a", "v": 0}], 0),
        (LIST, [{"n": "a", "v": 0}], [{"n": "b", "v": 0}], 1),
        (LIST, [{"n": "a", "v": 0}], [{"n": "a", "v": -1}], 1),
        (PLAIN, [0], [0], 0),
        (PLAIN, [0], [0, 1], 1),
    ],
)
def test_what_has_not_changed_may_stay(schema, old, new, faults):
    assert len(faults_of(schema, new, old)) == faults
    assert faults_of(schema, new) != []


def test_a_pattern_costs_time_by_length_alone():
    schema = {"type": "string", "pattern": "^(a+)+$"}
    assert len(faults_of(schema, "a" * 50_000 + "b")) == 1
