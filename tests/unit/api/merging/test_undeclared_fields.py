"""Who owns fields of custom kinds that nobody declares: maps key by key, lists and plain values whole."""

from __future__ import annotations

import pytest

from minik8s_modules.api.merging import fieldsets
from minik8s_modules.api.merging.typed_merge import merge
from minik8s_modules.api.schema.shapes import declared_shape

OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
PART = {**OPEN, "properties": {"known": {"type": "object", "properties": {"a": {"type": "integer"}}}}}
SHAPE = declared_shape({"type": "object", "properties": {"free": OPEN, "part": PART, "bare": {"type": "object"}}})


@pytest.mark.parametrize("field", ["free", "bare"])
def test_what_an_applier_says_of_them_is_owned_leaf_by_leaf(field):
    found = fieldsets.of_object(SHAPE, {field: {"a": {"b": 1, "list": [{"c": 1}]}, "empty": {}}})
    assert found == {
        f"f:{field}": {"f:a": {".": {}, "f:b": {}, "f:list": {}}, "f:empty": {}},
    }  # fmt: skip


def test_beside_declared_fields_they_are_members_themselves():
    found = fieldsets.of_object(SHAPE, {"part": {"known": {"a": 1}, "more": {"b": 1}}})
    assert found["f:part"]["f:known"] == {"f:a": {}}
    assert found["f:part"]["f:more"] == {".": {}, "f:b": {}}


def test_two_managers_share_a_map():
    live = {"free": {"a": {"mine": 1}}}
    assert merge(SHAPE, live, {"free": {"a": {"yours": 2}}}) == {"free": {"a": {"mine": 1, "yours": 2}}}
    assert merge(SHAPE, live, {"free": {"a": [1]}}) == {"free": {"a": [1]}}


def test_a_change_is_where_it_is():
    found = fieldsets.compare(
        SHAPE, {"free": {"a": {"b": 1, "c": 1}}}, {"free": {"a": {"b": 2, "c": 1, "d": {"e": 1}}}}
    )
    assert found.modified == {"f:free": {"f:a": {"f:b": {}}}}
    assert found.added["f:free"]["f:a"]["f:d"]["f:e"] == {}
    whole = fieldsets.compare(SHAPE, {"free": {"a": {"b": 1}}}, {"free": {"a": 7}})
    assert whole.modified == {"f:free": {"f:a": {}}}


def test_what_is_no_longer_applied_goes_alone():
    obj = {"free": {"a": {"b": 1, "c": 1}}}
    gone: fieldsets.Fields = {"f:free": {"f:a": {"f:b": {}}}}
    assert fieldsets.removed(SHAPE, obj, gone) == {"free": {"a": {"c": 1}}}
