"""A ConversionReview: what the webhook of a definition is asked, and what its answer means; pure.

An answer counts only as a whole: as many objects as were sent, in their order, each still the same object. Of metadata
only labels and annotations are taken. Source: apiextensions-apiserver ``apiserver/conversion/webhook_converter.go``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from minik8s_modules.api import size_limits
from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.validation.meta import validate_annotations, validate_labels

GROUP = "apiextensions.k8s.io"
VERSIONS = ("v1", "v1beta1")
_FAILURES = ("call", "malformed_response", "partial_response", "invalid_converted_object")
CALL, MALFORMED, PARTIAL, INVALID = (f"conversion_webhook_{why}_failure" for why in _FAILURES)
_MOST_CAUSES = 8
_SAME = (("name", "name"), ("namespace", "namespace"), ("uid", "UID"))
_GO_TYPES = {dict: "map[string]interface {}", list: "[]interface {}", bool: "bool", int: "int64", float: "float64"}


class BadConversion(Exception):
    """An answer does not count; ``kind`` is the failure as metrics name it, ``str`` why."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(why)
        self.kind = kind


class _BadMetadata(Exception):
    pass


def review(objs: Sequence[JsonObject], wanted: str, version: str, uid: str) -> bytes:
    """Return the question for ``objs`` in the version ``wanted`` (``group/version``)."""
    request = {"uid": uid, "desiredAPIVersion": wanted, "objects": objs}
    return orjson.dumps({"kind": "ConversionReview", "apiVersion": f"{GROUP}/{version}", "request": request})


def converted(body: bytes, objs: Sequence[JsonObject], wanted: str, version: str, uid: str) -> list[JsonObject]:
    """Return the objects that the answer ``body`` holds.

    Raises:
        BadConversion: it is no answer, or not to this question; the message goes on from who was asked.
    """
    found = _objects(_response(_parsed(body), version, uid))
    if len(found) != len(objs):
        raise BadConversion(PARTIAL, f"returned {len(found)} objects, expected {len(objs)}")
    return [
        _checked(new, old, wanted, _place(index, objs))
        for index, (new, old) in enumerate(zip(found, objs, strict=True))
    ]


def _place(index: int, objs: Sequence[JsonObject]) -> str:
    return f"converted object at index {index}" if len(objs) > 1 else "object"


def _parsed(body: bytes) -> JsonObject:
    try:
        found = orjson.loads(body)
        size_limits.check(found, size_limits.MAX_VALUES_TOGETHER)
    except orjson.JSONDecodeError as error:
        raise _malformed("the answer is not valid JSON") from error
    except StatusError as error:
        raise _malformed(error.message) from error
    if not isinstance(found, dict):
        raise _malformed("the answer is not a ConversionReview object")
    return found


def _malformed(why: str) -> BadConversion:
    return BadConversion(MALFORMED, f"failed: {why}")


def _response(answer: JsonObject, version: str, uid: str) -> JsonObject:
    found = f"{answer.get('apiVersion')}, Kind={answer.get('kind')}"
    if version == "v1" and found != f"{GROUP}/v1, Kind=ConversionReview":
        raise _malformed(f"expected webhook response of {GROUP}/v1, Kind=ConversionReview, got {found[:200]}")
    response = answer.get("response")
    if not isinstance(response, dict):
        raise _malformed("no response provided")
    if version == "v1" and response.get("uid") != uid:
        raise _malformed(f'expected response.uid="{uid}", got "{str(response.get("uid") or "")[:64]}"')
    return response


def _objects(response: JsonObject) -> list[Any]:
    result = response.get("result")
    status, message = (result.get("status"), result.get("message")) if isinstance(result, dict) else ("", "")
    if status != "Success":
        shown = str(status or "")[:64]
        raise _malformed(str(message)[:4096] if message else f"response.result.status was '{shown}', not 'Success'")
    found = response.get("convertedObjects") or []
    if not isinstance(found, list):
        raise _malformed("response.convertedObjects must be a list")
    return found


def _checked(new: Any, old: JsonObject, wanted: str, place: str) -> JsonObject:
    before = old.get("metadata") or {}
    after = new.get("metadata") if isinstance(new, dict) else None
    meta: JsonObject = after if isinstance(after, dict) else {}
    why = _difference(new, old, wanted) or _other_object(meta, before)
    if why:
        raise BadConversion(INVALID, f"returned invalid {place}: {why}")
    try:
        return {**new, "metadata": _metadata(meta, before)}
    except _BadMetadata as error:
        fault = "invalid metadata" if place == "object" else place.replace("converted", "invalid metadata in")
        raise BadConversion(INVALID, f"returned {fault}: {error}") from error


def _difference(new: Any, old: JsonObject, wanted: str) -> str:
    """Return why ``new`` is no object of the kind of ``old`` in the version ``wanted``, "" if it is."""
    if not isinstance(new, dict):
        return f"it must be an object, but is {_type(new)}"
    for field, expected, label in (("apiVersion", wanted, "groupVersion"), ("kind", old.get("kind"), "kind")):
        if new.get(field) != expected:
            return f"invalid {label} (expected {expected}, received {_text(new.get(field))})"
    return ""


def _other_object(new: JsonObject, old: JsonObject) -> str:
    """Return why metadata is that of another object, "" if it is not."""
    for field, label in _SAME:
        before, after = old.get(field) or "", new.get(field) or ""
        if before != after:
            return f"must have the same {label}: {before} != {_text(after)}"
    return ""


def _metadata(new: JsonObject, old: JsonObject) -> JsonObject:
    """Return the metadata of ``old`` with the labels and annotations of ``new``. Raises _BadMetadata."""
    kept = {field: value for field, value in old.items() if field not in {"labels", "annotations"}}
    for field, check in (("labels", validate_labels), ("annotations", validate_annotations)):
        found = new.get(field)
        if found is None:
            continue
        _check_texts(field, found)
        causes = check(f"metadata.{field}", found) if found != old.get(field) else []
        if causes:
            raise _BadMetadata(", ".join(f"{one.field}: {one.message}" for one in causes[:_MOST_CAUSES]))
        kept[field] = found
    return kept


def _check_texts(field: str, found: Any) -> None:
    if not isinstance(found, dict):
        raise _BadMetadata(f"invalid metadata.{field} of type {_type(found)} in converted object")
    wrong: Mapping[str, Any] = {key: value for key, value in found.items() if not isinstance(value, str)}
    for key, value in wrong.items():
        raise _BadMetadata(f"metadata.{field}[{key[:200]}] must be a string, but is {_type(value)} in converted object")


def _type(value: Any) -> str:
    return "<nil>" if value is None else "string" if isinstance(value, str) else _GO_TYPES[type(value)]


def _text(value: Any) -> str:
    return str(value or "")[:200]
