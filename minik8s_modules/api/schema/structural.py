"""Walks over objects along their types (``shapes``): unknown fields, wrong JSON types, pruning, required fields.

A walk over a pod touches dictionaries only (some 30 µs). It tells wrong JSON types in the words of Go's decoder,
because that is what people know from Kubernetes, and unknown fields as strict decoding does.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from typing import Any

from minik8s_modules.api import quantities
from minik8s_modules.api.errors import MOST_TOLD, BadRequest, Cause
from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.schema.shapes import (
    KUBERNETES_VERSION,
    Merge,
    Shape,
    closure,
    definition,
    kind_shape,
    shape,
)
from minik8s_modules.base.clock import parse_rfc3339, rfc3339

__all__ = [
    "KUBERNETES_VERSION",
    "Merge",
    "Shape",
    "closure",
    "definition",
    "drop_mistyped",
    "drop_mistyped_metadata",
    "is_readable",
    "kind_shape",
    "merge_keys",
    "missing_fields",
    "prune",
    "shape",
    "strict_decoding_error",
    "type_errors",
    "undecodable",
    "unknown_fields",
]
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})")
_TEXTS = frozenset({"quantity", "date-time", "byte"})  # kinds and formats whose text is parsed when it is decoded
_INTEGERS = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}


def is_readable(kind: Kind, obj: JsonObject) -> bool:
    """Return whether ``unknown_fields`` and ``type_errors`` have nothing to tell of ``obj``, by one walk for both.

    Nearly every object that is written is so. Of a custom kind, whose own schema decides, nothing is said: False.
    """
    return kind.custom is None and _reads(kind_shape(kind), obj)


_AS_IS = {"string": str, "boolean": bool}
"""Kinds of fields whose values of these types have nothing left to look at, unless the field has a format."""


def _reads(at: Shape, value: Any) -> bool:
    if value is None or at.kind == "any":
        return True
    if _MISMATCH[at.kind](at, value):
        return False
    if at.kind == "object":
        return _reads_fields(at.fields, value)
    if at.kind in _TEXTS or at.format in _TEXTS:
        return not _malformed(at, value)
    items = at.items
    return items is None or all(_reads(items, inner) for inner in (value if at.kind == "list" else value.values()))


def _reads_fields(fields: dict[str, Shape], value: JsonObject) -> bool:
    for name, inner in value.items():
        field = fields.get(name) or _asked_first(fields, name)
        if field is None:
            return False
        if (field.format or type(inner) is not _AS_IS.get(field.kind)) and not _reads(field, inner):
            return False
    return True


def _asked_first(fields: dict[str, Shape], name: str) -> Shape | None:
    """Return a field whose type nobody has asked for yet, None where there is none: ``in`` costs ten times ``get``."""
    return fields[name] if name in fields else None  # noqa: SIM401 - ``get`` makes no type


def unknown_fields(kind: Kind, obj: JsonObject) -> list[str]:
    """Return ``unknown field "spec.foo"`` for the first MOST_TOLD fields the kind does not have, in document order."""
    if kind.custom is not None:
        return kind.custom.unknown(obj)
    found: list[str] = []
    _walk_unknown(kind_shape(kind), obj, "", found)
    return found


def _walk_unknown(at: Shape, value: Any, path: str, found: list[str]) -> None:
    if len(found) >= MOST_TOLD:
        return
    if at.kind == "object" and isinstance(value, dict):
        for name, inner in value.items():
            here = f"{path}.{name}" if path else name
            if name in at.fields:
                _walk_unknown(at.fields[name], inner, here, found)
            elif len(found) < MOST_TOLD:
                found.append(f'unknown field "{here}"')
    elif at.items is not None and at.items.kind not in _SCALARS:
        for label, inner in _children(at, value):
            _walk_unknown(at.items, inner, path + label, found)


_SCALARS = frozenset({"string", "integer", "number", "boolean", "quantity", "intstr", "any"})


def _children(at: Shape, value: Any) -> Iterator[tuple[str, Any]]:
    if at.kind == "list" and isinstance(value, list):
        return ((f"[{index}]", inner) for index, inner in enumerate(value))
    if at.kind == "map" and isinstance(value, dict):
        return ((f".{name}", inner) for name, inner in value.items())
    return iter(())


def type_errors(kind: Kind, obj: JsonObject) -> list[Cause]:
    """Return a cause for each value whose JSON type is not the field's; the message is worded as Go's decoder words it.

    The API server answers them with 400 (``undecodable``), as Kubernetes does: such an object cannot be read at all. A
    null counts as absent. Required fields are validation's part. The walk ends once it has found MOST_TOLD.
    """
    found: list[Cause] = []
    _walk_types(kind_shape(kind), obj, "", found)
    return found


def _walk_types(at: Shape, value: Any, path: str, found: list[Cause]) -> None:
    if value is None or at.kind == "any" or len(found) >= MOST_TOLD:
        return
    expected = _MISMATCH[at.kind](at, value)
    if expected:
        message = f"json: cannot unmarshal {_json_type(value)} into Go struct field {at.name}.{path} of type {expected}"
        found.append(Cause("FieldValueTypeInvalid", message, path))
    elif at.kind in _TEXTS or at.format in _TEXTS:
        malformed = _malformed(at, value)
        if malformed:
            found.append(Cause("FieldValueInvalid", malformed, path))
    elif at.kind == "object":
        fields = at.fields
        for name, inner in value.items():
            if name in fields:
                _walk_types(fields[name], inner, f"{path}.{name}" if path else name, found)
    elif at.items is not None:
        for label, inner in _children(at, value):
            _walk_types(at.items, inner, path + label, found)


def _integer_type(at: Shape, value: Any) -> str:
    low, high = _INTEGERS.get(at.format, _INTEGERS["int64"])
    return "" if type(value) is int and low <= value <= high else at.format or "int64"


def _intstr_type(_at: Shape, value: Any) -> str:
    low, high = _INTEGERS["int32"]
    return "" if isinstance(value, str) or (type(value) is int and low <= value <= high) else "int32"


_NUMBER = (int, float)
_MISMATCH: dict[str, Callable[[Shape, Any], str]] = {  # each returns the Go type that was expected, or ""
    "object": lambda at, value: "" if isinstance(value, dict) else at.name or "object",  # those of schemas have none
    "map": lambda _at, value: "" if isinstance(value, dict) else "map",
    "list": lambda at, value: "" if isinstance(value, list) else f"[]{at.items.name if at.items else ''}",
    "string": lambda _at, value: "" if isinstance(value, str) else "string",
    "boolean": lambda _at, value: "" if isinstance(value, bool) else "bool",
    "number": lambda _at, value: "" if type(value) in _NUMBER else "float64",
    "quantity": lambda _at, value: "" if type(value) in {str, *_NUMBER} else "resource.Quantity",
    "integer": _integer_type,
    "intstr": _intstr_type,
}


def _malformed(at: Shape, value: Any) -> str:
    """Return in the decoder's words why a text cannot be read as what the field's format asks for, or ""."""
    if at.kind == "quantity":
        return "" if quantities.is_quantity(value) else quantities.MESSAGE
    if at.format == "date-time":
        return "" if _is_time(value) else f'parsing time "{value}" as "2006-01-02T15:04:05Z07:00": cannot parse'
    return "" if _is_base64(value) else "illegal base64 data"


def _is_time(value: str) -> bool:
    try:
        parse_rfc3339(value)
    except ValueError:
        return False
    return _TIME.fullmatch(value) is not None


def _is_base64(value: str) -> bool:
    try:
        base64.b64decode(value.replace("\r", "").replace("\n", ""), validate=True)
    except ValueError:
        return False
    return True


def _json_type(value: Any) -> str:
    if isinstance(value, dict):
        return "object"
    if isinstance(value, list):
        return "array"
    if isinstance(value, bool):
        return "bool"
    return "string" if isinstance(value, str) else f"number {value}"


def drop_mistyped(kind: Kind, obj: JsonObject) -> None:
    """Remove in place what ``type_errors`` tells of, so that what is left can be read; nulls are ``prune``'s."""
    _fits(kind_shape(kind), obj)


