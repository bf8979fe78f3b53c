"""The three patch formats, by cases; and what no patch may do to its arguments."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from minik8s_modules.api.errors import BadRequest, StatusError
from minik8s_modules.api.kinds import CONFIG_MAP, KINDS, POD
from minik8s_modules.api.merging.patch import MAX_OPERATIONS, json_patch, merge_patch
from minik8s_modules.api.merging.strategic_merge import strategic_merge
from tests.unit.api import samples


@samples.cases("strategic_merge")
def test_strategic_merge(path: Path):
    case = samples.read(path)
    kind = KINDS.by_name(case["kind"])
    assert kind is not None
    before = copy.deepcopy(case)
    assert strategic_merge(kind, case["object"], case["patch"]) == case["result"]
    assert case == before


@samples.cases("json_patch")
def test_json_patch(path: Path):
    case = samples.read(path)
    before = copy.deepcopy(case)
    if "error" in case:
        with pytest.raises(StatusError) as refused:
            json_patch(case["object"], case["ops"])
        assert refused.value.message == case["error"]
    else:
        assert json_patch(case["object"], case["ops"]) == case["result"]
    assert case == before


@pytest.mark.parametrize(
    ("obj", "patch", "result"),  # RFC 7386, appendix A
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch(obj, patch, result):
    before = copy.deepcopy((obj, patch))
    assert merge_patch(obj, patch) == result
    assert (obj, patch) == before


@pytest.mark.parametrize(
    "patch",
    [
        [],
        {"$patch": "remove"},
        {"spec": {"containers": [{"image": "i"}]}},
        {"metadata": {"$deleteFromPrimitiveList/finalizers": "x"}},
        {"spec": {"$setElementOrder/containers": "x"}},
        {"spec": {"$retainKeys": "x"}},
        {"spec": {"$retainKeys": ["hostname"], "nodeName": "n"}},
    ],
)
def test_a_malformed_strategic_merge_is_a_bad_request(patch):
    with pytest.raises(BadRequest):
        strategic_merge(POD, {"spec": {"containers": [{"name": "a"}]}}, patch)


def test_a_json_patch_has_a_limit_of_operations():
    ops = [{"op": "add", "path": "/a", "value": 1}] * (MAX_OPERATIONS + 1)
    with pytest.raises(StatusError) as refused:
        json_patch({}, ops)
    assert refused.value.code == 413


def test_copies_cannot_grow_without_end():
    doubling = [{"op": "copy", "from": "/data", "path": f"/data/{index}"} for index in range(40)]
    with pytest.raises(StatusError) as refused:
        json_patch({"data": {"a": "x" * 1000}}, doubling)
    assert refused.value.code == 413


def test_a_patch_of_an_unknown_field_is_kept_for_validation_to_tell():
    assert strategic_merge(CONFIG_MAP, {}, {"nope": [{"a": 1}]}) == {"nope": [{"a": 1}]}
