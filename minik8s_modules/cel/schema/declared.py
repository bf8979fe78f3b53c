"""Types from a structural schema (pkg/cel/common/schemas.go): what expressions can see of it, and how large it can be.

``schema`` is OpenAPI as in a CustomResourceDefinition, a plain dict.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minik8s_modules.cel import types
from minik8s_modules.cel.schema.names import escape
from minik8s_modules.cel.types import Declared, Field, Type

Schema = Mapping[str, Any]
MAX_REQUEST = 3 * 1024 * 1024  # bytes
_QUOTES = 2
_STRING_TYPE: Schema = {"type": "string"}
_META: Schema = {"type": "object", "properties": {"name": _STRING_TYPE, "generateName": _STRING_TYPE}}
_FORMATS = {  # format: kind, least bytes as JSON, most characters
    "duration": ("duration", 3, 32),
    "date": ("timestamp", 12, 12),
    "date-time": ("timestamp", 21, 32),
}


def with_metadata(schema: Schema) -> Schema:
    """Return the schema of a resource with apiVersion, kind, and the name in metadata."""
    known = schema.get("properties") or {}
    meta = known.get("metadata", {})
    if (
        all(known.get(name, {}).get("type") == "string" for name in ("kind", "apiVersion"))
        and meta.get("type") == "object"
        and all((meta.get("properties") or {}).get(name, {}).get("type") == "string" for name in _META["properties"])
    ):
        return schema
    properties = {**known, "kind": _STRING_TYPE, "apiVersion": _STRING_TYPE, "metadata": _META}
    return {**schema, "properties": properties}


def is_root(schema: Schema) -> bool:
    """Return whether the schema embeds a resource."""
    return bool(schema.get("x-kubernetes-embedded-resource"))


def declare(schema: Schema, path: str, *, root: bool) -> Type | None:
    """Return the type of a schema, or None when expressions cannot see it; ``path`` makes the names of its objects."""
    nullable = bool(schema.get("nullable"))
    if schema.get("x-kubernetes-int-or-string"):
        return _sized(types.DYN, 1, MAX_REQUEST - _QUOTES, nullable=nullable)
    if root:
        schema = with_metadata(schema)
    kind = schema.get("type")
    if kind == "array":
        return _list(schema, path)
    if kind == "object":
        return _map(schema, path) if isinstance(schema.get("additionalProperties"), Mapping) else _object(schema, path)
    if kind == "string":
        return _string(schema)
    plain = {"boolean": (types.BOOL, 4), "number": (types.DOUBLE, 1), "integer": (types.INT, 1)}.get(str(kind))
    return _sized(*plain, 0, nullable=nullable) if plain else None


def least_size(kind: Type) -> int:
    """Return the least bytes of a value as JSON."""
    return kind.declared.min_size if kind.declared else 0


def _sized(kind: Type, least: int, most: int, *, nullable: bool) -> Type:
    return Type(kind.kind, kind.name, kind.params, Declared(nullable=nullable, max_elements=most, min_size=least))


def _list(schema: Schema, path: str) -> Type | None:
    items = schema.get("items")
    item = declare(items, f"{path}.@idx", root=is_root(items)) if isinstance(items, Mapping) else None
    if item is None:
        return None
    most = schema.get("maxItems")
    declared = Declared(
        list_type=schema.get("x-kubernetes-list-type") or "atomic",
        map_keys=tuple(schema.get("x-kubernetes-list-map-keys") or ()),
        nullable=bool(schema.get("nullable")),
        max_elements=(MAX_REQUEST - _QUOTES) // (least_size(item) + 1) if most is None else max(most, 0),
        min_size=2,
    )
    return Type("list", params=(item,), declared=declared)


def _map(schema: Schema, path: str) -> Type | None:
    below = schema["additionalProperties"]
    value = declare(below, f"{path}.@elem", root=is_root(below))
    if value is None:
        return None
    most = schema.get("maxProperties")
    declared = Declared(
        nullable=bool(schema.get("nullable")),
        max_elements=(MAX_REQUEST - _QUOTES) // (least_size(value) + 6) if most is None else max(most, 0),
        min_size=2,
    )
    return Type("map", params=(_sized(types.STRING, 2, 0, nullable=False), value), declared=declared)


def _object(schema: Schema, path: str) -> Type:
    required = frozenset(schema.get("required") or ())
    fields: dict[str, Field] = {}
    size = 2
    for name, below in (schema.get("properties") or {}).items():
        kind = declare(below, f"{path}.{name}", root=is_root(below))
        if kind is None:
            continue
        if (escaped := escape(name)) is not None:
            fields[escaped] = Field(name, kind)
        if name in required and below.get("default") is None:
            size += len(name) + least_size(kind) + 4
    declared = Declared(fields=fields, nullable=bool(schema.get("nullable")), max_elements=0, min_size=size)
    return Type("object", path, declared=declared)


def _string(schema: Schema) -> Type:
    nullable = bool(schema.get("nullable"))
    form, most = schema.get("format"), schema.get("maxLength")
    if form in _FORMATS:
        kind, least, longest = _FORMATS[form]
        return _sized(Type(kind), least, longest, nullable=nullable)
    if form == "byte":
        return _sized(types.BYTES, 2, MAX_REQUEST - _QUOTES if most is None else max(most, 0), nullable=nullable)
    if most is not None:
        longest = max(most, 0) * 4  # characters have up to four bytes
    elif enum := schema.get("enum"):
        longest = max((len(each.encode()) for each in enum if isinstance(each, str)), default=0)
    else:
        longest = MAX_REQUEST - _QUOTES
    return _sized(types.STRING, 2, longest, nullable=nullable)
