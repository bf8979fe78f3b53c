"""Whether a schema may be a custom kind's: of known keywords, structural, and not beyond what is sound to compile.

Two walks. ``well_formed`` says whether keywords are known and have values of their types (definitions leave ``items``
and ``additionalProperties`` open, so this is not the decoder's); ``structural`` has apiextensions-apiserver's rules
(``pkg/apiserver/schema/validation.go``, ``pkg/apis/apiextensions/validation``), in its words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from minik8s_modules.api import cause
from minik8s_modules.api.errors import MOST_TOLD, Cause
from minik8s_modules.api.objects import JsonObject

MAX_DEPTH = 64
"""Levels of a schema: objects may nest as deep only, and Go's own decoder ends at 10,000."""
MAX_NODES = 50_000
"""Schemas in a schema; prometheus-operator's largest has some 7,000."""
TYPES = ("string", "number", "integer", "boolean", "array", "object")
_JUNCTORS = ("allOf", "anyOf", "oneOf")
PRESERVE, _EMBEDDED = "x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"
_INT_OR_STRING, LIST_TYPE, MAP_KEYS = (
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
)
MAP_TYPE, _RULES = "x-kubernetes-map-type", "x-kubernetes-validations"
_EITHER = [{"type": "integer"}, {"type": "string"}]


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _number(value: Any) -> bool:
    return type(value) in {int, float}


def _count(value: Any) -> bool:
    return type(value) is int


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_text, value))


def _any(_value: Any) -> bool:
    return True


def _schema(value: Any) -> bool:
    return isinstance(value, dict)


def _schemas(value: Any) -> bool:
    return isinstance(value, list) and all(map(_schema, value))


def _named(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_schema, value.values()))


_KEYWORDS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("description", "type", "format", "title", "pattern", "id", "$schema"), (_text, "a string")),
    **dict.fromkeys(("nullable", "exclusiveMaximum", "exclusiveMinimum", "uniqueItems"), (_flag, "a boolean")),
    **dict.fromkeys((PRESERVE, _EMBEDDED, _INT_OR_STRING), (_flag, "a boolean")),
    **dict.fromkeys(("maximum", "minimum", "multipleOf"), (_number, "a number")),
    **dict.fromkeys(
        ("maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties"), (_count, "a whole number")
    ),
    **dict.fromkeys(("required", MAP_KEYS), (_texts, "a list of strings")),
    **dict.fromkeys((LIST_TYPE, MAP_TYPE, "$ref"), (_text, "a string")),
    **dict.fromkeys(("default", "example", "externalDocs"), (_any, "")),
    **dict.fromkeys(("enum", _RULES), (lambda value: isinstance(value, list), "a list")),
    **dict.fromkeys(_JUNCTORS, (_schemas, "a list of schemas")),
    "properties": (_named, "a map of schemas"),
    "not": (_schema, "a schema"),
    "items": (_schema, "a schema; a list of them is not supported"),
    "additionalProperties": (lambda value: isinstance(value, dict | bool), "a schema or a boolean"),
}
_NOT_SERVED = ("definitions", "dependencies", "patternProperties", "additionalItems", "$ref", "id", "$schema")
_WORDS = {
    "additionalItems": "additionalItems is not supported", "definitions": "definitions is not supported",
    "dependencies": "dependencies is not supported", "patternProperties": "patternProperties is not supported",
    "id": "id is not supported", "$schema": "schema is not supported", "$ref": "$ref is not supported",
}  # fmt: skip


def children(schema: JsonObject) -> Iterator[tuple[str, Any]]:
    """Yield each schema that stands in a schema, with the end of its path."""
    for name, inner in (schema.get("properties") or {}).items():
        yield f".properties[{name}]", inner
    for keyword in ("items", "additionalProperties", "not"):
        if isinstance(schema.get(keyword), dict):
            yield f".{keyword}", schema[keyword]
    for keyword in _JUNCTORS:
        for index, inner in enumerate(schema.get(keyword) or ()):
            yield f".{keyword}[{index}]", inner


def drop_unknown(schema: JsonObject, depth: int = 0) -> None:
    """Drop in place, as Kubernetes' decoder does, what is no keyword of a schema."""
    for name in [name for name in schema if name not in _KEYWORDS and name not in _NOT_SERVED]:
        del schema[name]
    if depth < MAX_DEPTH and not _keywords(schema, ""):
        for _, inner in children(schema):
            drop_unknown(inner, depth + 1)


