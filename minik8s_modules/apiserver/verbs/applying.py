"""PATCH with ``application/apply-patch+yaml``: server-side apply (decided in api/merging/server_side_apply.py).

An object that is not there is created; one that is goes through ``writing.change`` like every other patch, so a lost
race is decided again on the newer object. To ``kubectl apply``, one request does what kubectl would do in four where an
object was applied client-side before (api/merging/kubectl_migration.py).
"""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from minik8s_modules.api import size_limits
from minik8s_modules.api.errors import AlreadyExists, BadRequest, Cause, Conflict, Invalid, NotFound
from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.merging.kubectl_migration import migrated
from minik8s_modules.api.merging.server_side_apply import Applier
from minik8s_modules.api.merging.server_side_apply import apply as applied
from minik8s_modules.api.objects import JsonObject, metadata, uid
from minik8s_modules.api.schema.structural import unknown_fields
from minik8s_modules.apiserver.http import bodies, incoming
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.verbs import writing
from minik8s_modules.apiserver.verbs.patching import APPLY_PATCH
from minik8s_modules.store.cached import CachedObject

MEDIA = APPLY_PATCH
COMMAND = "kubectl apply"  # what the header Kubectl-Command says of it
_PATCH_OPTIONS = Kind("meta.k8s.io", "v1", "PatchOptions", "patchoptions", "")
_ROUNDS = 3  # an object that comes and goes between our two looks, again and again, is somebody's mistake


def refuse_force(arguments: Mapping[str, str]) -> None:
    """Raise Invalid when a patch that is no server-side apply asks for ``force``."""
    if "force" in arguments:
        text = "Forbidden: may not be specified for non-apply patch"
        raise Invalid(_PATCH_OPTIONS, "", [Cause("FieldValueForbidden", text, "force")])


def require_manager(arguments: Mapping[str, str]) -> None:
    """Raise Invalid when a server-side apply does not say who applies."""
    if not arguments.get("fieldManager"):
        text = "Required value: is required for apply patch"
        raise Invalid(_PATCH_OPTIONS, "", [Cause("FieldValueRequired", text, "fieldManager")])


def apply(
    backend: Backend, target: Target, body: bytes, options: Options, arguments: Mapping[str, str], command: str = ""
) -> tuple[CachedObject, bool]:
    """Apply a configuration; returns the object and whether it is new.

    ``command`` is kubectl's, where that asks.

    Raises:
        Invalid: the request names no field manager.
        BadRequest: the configuration is none of this kind and place.
        StatusError: 409: other managers own what it changes.
        NotFound: it is for a subresource of an object that is not there.
    """
    require_manager(arguments)
    config = configuration(target, body, options, incoming.dialect_around(backend, target))
    encoded = orjson.dumps(config)
    options = options._replace(applied=True)
    applier = Applier(options.manager, options.force, target.subresource)

    def onto(live: JsonObject) -> JsonObject:
        made = applied(target.kind, live, orjson.loads(encoded), applier, backend.clock.now())
        if command != COMMAND or target.subresource:
            return made
        return migrated(target.kind, made, orjson.loads(encoded), applier, backend.clock.now())

    for _ in range(_ROUNDS):
        try:
            return writing.patch(backend, target, onto, options), False
        except NotFound:
            if target.subresource:
                raise
            _refuse_absent(target, config)
        try:
            collection = target._replace(name="")
            if options.requester is not None:  # patching what is not there is creating it
                asked = collection.attributes("create")
                options.requester.access.check(options.requester.user, asked, target.kind)
            return writing.create(backend, collection, onto({}), options), True
        except AlreadyExists:
            continue
    raise Conflict(target.kind, target.name)


def _refuse_absent(target: Target, config: JsonObject) -> None:
    if uid(config):
        why = f"uid mismatch: the provided object specified uid {uid(config)}, and no existing object was found"
        raise Conflict(target.kind, target.name, why)


def configuration(target: Target, body: bytes, options: Options, around: str = "") -> JsonObject:
    """Return the configuration that ``body`` holds.

    Raises:
        BadRequest: it is none of the target's kind and place, or has fields the kind does not have.
    """
    config = bodies.parse_object(body, MEDIA, size_limits.values_allowed(target.kind.id))
    for field in ("apiVersion", "kind"):
        if not config.get(field):
            raise BadRequest(f"an applied configuration must have {field}")
    readable = incoming.readable(target.kind, config, options, around)
    unknown = unknown_fields(target.kind, readable)
    if unknown:
        path = unknown[0].partition('"')[2].rstrip('"')
        raise BadRequest(f"failed to create typed patch object: .{path}: field not declared in schema")
    incoming.check_place(target, readable)
    metadata(readable).setdefault("name", target.name)
    return readable
