"""Kubernetes' OpenAPI definitions as data, and types compiled from them.

The definitions are the ones ``kubernetes-validate`` carries (one JSON file, read on first use); ours stand in
``schema_own.json`` in the same form. They are kept as JSON, a third of what they take as objects: a process compiles a
few of them, each when it is first met, and those are shared. A ``Shape``
carries what the walkers need: JSON type (``schema``), strategic merge rules (``patch``), and the topology that
ownership of fields follows (``fieldsets``).
"""

from __future__ import annotations

import copy
import importlib.util
import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.once import once

KUBERNETES_VERSION = "v1.32.0"
_REF = re.compile(r"#/\$defs/([^\"]+)")
_NAMED = re.compile(r'\s*[{,]\s*"([^"]+)"\s*:\s*')


@once
def _definitions() -> dict[str, bytes]:
    """Return all definitions by name as JSON, Kubernetes' and ours, with ``$ref: #/$defs/NAME``."""
    package = importlib.util.find_spec("kubernetes_validate")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("kubernetes_validate (it carries Kubernetes' OpenAPI definitions) is not installed")
    file = Path(package.origin).parent / f"kubernetes-json-schema/{KUBERNETES_VERSION}-local/_definitions.json"
    files = (file, Path(__file__).with_name("schema_own.json"))
    # copies: orjson gives back its whole buffer with the bytes it writes
    return {
        name: bytes(memoryview(orjson.dumps(found)))
        for each in files
        for name, found in _one_by_one(each.read_text(encoding="utf-8"))
    }


def _one_by_one(text: str) -> Iterator[tuple[str, JsonObject]]:
    """Yield the definitions of a file: parsed at once, their place would stay Python's when they have gone."""
    decode = json.JSONDecoder().raw_decode
    at = text.index('"$defs"') + len('"$defs":')
    while named := _NAMED.match(text, at):
        found, at = decode(text, named.end())
        yield named[1], found


def definition(name: str) -> JsonObject:
    """Return the definition called ``name``, a copy of the caller's own. Raises KeyError when there is none."""
    found: JsonObject = orjson.loads(_definitions()[name])
    return found


def closure(names: Iterable[str]) -> dict[str, JsonObject]:
    """Return the named definitions and all they refer to, by name."""
    found: dict[str, JsonObject] = {}
    todo = list(names)
    while todo:
        name = todo.pop()
        if name not in found:
            found[name] = definition(name)
            todo += _REF.findall(_definitions()[name].decode())
    return found


class Merge(NamedTuple):
    """How strategic merge treats a list or map: merge, replace, retainKeys, and the key that names an item."""

    strategies: frozenset[str]
    key: str


class Shape:
    """One compiled type.

    Attributes:
        kind: object, map, list, string, integer, number, boolean, quantity, intstr or any (nothing is known below).
        fields: an object's fields.
        items: the type of a list's items or a map's values.
        name: the Go struct's name for messages.
        definition: name of the OpenAPI definition, "" for a type that is written out where it is used.
        merge: strategic merge rules of a list or map.
        required: field names the definition requires.
        relation: who owns what: ``atomic`` (one owner for all of it), ``granular`` (each field or key), ``set`` and
            ``map`` (each item of a list), ``deduced`` (what nobody declares: as each value is).
        keys: names of the fields that name an item of a ``map`` list.
        embedded: whether Kubernetes' Go type always writes the field, so that it is nobody's by itself.
        open: whether an object may have fields that nobody declares.
    """

    __slots__ = (
        "definition", "embedded", "fields", "format", "items", "keys", "kind", "merge", "name", "open",
        "relation", "required",
    )  # fmt: skip

    def __init__(self, kind: str, name: str, definition: str = "") -> None:
        self.kind = kind
        self.name = name
        self.definition = definition
        self.fields: dict[str, Shape] = {}
        self.items: Shape | None = None
        self.format = ""
        self.merge = Merge(frozenset(), "")
        self.required: tuple[str, ...] = ()
        self.relation = ""
        self.keys: tuple[str, ...] = ()
        self.embedded = name == "ObjectMeta" or name.endswith(_EMBEDDED)
        self.open = False

    def of(self, *values: Any) -> Shape:
        """Return as what the values are owned: of what nobody declares, maps are owned key by key, all else whole.

        Source: structured-merge-diff's ``__untyped_deduced_``, as kube-openapi ``schemaconv/openapi.go`` uses it.
        """
        if self.relation != "deduced" or all(isinstance(value, dict) for value in values):
            return self
        return _WHOLE

    def below(self, name: str) -> Shape | None:
        """Return the type of the field, or of the values of a map; None for an unknown field."""
        found = self.fields.get(name)  # most have been asked for before
        if found is not None:
            return found
        if self.relation == "deduced":
            return self
        if self.kind != "object":
            return self.items
        if name in self.fields:
            return self.fields[name]
        return _DEDUCED if self.open else None

    def always(self, name: str, sub: Shape) -> bool:
        """Return whether Go writes the field (of type ``sub``) even if nothing is in it, so that it is nobody's."""
        if self.kind != "object":
            return False
        return sub.embedded or (name in self.required and sub.relation in _COMPOSITE)

    @property
    def item(self) -> Shape:
        """Return the type of a list's items."""
        if self.items is None:
            raise TypeError(f"{self.name} is {self.kind}, not a list")
        return self.items