def well_formed(schema: JsonObject, at: str) -> list[Cause]:
    """Return what keeps a schema from being read at all."""
    causes: list[Cause] = []
    todo, seen = [(at, schema, 0)], 0
    while todo and len(causes) < MOST_TOLD:
        path, one, depth = todo.pop()
        seen += 1
        if depth > MAX_DEPTH or seen > MAX_NODES:
            text = (
                f"at most {MAX_DEPTH} levels and {MAX_NODES} schemas are taken; split the kind, or keep unknown fields"
            )
            return [*causes, cause.forbidden(path, text)]
        wrong = _keywords(one, path)
        causes += wrong
        if not wrong:
            todo += [(path + step, inner, depth + 1) for step, inner in children(one)]
    return causes


def _keywords(schema: JsonObject, at: str) -> list[Cause]:
    causes = []
    for name, value in schema.items():
        if name in _NOT_SERVED:
            causes.append(cause.forbidden(f"{at}.{name}", _WORDS[name]))
        elif name in _KEYWORDS and not _KEYWORDS[name][0](value):
            causes.append(cause.invalid(f"{at}.{name}", value, f"must be {_KEYWORDS[name][1]}"))
    return causes


# --- structural -----------------------------------------------------------------------------------


def structural(schema: JsonObject, at: str) -> list[Cause]:
    """Return what keeps a well-formed schema from being structural."""
    causes = [*_invariants(schema, "root", at), *_completeness(schema, schema, at, at)]
    return sorted(causes, key=str)[:MOST_TOLD]


_EMPTY_TYPE = {
    "root": "must not be empty at the root",
    "item": "must not be empty for specified array items",
    "field": "must not be empty for specified object fields",
}


def _invariants(schema: JsonObject, level: str, at: str) -> list[Cause]:
    causes = []
    if schema.get("type") == "array" and "items" not in schema:
        causes.append(cause.required(f"{at}.items", "must be specified"))
    if "items" in schema:
        causes += _invariants(schema["items"], "item", f"{at}.items")
    for name, inner in (schema.get("properties") or {}).items():
        causes += _invariants(inner, "field", f"{at}.properties[{name}]")
    extra = schema.get("additionalProperties")
    if extra is not None and level == "root":
        causes.append(cause.forbidden(f"{at}.additionalProperties", "must not be used at the root"))
    if isinstance(extra, dict):
        causes += _invariants(extra, "field", f"{at}.additionalProperties")
    either = bool(schema.get(_INT_OR_STRING))
    for keyword in (PRESERVE, _EMBEDDED):
        if either and schema.get(keyword):
            text = "must be false if x-kubernetes-int-or-string is true"
            causes.append(cause.invalid(f"{at}.{keyword}", schema[keyword], text))
    causes += _values(schema, at, skip_either=True)
    return causes + _types(schema, level, at) + _metadata(schema, level, at)


def _types(schema: JsonObject, level: str, at: str) -> list[Cause]:
    kind, embedded = schema.get("type") or "", bool(schema.get(_EMBEDDED))
    causes = []
    if embedded and kind != "object":
        text = "must be object if x-kubernetes-embedded-resource is true"
        causes.append(cause.invalid(f"{at}.type", kind, text) if kind else cause.required(f"{at}.type", text))
    elif not kind and not schema.get(_INT_OR_STRING) and not schema.get(PRESERVE):
        causes.append(cause.required(f"{at}.type", _EMPTY_TYPE[level]))
    if embedded and schema.get("additionalProperties") is not None:
        text = "must not be used if x-kubernetes-embedded-resource is set"
        causes.append(cause.forbidden(f"{at}.additionalProperties", text))
    if level == "root" and kind and kind != "object":
        causes.append(cause.invalid(f"{at}.type", kind, "must be object at the root"))
    if embedded and not schema.get(PRESERVE) and not schema.get("properties"):
        text = (
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"
        )
        causes.append(cause.required(f"{at}.properties", text))
    return causes