def _fits(at: Shape | None, value: Any) -> bool:
    """Return whether a value is of its type, once what is not has gone from inside it."""
    if at is None or value is None or at.kind == "any":
        return True
    if _MISMATCH[at.kind](at, value):
        return False
    if at.kind in _TEXTS or at.format in _TEXTS:
        return not _malformed(at, value)
    if isinstance(value, dict):
        for name in [name for name, inner in value.items() if not _fits(_inner(at, name), inner)]:
            del value[name]
    elif isinstance(value, list) and at.items is not None:
        value[:] = [inner for inner in value if _fits(at.items, inner)]
    return True


def _inner(at: Shape, name: str) -> Shape | None:
    return _asked_first(at.fields, name) if at.kind == "object" else at.items


def prune(kind: Kind, obj: JsonObject, fresh: JsonObject | None = None) -> None:
    """Remove in place what typed decoding drops: unknown fields, nulls, and empty lists and maps that may be left out.

    Go's encoder leaves the last ones out (``omitempty``); kept, ``labels: {}`` of a manifest would be a difference for
    ``kubectl diff`` for ever. A null item of a list or map becomes its zero value. Free-form parts (RawExtension,
    managedFields) and our own kinds are left as they are. Times lose fractions of seconds. Of ``fresh`` fields of
    ``obj`` alone, where it is given: the others have been pruned.
    """
    if fresh is None:
        _prune(kind_shape(kind), obj)
        return
    left = dict(fresh)
    _prune(kind_shape(kind), left)
    obj.update(left)
    for name in fresh.keys() - left.keys():
        del obj[name]


_SECONDS = "io.k8s.apimachinery.pkg.apis.meta.v1.Time"
_OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


def prune_metadata(meta: JsonObject) -> None:
    """Prune, in place, the metadata of an object whose kind no definition has."""
    _prune(shape(_OBJECT_META), meta)