# the structs that Go embeds by value, by the ends of their names
_EMBEDDED = ("Spec", "Status", "Strategy")
_COMPOSITE = frozenset({"granular", "map", "set"})
_SPECIAL = {"Quantity": "quantity", "IntOrString": "intstr"}


@cache
def shape(name: str) -> Shape:
    """Return the compiled type of the definition ``name``."""
    schema = definition(name)
    short = name.rsplit(".", 1)[1]
    made = Shape(_SPECIAL.get(short, ""), short, name)
    if not made.kind:
        _compile(made, schema)
    return made


def _compile(made: Shape, schema: JsonObject) -> None:
    if schema.get("x-kubernetes-int-or-string"):
        made.kind = "intstr"
        return
    kinds = schema.get("type", "object")
    made.open = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    kind = kinds if isinstance(kinds, str) else next(k for k in kinds if k != "null")
    made.relation, made.keys = _topology(schema, kind)
    made.kind = {"array": "list"}.get(kind, kind)
    made.format = schema.get("format", "")
    if kind == "array":
        made.items = _sub(schema["items"], made.name)
    elif kind == "object":
        _compile_object(made, schema)


def _compile_object(made: Shape, schema: JsonObject) -> None:
    extra = schema.get("additionalProperties")
    if "properties" in schema:
        made.required = tuple(schema.get("required", ()))
        made.fields = _Fields(schema["properties"], made.name)
    elif isinstance(extra, dict):
        made.kind = "map"
        made.items = _sub(extra, made.name)
    else:  # Kubernetes' own definitions name what they leave open, as RawExtension; a custom kind has no names
        made.kind, made.relation = "any", "atomic" if made.name else "deduced"


class _Fields(dict[str, Shape]):
    """Fields that are compiled when asked for: definitions may refer to themselves."""

    def __init__(self, properties: JsonObject, owner: str) -> None:
        super().__init__()
        self._properties = properties
        self._owner = owner

    def __missing__(self, name: str) -> Shape:
        made = self[name] = _sub(self._properties[name], self._owner)
        return made

    def __contains__(self, name: object) -> bool:
        return name in self._properties

    def __iter__(self) -> Iterator[str]:
        return iter(self._properties)


def _topology(schema: JsonObject, kind: str) -> tuple[str, tuple[str, ...]]:
    """Return relation and keys; source: kube-openapi ``schemaconv`` (patch strategies stand in for list types)."""
    if kind == "object":
        return schema.get("x-kubernetes-map-type", "granular"), ()
    if kind != "array":
        return "", ()
    strategy, key = schema.get("x-kubernetes-patch-strategy", ""), schema.get("x-kubernetes-patch-merge-key")
    merged = ("map" if key else "set") if "merge" in strategy.split(",") else "atomic"
    return schema.get("x-kubernetes-list-type", merged), tuple(
        sorted(schema.get("x-kubernetes-list-map-keys", filter(None, [key])))
    )


def _sub(schema: JsonObject, owner: str) -> Shape:
    merge = _merge(schema)
    reference = schema.get("$ref")
    if reference:
        target = shape(reference.rsplit("/", 1)[1])
        relation = schema.get("x-kubernetes-map-type", target.relation)
        if not merge.strategies and relation == target.relation:
            return target
        return _with_merge(target, merge, relation)
    made = Shape("", owner)
    made.embedded = False
    _compile(made, schema)
    made.merge = merge
    return made


def _merge(schema: JsonObject) -> Merge:
    strategies = schema.get("x-kubernetes-patch-strategy", "")
    return Merge(frozenset(filter(None, strategies.split(","))), schema.get("x-kubernetes-patch-merge-key", ""))


def _with_merge(target: Shape, merge: Merge, relation: str) -> Shape:
    made = copy.copy(target)
    made.merge, made.relation = merge, relation
    return made


def _undeclared(relation: str) -> Shape:
    made = Shape("any", "")
    made.relation = relation
    return made


_WHOLE, _DEDUCED = _undeclared("atomic"), _undeclared("deduced")


def declared_shape(schema: JsonObject) -> Shape:
    """Return the compiled type of a schema that stands in no definition (a custom kind's)."""
    return _sub(schema, "")


def kind_shape(kind: Kind) -> Shape:
    """Return the compiled type of a kind's objects."""
    if kind.custom is not None:
        made: Shape = kind.custom.shape()
        return made
    return shape(kind.definition)