def _metadata(schema: JsonObject, level: str, at: str) -> list[Cause]:
    if level != "root" and not schema.get(_EMBEDDED):
        return []
    fields, causes = schema.get("properties") or {}, []
    for name in ("kind", "apiVersion"):
        if name in fields and fields[name].get("type") != "string":
            got = fields[name].get("type") or ""
            causes.append(cause.invalid(f"{at}.properties[{name}].type", got, "must be string"))
    metadata, here = fields.get("metadata"), f"{at}.properties[metadata]"
    if metadata is None:
        return causes
    if metadata.get("type") != "object":
        causes.append(cause.invalid(f"{here}.type", metadata.get("type") or "", "must be object"))
    if level == "root":
        others = {*metadata} - {"type", "properties", "description", "default"}
        if others or {*(metadata.get("properties") or {})} - {"name", "generateName"}:
            text = "must not specify anything other than name and generateName, but metadata is implicitly specified"
            causes.append(cause.forbidden(here, text))
    return causes


def _values(schema: JsonObject, at: str, *, skip_either: bool = False) -> list[Cause]:
    """Return what is wrong with the logical parts of a schema."""
    causes = []
    every, some = schema.get("allOf") or [], schema.get("anyOf") or []
    if not (skip_either and schema.get(_INT_OR_STRING) and some == _EITHER):
        for index, inner in enumerate(some):
            causes += _nested(inner, f"{at}.anyOf[{index}]")
    for index, inner in enumerate(every):
        skip = skip_either and index == 0 and bool(schema.get(_INT_OR_STRING)) and inner.get("anyOf") == _EITHER
        causes += _nested(inner, f"{at}.allOf[{index}]", skip_either=skip)
    for index, inner in enumerate(schema.get("oneOf") or []):
        causes += _nested(inner, f"{at}.oneOf[{index}]")
    if schema.get("not") is not None:
        causes += _nested(schema["not"], f"{at}.not")
    return causes + _pattern(schema, at)


def _pattern(schema: JsonObject, at: str) -> list[Cause]:
    pattern = schema.get("pattern")
    if not pattern:
        return []
    import re2  # noqa: PLC0415 - 2 MB, for schemas with patterns alone

    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(pattern, options)
    except re2.error as error:
        text = f"must be a valid regular expression, but isn't: {error}"
        return [cause.invalid(f"{at}.pattern", pattern, text)]
    return []


_FORBIDDEN = (
    ("type", "must be empty to be structural"), ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"), ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"), (PRESERVE, "must be false to be structural"),
    (_EMBEDDED, "must be false to be structural"), (_INT_OR_STRING, "must be false to be structural"),
    (MAP_KEYS, "must be empty to be structural"), (LIST_TYPE, "must be undefined to be structural"),
    (MAP_TYPE, "must be undefined to be structural"), (_RULES, "must be empty to be structural"),
)  # fmt: skip


def _nested(schema: JsonObject, at: str, *, skip_either: bool = False) -> list[Cause]:
    bare = {name: value for name, value in schema.items() if not (skip_either and name == "anyOf")}
    causes = _values(bare, at)
    causes += [cause.forbidden(f"{at}.{name}", why) for name, why in _FORBIDDEN if schema.get(name)]
    if schema.get("additionalProperties") is not None:
        causes.append(cause.forbidden(f"{at}.additionalProperties", "must be undefined to be structural"))
    if isinstance(schema.get("items"), dict):
        causes += _nested(schema["items"], f"{at}.items")
    for name, inner in (schema.get("properties") or {}).items():
        causes += _nested(inner, f"{at}.properties[{name}]")
        if name == "metadata":
            message = "must not be specified in a nested context"
            causes.append(cause.forbidden(f"{at}.properties[metadata]", message))
    return causes


def _completeness(values: JsonObject, schema: JsonObject | None, at: str, defined: str) -> list[Cause]:
    """Return which fields the logical parts speak of and the structure does not have."""
    if schema is None:
        return [cause.required(at, f"because it is defined in {defined}")]
    causes = []
    parts = [(f".{name}[{index}]", part) for name in _JUNCTORS for index, part in enumerate(values.get(name) or ())]
    if values.get("not") is not None:
        parts.append((".not", values["not"]))
    for step, part in parts:
        causes += _nested_completeness(part, schema, at, defined + step)
    return causes


def _nested_completeness(values: JsonObject, schema: JsonObject | None, at: str, defined: str) -> list[Cause]:
    causes = _completeness(values, schema, at, defined)
    if schema is None:
        return causes
    if "items" in values:
        causes += _nested_completeness(values["items"], schema.get("items"), f"{at}.items", f"{defined}.items")
    for name, inner in (values.get("properties") or {}).items():
        step = f".properties[{name}]"
        field = (schema.get("properties") or {}).get(name)
        causes += _nested_completeness(inner, field, at + step, defined + step)
    return causes
