"""Stored objects whose parts are of other types than their kind has: put there by hand, or by another release.

They are shown as they are stored, since a part that is left out would mean something else: a workload without replicas
has none, a policy without a selector is for everybody. So whoever looks at objects other than the one he was asked for
(roles, webhooks, quotas) takes those that can be read, and goes on without the others, which the log names. A request
about such an object itself does what it can: it is shown, deleted, and replaced as a whole; what else fails because of
a wrong type is no error of the server's, and is answered with the place of that type (``why``).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import orjson

from minik8s_modules.api.defaulting.conversion import stored_kind
from minik8s_modules.api.errors import BadRequest, Cause
from minik8s_modules.api.kind import Kind
from minik8s_modules.api.lifecycle.strategy import namespace_finalizers
from minik8s_modules.api.objects import MISREAD, JsonObject, key
from minik8s_modules.api.schema import structural
from minik8s_modules.api.schema.shapes import Shape, kind_shape
from minik8s_modules.store.cached import CachedObject

__all__ = ["MISREAD", "mended", "object_of", "objects_of", "why"]
log = logging.getLogger(__name__)

_NULL = b"null"
_RELIED_ON = frozenset(
    {
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "apiregistration.k8s.io",
        "node.k8s.io",
        "rbac.authorization.k8s.io",
    }
)
"""Groups of which readers rely on required fields; of others they take what is there."""
_DEFAULTED = "apiGroup"  # of roles and subjects: required by their types, and there is only one
_Mark = tuple[tuple[object, bytes], ...]
_KNOWN: _Mark = (("known", b""),)
_UNREADABLE: _Mark = (("unreadable", b""),)
"""What ``CachedObject.shown`` remembers of kinds that nobody sees otherwise."""


def objects_of(kind: Kind, items: Iterable[CachedObject]) -> list[JsonObject]:
    """Return the objects of a built-in kind that can be read; shared with others, not to be changed."""
    return [obj for item in items if (obj := _read(kind, item)) is not None]


def object_of(kind: Kind, item: CachedObject) -> JsonObject:
    """Return an object of a built-in kind that something else depends on. Raises BadRequest if it cannot be read."""
    found = _read(kind, item)
    if found is None:
        raise why(kind, item) or BadRequest(f"{item.key} cannot be read")
    return found


def _read(kind: Kind, item: CachedObject) -> JsonObject | None:
    if item.shown is _KNOWN:
        return item.object
    obj = item.object
    if _has_null(kind, item, obj):
        obj = orjson.loads(item.data)
        structural.prune(kind, obj)
    if item.shown is not _UNREADABLE and (found := _wrong(kind, obj)):
        log.error("%s is left out: %s", item.key, found[0])
        item.shown = _UNREADABLE
    if item.shown is _UNREADABLE:
        return None
    if obj is item.object:
        item.shown = _KNOWN
    return obj


def _wrong(kind: Kind, obj: JsonObject) -> list[Cause]:
    found = [] if structural.is_readable(kind, obj) else structural.type_errors(kind, obj)
    if found or kind.group not in _RELIED_ON:
        return found
    declared = {field: value for field, value in obj.items() if field != "status"}
    missing = structural.missing_fields(kind, declared, (None,))
    return [each for each in missing if not each.field.endswith(_DEFAULTED)]


def _has_null(kind: Kind, item: CachedObject, obj: JsonObject) -> bool:
    """Return whether there is a null where the kind has a type: in texts, free forms and schemas it may be meant."""
    return _NULL in item.data and kind.custom is None and _is_null(kind_shape(kind), obj)


def _is_null(at: Shape, value: Any) -> bool:
    if value is None or at.kind == "any":
        return value is None and at.kind != "any"
    if isinstance(value, dict) and at.kind == "object":
        return any(_is_null(at.fields[name], inner) for name, inner in value.items() if name in at.fields)
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return at.items is not None and any(_is_null(at.items, inner) for inner in inside)


def why(kind: Kind, item: CachedObject) -> BadRequest | None:
    """Return what a client is told of an object that cannot be read as it is stored; None of one that can."""
    kind, obj = stored_kind(kind), orjson.loads(item.data)
    found = structural.type_errors(kind, obj)
    if not found and _has_null(kind, item, obj):
        found = [Cause("FieldValueInvalid", "it has a null where a value is expected", "")]
    found = found or structural.missing_fields(kind, obj, (None,))
    if not found:
        return None
    text = f"{found[0]}; this is so in the stored object {key(obj)}: replace or delete it"
    return structural.undecodable(kind, [Cause("FieldValueInvalid", text, "")])


def mended(kind: Kind, item: CachedObject) -> JsonObject | None:
    """Return what of an object can be read, the caller's own, with what keeps a namespace; None where that is all."""
    kind = stored_kind(kind)
    obj: JsonObject = orjson.loads(item.data)
    if not structural.type_errors(kind, obj) and not _has_null(kind, item, obj):
        return None
    held = namespace_finalizers(obj) if kind.id == ("", "Namespace") else []
    structural.drop_mistyped(kind, obj)
    if held:
        obj["spec"] = {"finalizers": held}
    if kind.custom is None:
        structural.prune(kind, obj)
    return obj
