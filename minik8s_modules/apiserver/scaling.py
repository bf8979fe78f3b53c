"""The ``scale`` subresource: how many copies a workload has, in one form for all kinds (autoscaling/v1 Scale).

Writing a Scale is a change of the workload itself through ``writing.change``, so versions, validation and managedFields
are those of any other change. Source: kubernetes ``pkg/registry/apps/*/storage`` (``ScaleREST``).
"""

from __future__ import annotations

from collections.abc import Callable

import orjson

from minik8s_modules.api import patch
from minik8s_modules.api.errors import BadRequest, Invalid, UnsupportedMediaType
from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.objects import JsonObject, metadata, name, spec, status
from minik8s_modules.api.tables_more import selector_text
from minik8s_modules.api.validation import common
from minik8s_modules.apiserver import bodies, incoming, patching, writing
from minik8s_modules.apiserver.backend import Backend
from minik8s_modules.apiserver.incoming import Options
from minik8s_modules.apiserver.target import Target

SCALE = Kind("autoscaling", "v1", "Scale", "scales", "io.k8s.api.autoscaling.v1.Scale")
_SHOWN = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
_PATCHES = (patching.JSON_PATCH, patching.MERGE_PATCH, patching.STRATEGIC_MERGE_PATCH)


def scale_of(obj: JsonObject) -> JsonObject:
    """Return the Scale of a workload."""
    meta = {field: value for field, value in metadata(obj).items() if field in _SHOWN}
    selector = spec(obj).get("selector")
    shown: JsonObject = {"replicas": status(obj).get("replicas") or 0}
    if selector is not None:
        shown["selector"] = selector_text(selector)
    return {
        "kind": SCALE.kind,
        "apiVersion": SCALE.api_version,
        "metadata": meta,
        "spec": {"replicas": spec(obj).get("replicas") or 0},
        "status": shown,
    }


def update(backend: Backend, target: Target, scale: JsonObject, options: Options) -> JsonObject:
    """Replace the Scale of a workload and return it as it is then."""
    encoded = orjson.dumps(scale)
    return _change(backend, target, lambda _old: orjson.loads(encoded), options)


def patched(backend: Backend, target: Target, body: bytes, media: str, options: Options) -> JsonObject:
    """Patch the Scale of a workload and return it as it is then.

    Raises:
        UnsupportedMediaType: the patch is of a type that scales do not take (server-side apply is one).
    """
    if media not in _PATCHES:
        raise UnsupportedMediaType(_PATCHES)
    wanted = bodies.parse(body, media)
    if media == patching.JSON_PATCH:
        return _change(backend, target, lambda old: patch.json_patch(old, wanted), options)
    if not isinstance(wanted, dict):
        raise BadRequest(f"a patch of type {media} must be a JSON object")
    return _change(backend, target, lambda old: patch.merge_patch(old, wanted), options)


def _change(
    backend: Backend, target: Target, mutate: Callable[[JsonObject], JsonObject], options: Options
) -> JsonObject:
    def onto(obj: JsonObject) -> JsonObject:
        scale = incoming.readable(SCALE, mutate(scale_of(obj)), options)
        incoming.check_place(target, scale)
        replicas = spec(scale).get("replicas") or 0
        if replicas < 0:
            raise Invalid(SCALE, name(obj), [common.invalid("spec.replicas", replicas, common.NOT_NEGATIVE)])
        obj["spec"]["replicas"] = replicas
        asked = metadata(scale)
        for field in ("uid", "resourceVersion"):
            if asked.get(field):
                metadata(obj)[field] = asked[field]
        return obj

    return scale_of(writing.change(backend, target, onto, options).object)