def drop_mistyped_metadata(meta: JsonObject) -> None:
    """Remove from metadata, in place, what is not of its type; nulls and unknown fields go, too."""
    _fits(shape(_OBJECT_META), meta)
    prune_metadata(meta)


def metadata_type_errors(obj: JsonObject) -> list[Cause]:
    """Return ``type_errors`` of an object of which only apiVersion, kind and metadata are of known types."""
    found: list[Cause] = []
    for name in ("apiVersion", "kind"):
        if not isinstance(obj.get(name, ""), str):
            text = f"json: cannot unmarshal {_json_type(obj[name])} into Go struct field .{name} of type string"
            found.append(Cause("FieldValueTypeInvalid", text, name))
    _walk_types(shape(_OBJECT_META), obj.get("metadata"), "metadata", found)
    return found


def _prune(at: Shape, value: Any) -> None:
    if at.kind == "object" and isinstance(value, dict):
        fields = at.fields
        gone = [
            name
            for name, inner in value.items()
            if not (fields.get(name) or _asked_first(fields, name)) or (not inner and _is_dropped(at, name, inner))
        ]
        for name in gone:
            del value[name]
        for name, inner in value.items():
            if isinstance(inner, (dict, list)):
                _prune(fields[name], inner)
            elif fields[name].definition == _SECONDS:
                value[name] = _whole_seconds(inner)
    elif at.items is not None:
        _prune_items(at, at.items, value)


def _whole_seconds(value: Any) -> Any:
    """Return a time as ``metav1.Time`` keeps it; what is written with a fraction is cut (KWOK writes nanoseconds)."""
    if not isinstance(value, str) or "." not in value:
        return value
    try:
        return rfc3339(parse_rfc3339(value))
    except ValueError:
        return value  # validation says so


def _is_dropped(at: Shape, name: str, inner: Any) -> bool:
    """Return whether the field is dropped that holds ``inner``: null, false, zero or something empty."""
    if inner is None or inner not in ({}, []):
        return inner is None
    optional = at.fields[name].kind in {"list", "map"} and name not in at.required
    return optional and at.definition.startswith("io.k8s.") and (at.name, name) not in _ALWAYS_WRITTEN


_ALWAYS_WRITTEN = {("ClusterRole", "rules"), ("Role", "rules")}  # optional, but without omitempty (rbac/v1/types.go)


def _prune_items(at: Shape, items: Shape, value: Any) -> None:
    if items.kind == "any":
        return  # a null may be what is meant, as in an enum
    zero = _ZERO.get(items.kind, dict)
    if isinstance(value, list):
        value[:] = [zero() if inner is None else inner for inner in value]
    elif isinstance(value, dict):
        value.update({name: zero() for name, inner in value.items() if inner is None})
    if items.kind not in _SCALARS:
        for _, inner in _children(at, value):
            _prune(items, inner)


_ZERO: dict[str, Callable[[], Any]] = {
    "string": str,
    "integer": int,
    "number": int,
    "boolean": bool,
    "list": list,
    "quantity": lambda: "0",
}


def missing_fields(kind: Kind, obj: JsonObject, blank: tuple[Any, ...] = (None, "")) -> list[Cause]:
    """Return ``Required value`` for fields that the definition requires and that are absent or one of ``blank``.

    The walk ends once it has found MOST_TOLD.
    """
    found: list[Cause] = []
    _walk_missing(kind_shape(kind), obj, "", found, blank)
    return found


def _walk_missing(at: Shape, value: Any, path: str, found: list[Cause], blank: tuple[Any, ...]) -> None:
    if len(found) >= MOST_TOLD:
        return
    if at.kind == "object" and isinstance(value, dict):
        prefix = f"{path}." if path else ""
        for name in at.required:
            if value.get(name) in blank:
                found.append(Cause("FieldValueRequired", "Required value", prefix + name))  # noqa: PERF401 - one of two loops
        for name, inner in value.items():
            if name in at.fields:
                _walk_missing(at.fields[name], inner, prefix + name, found, blank)
    elif at.items is not None:
        for label, inner in _children(at, value):
            _walk_missing(at.items, inner, path + label, found, blank)


def undecodable(kind: Kind, causes: list[Cause]) -> BadRequest:
    """Return the 400 that Kubernetes answers to an object of wrong types."""
    detail = causes[0].message
    return BadRequest(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {detail}')


def strict_decoding_error(fields: list[str]) -> BadRequest:
    """Return the 400 that ``fieldValidation=Strict`` answers to unknown or duplicate fields."""
    return BadRequest(f"strict decoding error: {', '.join(fields)}")


def merge_keys(kind: Kind, *path: str) -> Merge:
    """Return the strategic merge rules of the field at ``path`` (names of fields; list indexes are left out)."""
    at: Shape | None = kind_shape(kind)
    for name in path:
        while at is not None and at.kind in {"list", "map"} and at.items is not None and name not in at.fields:
            at = at.items
        if at is None or name not in at.fields:
            return Merge(frozenset(), "")
        at = at.fields[name]
    return at.merge if at else Merge(frozenset(), "")
