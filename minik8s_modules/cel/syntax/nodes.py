"""Nodes of an expression. Every node knows where it begins; the checker adds its type and the overloads it resolved."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from minik8s_modules.cel.types import DYN, Type


@dataclass(slots=True, eq=False, kw_only=True)
class Node:
    """What all nodes have: position (code points from the start), height of the tree below, type."""

    position: int
    height: int = 1
    type: Type = DYN


@dataclass(slots=True, eq=False)
class Literal(Node):
    """A constant; ``kind`` tells uint from int."""

    value: Any
    kind: Type


@dataclass(slots=True, eq=False)
class Ident(Node):
    """A variable, or the name of a type."""

    name: str


@dataclass(slots=True, eq=False)
class Select(Node):
    """``operand.field``; ``has(operand.field)`` with ``test``; ``operand.?field`` with ``optional``."""

    operand: Node
    name: str
    test: bool = False
    optional: bool = False


@dataclass(slots=True, eq=False)
class Call(Node):
    """A function or operator. ``_&&_`` and ``_||_`` take any number of arguments from two."""

    function: str
    target: Node | None
    args: list[Node]
    overloads: list[str] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class ListNode(Node):
    """``[a, ?b]``: ``optional`` has the indexes of optional items."""

    items: list[Node]
    optional: frozenset[int] = frozenset()


@dataclass(slots=True, eq=False)
class MapNode(Node):
    """``{key: value, ?key: value}``: key, value, whether the entry is optional."""

    entries: list[tuple[Node, Node, bool]]


@dataclass(slots=True, eq=False)
class StructNode(Node):
    """``Name{…}``: no type of Kubernetes' environments can be made like this."""

    name: str


@dataclass(slots=True, eq=False)
class Fold(Node):
    """A macro over a list or map. ``kind``: all, exists, exists_one, list, map, entries.

    ``variables`` are one or two names; ``test`` filters (or is the predicate); ``result`` is what is collected.
    """

    kind: str
    range: Node
    variables: tuple[str, ...]
    test: Node | None
    result: Node | None


@dataclass(slots=True, eq=False)
class OptMap(Node):
    """``target.optMap(name, body)``, or ``optFlatMap`` with ``flat``."""

    target: Node
    name: str
    body: Node
    flat: bool
