"""Quantities (pkg/cel/library/quantity.go): exact numbers with a suffix, as apimachinery reads them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

from minik8s_modules.cel import types
from minik8s_modules.cel.errors import EvaluationError
from minik8s_modules.cel.types import Type
from minik8s_modules.cel.values import INT_MAX, INT_MIN

_QUANTITY = re.compile(r"([+-]?)([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,18}|[numkMGTPE]|[KMGTPE]i|)", re.ASCII)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_NANO = 10**9
_LARGEST_EXPONENT = 1000  # beyond it every number but 0 is at one of the bounds
_FORMS = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """An exact number, rounded up to billionths."""

    value: Fraction
    cel_type: ClassVar[Type] = types.QUANTITY


def parse_quantity(text: str) -> Quantity:
    """Return the number that a quantity names; raises EvaluationError."""
    found = _QUANTITY.fullmatch(text)
    if found is None:
        raise EvaluationError(_FORMS)
    sign, digits, suffix = found.groups()
    value = Fraction(digits) * _factor(suffix)
    value = min(Fraction(math.ceil(value * _NANO), _NANO), Fraction(INT_MAX))
    return Quantity(-value if sign == "-" else value)


def _factor(suffix: str) -> Fraction:
    if suffix in _BINARY:
        return Fraction(2 ** _BINARY[suffix])
    if suffix in _DECIMAL:
        return Fraction(10) ** _DECIMAL[suffix]
    exponent = int(suffix[1:])
    return Fraction(10) ** max(-_LARGEST_EXPONENT, min(_LARGEST_EXPONENT, exponent))


def _is_quantity(text: str) -> bool:
    return _QUANTITY.fullmatch(text) is not None


def _is_integer(quantity: Quantity) -> bool:
    return quantity.value.denominator == 1 and INT_MIN <= quantity.value < INT_MAX


def _as_integer(quantity: Quantity) -> int:
    if _is_integer(quantity):
        return int(quantity.value)
    raise EvaluationError("cannot convert value to integer")


def _compare(one: Quantity, other: Quantity) -> int:
    return (one.value > other.value) - (one.value < other.value)


def _as_float(quantity: Quantity) -> float:
    try:
        return float(quantity.value)
    except OverflowError:
        return math.inf if quantity.value > 0 else -math.inf


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "string_to_quantity": parse_quantity,
    "is_quantity_string": _is_quantity,
    "quantity_sign": lambda one: (one.value > 0) - (one.value < 0),
    "quantity_is_greater_than": lambda one, other: one.value > other.value,
    "quantity_is_less_than": lambda one, other: one.value < other.value,
    "quantity_compare_to": _compare,
    "quantity_get_float": _as_float,
    "quantity_get_int": _as_integer,
    "quantity_is_integer": _is_integer,
    "quantity_add": lambda one, other: Quantity(one.value + other.value),
    "quantity_add_int": lambda one, other: Quantity(one.value + other),
    "quantity_sub": lambda one, other: Quantity(one.value - other.value),
    "quantity_sub_int": lambda one, other: Quantity(one.value - other),
}
