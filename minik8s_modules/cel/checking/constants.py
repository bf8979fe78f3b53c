"""Constants that can be judged before anything runs: durations, timestamps, regular expressions, lists of one type.

These are the validators that Kubernetes switches on (since 1.29; cel-go, cel/validator.go).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from minik8s_modules.cel import types
from minik8s_modules.cel.checking.walk import children
from minik8s_modules.cel.errors import EvaluationError
from minik8s_modules.cel.libraries import regex, times
from minik8s_modules.cel.libraries.formatting import check_format
from minik8s_modules.cel.syntax.nodes import Call, ListNode, Literal, MapNode, Node
from minik8s_modules.cel.types import Type
from minik8s_modules.cel.values import SECOND

Mistake = tuple[int, str]
_CHECKS: dict[str, tuple[int, Callable[[Any], object]]] = {
    "duration": (0, times.parse_duration),
    "timestamp": (0, times.parse_timestamp),
    "matches": (-1, regex.compiled),
}
_NUMBERS: dict[str, Callable[[Any], object]] = {
    "timestamp": lambda seconds: times.timestamp(seconds * SECOND),
    "duration": times.duration,
}


def issues_in(tree: Node, *, mixed_allowed: bool = False) -> Iterator[Mistake]:
    """Yield position and text of each mistake in a tree that has types."""
    if isinstance(tree, Call):
        yield from _call(tree)
        mixed_allowed = mixed_allowed or tree.function == "format"
    elif isinstance(tree, ListNode) and not mixed_allowed:
        yield from _same([_unwrapped(each, at in tree.optional) for at, each in enumerate(tree.items)])
    elif isinstance(tree, MapNode) and not mixed_allowed:
        yield from _same([(key, key.type) for key, _, _ in tree.entries])
        yield from _same([_unwrapped(value, optional) for _, value, optional in tree.entries])
    for child in children(tree):
        yield from issues_in(child, mixed_allowed=mixed_allowed)


def _call(node: Call) -> Iterator[Mistake]:
    if node.function == "format" and isinstance(node.target, Literal) and isinstance(node.args[0], ListNode):
        items = node.args[0].items
        for at, text in check_format(node.target.value, [each.type for each in items]):
            yield (node.position if at is None else items[at].position), text
    if node.function not in _CHECKS or not node.args:
        return
    index, check = _CHECKS[node.function]
    argument = node.args[index]
    if isinstance(argument, Literal) and argument.value.__class__ in {str, int}:
        try:
            (check if argument.value.__class__ is str else _NUMBERS.get(node.function, check))(argument.value)
        except EvaluationError:
            yield argument.position, f"invalid {node.function} argument"


def _unwrapped(node: Node, optional: bool) -> tuple[Node, Type]:  # noqa: FBT001 - a mark of the item
    return node, node.type.params[0] if optional and node.type.params else node.type


def _same(items: list[tuple[Node, Type]]) -> Iterator[Mistake]:
    for node, kind in items[1:]:
        first = items[0][1]
        if not _alike(first, kind):
            yield node.position, f"expected type '{first}' but found '{kind}'"
            return


def _alike(one: Type, other: Type) -> bool:
    return one == other or (one.kind == "object" and one.name == other.name) or types.ERROR in {one, other}
