"""Types of CEL, and what a schema adds to them.

A ``Type`` is a kind with parameters. ``Declared`` carries what only a schema knows: the fields of an object, how
lists compare, how large a value may be. It takes no part in comparing types, except that two object types are the
same only if they have the same name (a schema gives every object a name of its own).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an object: its name in JSON (unescaped) and its type."""

    json_name: str
    type: Type


@dataclass(frozen=True, slots=True)
class Declared:
    """What a schema says about values of a type.

    ``max_elements``: the most items, properties, or bytes; ``min_size``: the least bytes as JSON; ``null_is_value``:
    whether a field that is null is there. ``list_type``: atomic, set or map, whose items ``map_keys`` tell apart.
    """

    fields: dict[str, Field] = field(default_factory=dict)
    list_type: str = "atomic"
    map_keys: tuple[str, ...] = ()
    nullable: bool = False
    null_is_value: bool = False
    max_elements: int | None = None
    min_size: int = 0


@dataclass(frozen=True, slots=True)
class Type:
    """A type: ``kind`` is int, list, map, object, opaque, param, …; ``name`` distinguishes objects and opaques."""

    kind: str
    name: str = ""
    params: tuple[Type, ...] = ()
    declared: Declared | None = field(default=None, compare=False, hash=False)

    def __str__(self) -> str:
        """Return the type as cel-go prints it."""
        return _STRINGS.get(self.kind, _named)(self)


def _named(kind: Type) -> str:
    name = kind.name or kind.kind
    return f"{name}({', '.join(map(str, kind.params))})" if kind.params else name


_STRINGS: dict[str, Callable[[Type], str]] = {
    "error": lambda _: "!error!",
    "null": lambda _: "null",
    "timestamp": lambda _: "timestamp",
    "param": lambda kind: kind.name,
    "list": lambda kind: f"list({kind.params[0]})",
    "map": lambda kind: f"map({kind.params[0]}, {kind.params[1]})",
    "type": lambda kind: f"type({kind.params[0]})" if kind.params else "type",
}

DYN = Type("dyn")
ERROR = Type("error")
NULL = Type("null")
BOOL = Type("bool")
INT = Type("int")
UINT = Type("uint")
DOUBLE = Type("double")
STRING = Type("string")
BYTES = Type("bytes")
TIMESTAMP = Type("timestamp")
DURATION = Type("duration")
TYPE = Type("type")

QUANTITY = Type("object", "kubernetes.Quantity")
URL = Type("object", "kubernetes.URL")
FORMAT = Type("object", "kubernetes.NamedFormat")
IP = Type("opaque", "net.IP")
CIDR = Type("opaque", "net.CIDR")
AUTHORIZER = Type("object", "kubernetes.authorization.Authorizer")
PATH_CHECK = Type("object", "kubernetes.authorization.PathCheck")
GROUP_CHECK = Type("object", "kubernetes.authorization.GroupCheck")
RESOURCE_CHECK = Type("object", "kubernetes.authorization.ResourceCheck")
DECISION = Type("object", "kubernetes.authorization.Decision")

SCALARS = frozenset({"bool", "double", "duration", "int", "timestamp", "uint"})


def list_of(item: Type) -> Type:
    """The type of lists with such items."""
    return Type("list", params=(item,))


def map_of(key: Type, value: Type) -> Type:
    """The type of maps."""
    return Type("map", params=(key, value))


def optional_of(value: Type) -> Type:
    """The type of a value that may be absent."""
    return Type("opaque", "optional_type", (value,))


def type_of(value: Type) -> Type:
    """The type of a type."""
    return Type("type", params=(value,))


def param(name: str) -> Type:
    """A variable that stands for a type."""
    return Type("param", name)


def is_optional(kind: Type) -> bool:
    """Whether values of the type may be absent."""
    return kind.kind == "opaque" and kind.name == "optional_type"
