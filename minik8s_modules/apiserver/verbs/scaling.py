"""The ``scale`` subresource: how many copies a workload has, in one form for all kinds (autoscaling/v1 Scale).

Writing a Scale is a change of the workload itself through ``writing.change``, so versions, validation and managedFields
are those of any other change. An applied Scale is the workload's ``spec.replicas`` applied, owned under the subresource
``scale``. Source: kubernetes ``pkg/registry/apps/*/storage`` (``ScaleREST``), apimachinery
``managedfields/scalehandler.go``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import orjson

from minik8s_modules.api import cause, size_limits
from minik8s_modules.api.errors import BadRequest, Invalid, UnsupportedMediaType
from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.lifecycle import strategy
from minik8s_modules.api.merging import patch, server_side_apply
from minik8s_modules.api.objects import JsonObject, metadata, name, spec, uid
from minik8s_modules.apiserver.admission.scales import NEVER_SET, SCALE, check_asked, scale_of, set_replicas
from minik8s_modules.apiserver.http import bodies, incoming, presenting
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.verbs import applying, patching, writing
from minik8s_modules.store.cached import CachedObject

_PATCHES = (patching.JSON_PATCH, patching.MERGE_PATCH, patching.STRATEGIC_MERGE_PATCH)


def update(backend: Backend, target: Target, scale: JsonObject, options: Options) -> JsonObject:
    """Replace the Scale of a workload and return it as it is then."""
    encoded = orjson.dumps(scale)
    return _change(backend, target, lambda _old: orjson.loads(encoded), options)


def patched(backend: Backend, target: Target, body: bytes, media: str, options: Options) -> JsonObject:
    """Patch the Scale of a workload and return it as it is then.

    Raises:
        UnsupportedMediaType: it is no type of patch (a server-side apply is ``applied``'s).
    """
    if media not in _PATCHES:
        raise UnsupportedMediaType(patching.SUPPORTED)
    wanted = bodies.parse(body, media)
    if media == patching.JSON_PATCH:
        return _change(backend, target, lambda old: patch.json_patch(old, wanted), options)
    if not isinstance(wanted, dict):
        raise BadRequest(f"a patch of type {media} must be a JSON object")
    if media == patching.STRATEGIC_MERGE_PATCH:
        wanted = patching.without_type(wanted)
    return _change(backend, target, lambda old: patch.merge_patch(old, wanted), options)


def applied(
    backend: Backend, target: Target, body: bytes, options: Options, arguments: Mapping[str, str]
) -> JsonObject:
    """Apply a Scale to a workload (server-side apply) and return the Scale as it is then.

    Raises:
        Invalid: the request names no field manager, or the replicas are negative.
        BadRequest: the configuration is no Scale of this place.
        NotFound: there is no such workload: a Scale is never created.
        StatusError: 409: another manager owns the replicas.
    """
    applying.require_manager(arguments)
    config = applying.configuration(target._replace(kind=SCALE), body, options)
    _refuse_negative(config)
    applier = server_side_apply.Applier(options.manager, options.force, target.subresource)

    def onto(live: JsonObject) -> JsonObject:
        _check_uid(target.kind, live, config)
        kind = target.kind
        wanted = _workload(kind, config)
        obj = server_side_apply.apply(target.kind, live, wanted, applier, backend.clock.now())
        if kind.custom is None:
            # given up by its last owner: a Scale's zero, not the workload's default
            obj["spec"].setdefault("replicas", 0)
        return obj

    return _shown(target, writing.change(backend, target, onto, options._replace(applied=True)))


def _workload(kind: Kind, scale: JsonObject) -> JsonObject:
    """Return the configuration of a workload that says what ``scale`` says."""
    wanted: JsonObject = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": dict(metadata(scale))}
    if "replicas" in spec(scale):
        set_replicas(kind, wanted, spec(scale)["replicas"])
    return wanted


def _check_uid(kind: Kind, obj: JsonObject, scale: JsonObject) -> None:
    """Raise Conflict when the Scale names another object of the same name."""
    if uid(scale):
        strategy.check_preconditions(kind, obj, {"preconditions": {"uid": uid(scale)}})


def _refuse_negative(scale: JsonObject) -> int:
    replicas = int(spec(scale).get("replicas") or 0)
    if replicas < 0:
        raise Invalid(SCALE, name(scale), [cause.invalid("spec.replicas", replicas, cause.NOT_NEGATIVE)])
    return replicas


def _change(
    backend: Backend, target: Target, mutate: Callable[[JsonObject], JsonObject], options: Options
) -> JsonObject:
    def onto(obj: JsonObject) -> JsonObject:
        wanted = mutate(scale_of(target.kind, obj, NEVER_SET))
        size_limits.check(wanted)
        scale = incoming.readable(SCALE, wanted, options)
        incoming.check_place(target, scale)
        check_asked(target.kind, scale)
        set_replicas(target.kind, obj, _refuse_negative(scale))
        _check_uid(target.kind, obj, scale)
        if metadata(scale).get("resourceVersion"):
            metadata(obj)["resourceVersion"] = metadata(scale)["resourceVersion"]
        return obj

    return _shown(target, writing.change(backend, target, onto, options))


def _shown(target: Target, item: CachedObject) -> JsonObject:
    return scale_of(target.kind, presenting.json_of(target.kind, item))
