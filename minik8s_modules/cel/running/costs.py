"""What a call costs beyond its arguments, while it runs.

``fixed`` is the cost of calls that never depend on values; ``measured`` returns how to count the others: by function
for Kubernetes' libraries (pkg/cel/library/cost.go), by overload for cel-go's own (interpreter/runtimecost.go).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from minik8s_modules.cel.values import size_of

Measure = Callable[[Sequence[Any], Any], int]
CHECK = 350_000  # an authorization check: two an expression
LIST, MAP = 10, 30


def tenth(size: int) -> int:
    """One traversal of a text of this size."""
    return -(-size // 10)


def fifth(size: int) -> int:
    """Two traversals of a text of this size."""
    return -(-size // 5)


def quarter(size: int) -> int:
    """A regular expression of this length, for each unit of text."""
    return -(-size // 4)


def traversal(value: Any) -> int:
    """A walk over a whole value."""
    kind = value.__class__
    if kind is str or kind is bytes:
        return int(len(value) * 0.1) if kind is bytes else int(len(value.encode()) * 0.1)
    if kind is list:
        return sum(map(traversal, value))
    if kind is dict:
        return sum(traversal(key) + traversal(each) for key, each in value.items())
    return 1


def _first(rate: Callable[[int], int]) -> Measure:
    return lambda args, _: rate(size_of(args[0]))


def _regex(args: Sequence[Any], _: Any) -> int:
    return tenth(1 + size_of(args[0])) * quarter(size_of(args[1]))


def _validate(args: Sequence[Any], _: Any) -> int:
    return tenth(1 + size_of(args[1])) * quarter(args[0].regex_size)


def _selector(args: Sequence[Any], _: Any) -> int:
    size = size_of(args[1])
    return LIST + tenth(size) + -(-size // 2) * 50


def _smaller(args: Sequence[Any], _: Any) -> int:
    return tenth(min(size_of(args[0]), size_of(args[1])))


def _contains_ip(args: Sequence[Any], _: Any) -> int:
    return fifth(size_of(args[0])) + (tenth(size_of(args[1])) if args[1].__class__ is str else 0)


def _contains_cidr(args: Sequence[Any], _: Any) -> int:
    return (
        fifth(size_of(args[0]))
        + tenth(size_of(args[0]))
        + 1
        + (tenth(size_of(args[1])) if args[1].__class__ is str else 0)
    )


def _sets(factor: int) -> Measure:
    return lambda args, _: 1 + size_of(args[0]) * size_of(args[1]) * factor


_TRAVERSED: Measure = lambda args, _: traversal(args[0])  # noqa: E731 - one of the measures below
_BY_FUNCTION: dict[str, Measure | int] = {
    "check": CHECK,
    "fieldSelector": _selector,
    "labelSelector": _selector,
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _TRAVERSED),
    **dict.fromkeys(("url", "lowerAscii", "upperAscii", "substring", "trim"), _first(tenth)),
    **dict.fromkeys(("cidr", "isIP", "isCIDR", "quantity", "isQuantity"), _first(tenth)),
    **dict.fromkeys(("replace", "split", "ip.isCanonical"), _first(fifth)),
    "join": lambda _, result: fifth(size_of(result)),
    "find": _regex,
    "findAll": _regex,
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "validate": _validate,
}
_BY_OVERLOAD: dict[str, Measure | int] = {
    "cidr_ip": 1,
    "string_to_ip": _first(tenth),
    "list_sets_contains_list": _sets(1),
    "list_sets_intersects_list": _sets(1),
    "list_sets_equivalent_list": _sets(2),
    **dict.fromkeys(
        (
            "starts_with_string",
            "ends_with_string",
            "string_to_bytes",
            "bytes_to_string",
            "string_format",
            "strings_quote",
        ),
        _first(tenth),
    ),
    "in_list": lambda args, _: size_of(args[1]),
    **dict.fromkeys(
        (
            f"{name}_{kind}"
            for name in ("less", "less_equals", "greater", "greater_equals")
            for kind in ("string", "bytes")
        ),
        _smaller,
    ),
    "add_string": lambda args, _: tenth(size_of(args[0]) + size_of(args[1])),
    "add_bytes": lambda args, _: tenth(size_of(args[0]) + size_of(args[1])),
    "matches_string": _regex,
    "contains_string": lambda args, _: tenth(size_of(args[0])) * tenth(size_of(args[1])),
    "equals": _smaller,
    "not_equals": _smaller,
}


def of(function: str, overloads: Sequence[str]) -> Measure | int:
    """Return the fixed cost of a call, or how to measure it; of several overloads only what holds for all."""
    if len(overloads) == 1 and overloads[0] in _BY_OVERLOAD:
        return _BY_OVERLOAD[overloads[0]]
    if function == "ip":
        return 1 if overloads == ["cidr_ip"] else _first(tenth)
    return _BY_FUNCTION.get(function, 1)
