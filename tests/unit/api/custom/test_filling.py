"""Pruning and defaulting by a structural schema."""

from __future__ import annotations

import copy

import pytest

from minik8s_modules.api.custom.filling import Filler

TEXT, NUMBER = {"type": "string"}, {"type": "integer"}


def an_object(**fields):
    return {"type": "object", "properties": fields}


@pytest.mark.parametrize(
    ("schema", "given", "wanted", "unknown"),
    [
        (an_object(a=TEXT), {"a": "x", "b": 1}, {"a": "x"}, ["b"]),
        (an_object(a=an_object(b=TEXT)), {"a": {"b": "x", "c": 1}}, {"a": {"b": "x"}}, ["a.c"]),
        (an_object(a={"type": "array", "items": an_object()}), {"a": [{"b": 1}]}, {"a": [{}]}, ["a[0].b"]),
        (
            an_object(a={"type": "object", "additionalProperties": an_object()}),
            {"a": {"k": {"b": 1}}},
            {"a": {"k": {}}},
            ["a.k.b"],
        ),
        (
            an_object(a={**an_object(b=an_object()), "x-kubernetes-preserve-unknown-fields": True}),
            {"a": {"c": {"d": 1}, "b": {"e": 1}}},
            {"a": {"c": {"d": 1}, "b": {}}},
            ["a.b.e"],
        ),
        (
            an_object(a={**an_object(spec=an_object()), "x-kubernetes-embedded-resource": True}),
            {"a": {"kind": "K", "apiVersion": "v1", "metadata": {"name": "x"}, "other": 1}},
            {"a": {"kind": "K", "apiVersion": "v1", "metadata": {"name": "x"}}},
            ["a.other"],
        ),
        (
            an_object(),
            {"apiVersion": "v1", "kind": "K", "metadata": {"name": "x"}},
            {"apiVersion": "v1", "kind": "K", "metadata": {"name": "x"}},
            [],
        ),
        (an_object(a={"type": "object", "additionalProperties": True}), {"a": {"b": "x", "c": {"d": 1}}},
         {"a": {"b": "x", "c": {}}}, ["a.c.d"]),
    ],
)  # fmt: skip
def test_what_is_not_declared_goes(schema, given, wanted, unknown):
    assert Filler(schema).unknown(copy.deepcopy(given)) == [f'unknown field "{path}"' for path in unknown]
    Filler(schema).prune(given)
    assert given == wanted


@pytest.mark.parametrize(
    ("schema", "given", "wanted"),
    [
        (an_object(a={**TEXT, "default": "x"}), {}, {"a": "x"}),
        (an_object(a={**TEXT, "default": "x"}), {"a": None}, {"a": "x"}),
        (an_object(a={**TEXT, "default": "x", "nullable": True}), {"a": None}, {"a": None}),
        (an_object(a=TEXT), {"a": None}, {}),
        (an_object(a={**an_object(b={**NUMBER, "default": 1}), "default": {}}), {}, {"a": {"b": 1}}),
        (an_object(a=an_object(b={**NUMBER, "default": 1})), {}, {}),
        (an_object(a=an_object(b={**NUMBER, "default": 1})), {"a": {}}, {"a": {"b": 1}}),
        (
            an_object(a={"type": "array", "items": an_object(b={**NUMBER, "default": 1})}),
            {"a": [{}, {"b": 2}]},
            {"a": [{"b": 1}, {"b": 2}]},
        ),
        (
            an_object(a={"type": "object", "additionalProperties": {**TEXT, "default": "x"}}),
            {"a": {"k": None}},
            {"a": {"k": "x"}},
        ),
    ],
)
def test_what_is_absent_gets_its_default(schema, given, wanted):
    Filler(schema).default(given)
    assert given == wanted


def test_a_default_is_nobody_elses():
    filler = Filler(an_object(a={"type": "array", "items": TEXT, "default": []}))
    first: dict[str, list[str]] = {}
    second: dict[str, list[str]] = {}
    filler.fill(first)
    filler.fill(second)
    first["a"].append("x")
    assert second == {"a": []}
