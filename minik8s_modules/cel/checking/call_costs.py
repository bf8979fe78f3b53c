"""What a call can cost beyond its arguments, and how large its result can be.

By function for Kubernetes' libraries (pkg/cel/library/cost.go), by overload for cel-go's own (checker/cost.go).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from minik8s_modules.cel import types
from minik8s_modules.cel.checking.ranges import ANY, MOST, ONE, ZERO, Range, exactly
from minik8s_modules.cel.syntax.nodes import Literal, Node
from minik8s_modules.cel.types import SCALARS, Type

_TEXT, _REGEX = 0.1, 0.25  # cost units a byte of text, and a byte of a regular expression for each unit of text
_CHECK = exactly(350_000)
_NETWORK = Range(4, 16)  # bytes of an address
_FORMAT_REGEX, _FORMAT = 128, 64
_REQUIREMENT = 50.0


class Estimate(NamedTuple):
    """Cost, and size of the result where it is known."""

    cost: Range
    size: Range | None = None


@dataclass(frozen=True, slots=True)
class Operand:
    """An argument: its type, where it comes from, its size where the expression tells, and its node (None: items)."""

    type: Type
    path: tuple[str, ...]
    known: Range | None
    node: Node | None
    declared: Callable[[tuple[str, ...]], Range | None]

    def size(self, *, scalars: bool = False) -> Range:
        """Return its size; ``scalars``: 1 for values of fixed size that no schema tells about."""
        found = self.known or self.declared(self.path)
        if found is not None:
            return found
        return ONE if scalars and self.type.kind in SCALARS else ANY

    def item(self) -> Operand | None:
        """Return the items of a list (or keys of a map) as operands, None for what has none."""
        if not self.type.params:
            return None
        path = (*self.path, "@items") if self.path else ()
        return Operand(self.type.params[0], path, None, None, self.declared)


Args = Sequence[Operand]
Estimator = Callable[[str, Operand | None, Args], Estimate | None]


def estimate(function: str, overload: str, target: Operand | None, args: Args) -> Estimate:
    """Return the estimate of one overload of a function."""
    by_function = _BY_FUNCTION.get(function)
    found = by_function(overload, target, args) if by_function else None
    if found is None and (by_overload := _BY_OVERLOAD.get(overload)):
        found = by_overload(overload, target, args)
    return found or Estimate(ONE)


def _check(_: str, __: Operand | None, ___: Args) -> Estimate:
    return Estimate(_CHECK)


def _selector(_: str, __: Operand | None, args: Args) -> Estimate:
    size = args[0].size()
    cost = exactly(10).plus(size.scaled(_TEXT)).plus(size.scaled(0.5).scaled(_REQUIREMENT))
    return Estimate(cost)


def _over_list(_: str, target: Operand | None, __: Args) -> Estimate | None:
    if target is None:
        return None
    item = target.item()
    if item is None:
        return Estimate(target.size().scaled(_TEXT))
    each = ONE
    if item.type.kind in {"string", "bytes"}:
        each = each.plus(item.size().scaled(_TEXT))
    return Estimate(target.size().times(each))


def _argument(*, sized: bool) -> Estimator:
    def over(_: str, __: Operand | None, args: Args) -> Estimate:
        size = args[0].size()
        return Estimate(size.scaled(_TEXT), size if sized else None)

    return over


def _ip(overload: str, _: Operand | None, args: Args) -> Estimate:
    return Estimate(ONE if overload == "cidr_ip" or not args else args[0].size().scaled(_TEXT))


def _canonical(_: str, __: Operand | None, args: Args) -> Estimate:
    return Estimate(args[0].size().scaled(2 * _TEXT))


def _target(_: str, target: Operand | None, __: Args) -> Estimate | None:
    if target is None:
        return None
    size = target.size()
    return Estimate(size.scaled(_TEXT), size)


def _replace(_: str, target: Operand | None, args: Args) -> Estimate | None:
    if target is None:
        return None
    size, old, new = target.size(), args[0].size(), args[1].size()
    most, most_kept = _replaced(size.most, old.least, shortens=new.most <= old.least)
    least, least_kept = _replaced(size.least, old.most, shortens=old.most <= new.least)
    result = Range(least, most).times(new).plus(Range(least_kept, most_kept))
    return Estimate(size.scaled(2 * _TEXT), result)


def _replaced(size: int, old: int, *, shortens: bool) -> tuple[int, int]:
    """Return how often a text is replaced, and how much of it stays."""
    if old == 0:
        return min(size + 1, MOST), size
    if shortens:
        return 0, size
    return math.ceil(float(size) / float(old)), 0


def _split(_: str, target: Operand | None, args: Args) -> Estimate | None:
    if target is None:
        return None
    size = target.size()
    most = size.most
    if len(args) > 1 and isinstance(args[1].node, Literal):
        most = args[1].node.value % (MOST + 1)
    return Estimate(size.scaled(2 * _TEXT), Range(0, most))


def _join(_: str, target: Operand | None, args: Args) -> Estimate | None:
    if target is None:
        return None
    count, item = target.size(), target.item()
    size = count.times(item.size()) if item else ZERO
    if args:
        gaps = Range(max(count.least - 1, 0), max(count.most - 1, 0))
        size = size.plus(args[0].size().times(gaps))
    return Estimate(size.scaled(_TEXT), size)


def _find(_: str, target: Operand | None, args: Args) -> Estimate | None:
    if target is None:
        return None
    size = target.size()
    cost = size.plus(ONE).scaled(_TEXT).times(args[0].size().scaled(_REGEX))
    return Estimate(cost, Range(0, size.most))


def _contains_network(overload: str, _: Operand | None, args: Args) -> Estimate:
    cost = _NETWORK.plus(_NETWORK).scaled(_TEXT)
    if overload.startswith("cidr_contains_cidr"):
        cost = cost.plus(_NETWORK.scaled(_TEXT)).plus(ONE)
    if overload.endswith("_string"):
        cost = cost.plus(args[0].size().scaled(_TEXT))
    return Estimate(cost)


def _validate(_: str, __: Operand | None, args: Args) -> Estimate:
    return Estimate(args[0].size().scaled(_TEXT).scaled(_FORMAT_REGEX * _REGEX))


_CONSTANT_EQUALITY = {
    types.IP, types.CIDR, types.QUANTITY, types.AUTHORIZER, types.PATH_CHECK, types.GROUP_CHECK, types.RESOURCE_CHECK,
    types.DECISION,
}  # fmt: skip


def _equals_kubernetes(_: str, __: Operand | None, args: Args) -> Estimate | None:
    kind = args[0].type
    if kind != args[1].type:
        return None
    if kind in _CONSTANT_EQUALITY:
        return Estimate(ONE)
    if kind == types.FORMAT:
        return Estimate(Range(1, _FORMAT).scaled(_TEXT))
    if kind == types.URL:
        size = args[1].known or ONE
        return Estimate(Range(1, size.most).scaled(_TEXT))
    return None


def _compared(_: str, __: Operand | None, args: Args) -> Estimate:
    most = min(args[0].size(scalars=True).most, args[1].size(scalars=True).most)
    return Estimate(Range(1 if most else 0, most).scaled(_TEXT))


def _first(_: str, __: Operand | None, args: Args) -> Estimate | None:
    return Estimate(args[0].size(scalars=True).scaled(_TEXT)) if args else None


def _format(_: str, target: Operand | None, __: Args) -> Estimate | None:
    return Estimate(target.size(scalars=True).scaled(_TEXT)) if target else None


def _quote(_: str, __: Operand | None, args: Args) -> Estimate:
    size = args[0].size(scalars=True)
    return Estimate(size.scaled(_TEXT), Range(size.least + 2, min(size.most * 2 + 2, MOST)))


def _to_bytes(_: str, __: Operand | None, args: Args) -> Estimate:
    size = args[0].size(scalars=True)
    return Estimate(size.scaled(_TEXT), Range(size.least, min(size.most * 4, MOST)))


def _from_bytes(_: str, __: Operand | None, args: Args) -> Estimate:
    size = args[0].size(scalars=True)
    return Estimate(size.scaled(_TEXT), Range(size.least // 4, size.most))


def _within(_: str, __: Operand | None, args: Args) -> Estimate:
    return Estimate(args[1].size(scalars=True))


def _matches(_: str, target: Operand | None, args: Args) -> Estimate | None:
    if target is None:
        return None
    cost = target.size(scalars=True).plus(ONE).scaled(_TEXT)
    return Estimate(cost.times(args[0].size(scalars=True).scaled(_REGEX)))


def _contains(_: str, target: Operand | None, args: Args) -> Estimate | None:
    if target is None:
        return None
    return Estimate(target.size(scalars=True).scaled(_TEXT).times(args[0].size(scalars=True).scaled(_TEXT)))


def _joined(overload: str, _: Operand | None, args: Args) -> Estimate:
    size = args[0].size(scalars=True).plus(args[1].size(scalars=True))
    return Estimate(ONE if overload == "add_list" else size.scaled(_TEXT), size)


def _sets(overload: str, _: Operand | None, args: Args) -> Estimate:
    factor = 2.0 if overload == "list_sets_equivalent_list" else 1.0
    return Estimate(args[0].size().times(args[1].size()).scaled(factor).plus(ONE))


_BY_FUNCTION: dict[str, Estimator] = {
    "check": _check,
    "fieldSelector": _selector,
    "labelSelector": _selector,
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _over_list),
    "url": _argument(sized=True),
    **dict.fromkeys(("cidr", "isIP", "isCIDR", "quantity", "isQuantity"), _argument(sized=False)),
    **dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim"), _target),
    "replace": _replace,
    "split": _split,
    "join": _join,
    "find": _find,
    "findAll": _find,
    "ip": _ip,
    "ip.isCanonical": _canonical,
    "containsIP": _contains_network,
    "containsCIDR": _contains_network,
    "validate": _validate,
    "_==_": _equals_kubernetes,
}
_BY_OVERLOAD: dict[str, Estimator] = {
    "string_to_bytes": _to_bytes,
    "bytes_to_string": _from_bytes,
    "string_format": _format,
    "strings_quote": _quote,
    "starts_with_string": _first,
    "ends_with_string": _first,
    "in_list": _within,
    "matches_string": _matches,
    "contains_string": _contains,
    **dict.fromkeys(("add_string", "add_bytes", "add_list"), _joined),
    **dict.fromkeys(
        (
            f"{name}_{kind}"
            for name in ("less", "less_equals", "greater", "greater_equals")
            for kind in ("string", "bytes")
        ),
        _compared,
    ),
    "equals": _compared,
    "not_equals": _compared,
    **dict.fromkeys(("list_sets_contains_list", "list_sets_equivalent_list", "list_sets_intersects_list"), _sets),
}
