"""What the answer of a converter means."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from minik8s_modules.apiserver.webhooks import conversion_reviews as reviews
from minik8s_modules.apiserver.webhooks.conversion_reviews import BadConversion

OLD = {
    "apiVersion": "example.com/v1",
    "kind": "Host",
    "metadata": {"name": "a", "uid": "1", "labels": {"l": "1"}, "finalizers": ["f.example.com/x"]},
}
NEW = {**OLD, "apiVersion": "example.com/v2"}


def answer(*objects: Any, version: str = "v1", **fields: Any) -> bytes:
    response = {"uid": "u", "result": {"status": "Success"}, "convertedObjects": list(objects), **fields}
    return orjson.dumps(
        {"apiVersion": f"apiextensions.k8s.io/{version}", "kind": "ConversionReview", "response": response}
    )


def converted(body: bytes, count: int = 1, version: str = "v1") -> list[dict[str, Any]]:
    return reviews.converted(body, [OLD] * count, "example.com/v2", version, "u")


def why(body: bytes, count: int = 1) -> tuple[str, str]:
    with pytest.raises(BadConversion) as caught:
        converted(body, count)
    return caught.value.kind, str(caught.value)


def test_only_labels_and_annotations_of_the_metadata_are_taken() -> None:
    meta = {"name": "a", "uid": "1", "annotations": {"x": "y"}, "generation": 9}
    (found,) = converted(answer({**NEW, "metadata": meta, "spec": {"b": 2}}))
    assert found["spec"] == {"b": 2}
    assert found["metadata"] == {
        "name": "a", "uid": "1", "finalizers": ["f.example.com/x"], "annotations": {"x": "y"},
    }  # fmt: skip


def test_a_review_of_the_older_version_has_no_uid_to_be_right() -> None:
    assert len(converted(answer(NEW, version="v1beta1", uid=""), version="v1beta1")) == 1


def test_one_object_too_few_or_many_is_none() -> None:
    assert why(answer(NEW), 2) == (reviews.PARTIAL, "returned 1 objects, expected 2")
    assert why(answer(NEW, NEW)) == (reviews.PARTIAL, "returned 2 objects, expected 1")


def test_the_object_at_fault_is_told_by_its_place() -> None:
    wrong = {**NEW, "metadata": {"name": "b", "uid": "1"}}
    assert why(answer(NEW, wrong), 2) == (
        reviews.INVALID, "returned invalid converted object at index 1: must have the same name: a != b",
    )  # fmt: skip
    assert why(answer(wrong))[1] == "returned invalid object: must have the same name: a != b"
    labelled = {**NEW, "metadata": {"name": "a", "uid": "1", "labels": []}}
    text = "returned invalid metadata in object at index 1: invalid metadata.labels of type []interface {}"
    assert why(answer(NEW, labelled), 2)[1] == f"{text} in converted object"


def test_an_object_without_metadata_is_another() -> None:
    metas: tuple[Any, ...] = (None, [], "a")
    for meta in metas:
        assert why(answer({**NEW, "metadata": meta}))[1].endswith("must have the same name: a != ")


def test_what_the_converter_says_of_its_failure_is_told() -> None:
    assert why(answer(result={"status": "Failure", "message": "no"})) == (reviews.MALFORMED, "failed: no")
    assert why(answer(result=None))[1] == "failed: response.result.status was '', not 'Success'"
