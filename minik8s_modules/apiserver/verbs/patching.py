"""Which patch a PATCH request carries, as a function of the object."""

from __future__ import annotations

from typing import Any

from minik8s_modules.api.errors import BadRequest, UnsupportedMediaType
from minik8s_modules.api.merging import patch
from minik8s_modules.api.merging.strategic_merge import strategic_merged
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.http import bodies
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.verbs.writing import Mutation

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
SUPPORTED = (JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, APPLY_PATCH)


def mutation_of(target: Target, body: bytes, media: str) -> Mutation:
    """Return the function that applies the patch ``body`` of type ``media``.

    Raises:
        BadRequest: the patch cannot be read.
        UnsupportedMediaType: it is no type of patch (server-side apply is applying.py's).
    """
    if media not in SUPPORTED or media == APPLY_PATCH:
        raise UnsupportedMediaType(SUPPORTED)
    if media == STRATEGIC_MERGE_PATCH and target.kind.custom is not None:  # its schema knows no merge keys
        raise UnsupportedMediaType(tuple(each for each in SUPPORTED if each != media))
    wanted = bodies.parse(body, media)
    if media == MERGE_PATCH and isinstance(wanted, dict):
        return lambda obj: _merged(obj, wanted)
    parsed = [wanted]  # used up by the first attempt, and nearly always the only one

    def again() -> Any:
        return parsed.pop() if parsed else bodies.parse(body, media)

    if media == JSON_PATCH:
        return lambda obj: patch.json_patched(obj, again())
    if not isinstance(wanted, dict):
        raise BadRequest(f"a patch of type {media} must be a JSON object")
    return lambda obj: strategic_merged(target.kind, obj, without_type(again()))


def without_type(wanted: JsonObject) -> JsonObject:
    """Return a strategic merge patch without ``apiVersion`` and ``kind``, which Kubernetes does not look at there.

    Source: apiserver ``endpoints/handlers/patch.go`` (``applyPatchToObject`` fills the Go type it has). Ansible's
    ``k8s_scale`` patches a Scale with the workload's kind.
    """
    return {field: value for field, value in wanted.items() if field not in {"apiVersion", "kind"}}


def _merged(obj: JsonObject, wanted: JsonObject) -> JsonObject:
    merged: JsonObject = patch.merge_patch(obj, wanted)
    return merged
