"""Kubernetes quantities (``100m``, ``1.5Gi``, ``2e3``), exact.

A quantity is a decimal number with a suffix: binary (Ki … Ei), decimal SI (n u m, none, k M G T P E) or an exponent
(e3, E3). ``parse`` returns the exact value as a Decimal; the other functions round *up*, as Kubernetes does when it
needs whole units. Canonical form: no fraction, the largest suffix possible, the family of the suffix as written (binary
below 1024 becomes decimal). Source: k8s.io/apimachinery ``api/resource/quantity.go``.
"""

from __future__ import annotations

import re
from decimal import ROUND_UP, Context, Decimal
from functools import lru_cache
from typing import NamedTuple

from minik8s_modules.api.size_limits import MAX_VALUES

_SYNTAX = re.compile(r"([+-]?)([0-9]+\.?[0-9]*|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,3}|)")
_BINARY = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60}
_DECIMAL = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1), "k": Decimal(10) ** 3,
    "M": Decimal(10) ** 6, "G": Decimal(10) ** 9, "T": Decimal(10) ** 12, "P": Decimal(10) ** 15,
    "E": Decimal(10) ** 18,
}  # fmt: skip
_EXACT = Context(prec=200, rounding=ROUND_UP)  # the longest input times 2**60 fits
_LONGEST = 64
_NANO = Decimal("1e-9")
_LARGEST = Decimal(2) ** 63 - 1

MESSAGE = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


class _Parsed(NamedTuple):
    value: Decimal
    suffix: str


def parse(text: str | float) -> Decimal:
    """Return the exact value; finer than 1e-9 is rounded up, more than 2^63-1 is capped, both as Kubernetes does.

    Raises:
        ValueError: ``text`` is no quantity; the message is Kubernetes'.
    """
    return _parse(str(text)).value


@lru_cache(maxsize=2 * MAX_VALUES)  # a write parses each of an object's quantities up to seven times
def _parse(text: str) -> _Parsed:
    match = _SYNTAX.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise ValueError(MESSAGE)
    sign, digits, suffix = match.groups()
    value = _EXACT.multiply(Decimal(digits), _factor(suffix))
    value = min(_EXACT.quantize(value, _NANO) if value < _LARGEST else value, _LARGEST)
    return _Parsed(-value if sign == "-" else value, suffix)


def _factor(suffix: str) -> Decimal:
    if suffix in _BINARY:
        return Decimal(_BINARY[suffix])
    if suffix in _DECIMAL:
        return _DECIMAL[suffix]
    return Decimal(10) ** int(suffix[1:])


def is_quantity(text: str | float) -> bool:
    """Return whether ``text`` is a quantity."""
    try:
        parse(text)
    except ValueError:
        return False
    return True


def _rounded(value: Decimal) -> int:
    return int(value.to_integral_value(rounding=ROUND_UP, context=_EXACT))


def to_milli(text: str | float) -> int:
    """Return thousandths (milli-CPU), rounded up. Raises ValueError as ``parse``."""
    return _rounded(_EXACT.multiply(parse(text), Decimal(1000)))


def to_bytes(text: str | float) -> int:
    """Return whole units (bytes, pods), rounded up. Raises ValueError as ``parse``."""
    return _rounded(parse(text))


def canonical(text: str | float) -> str:
    """Return the canonical form: ``0.1`` gives ``100m``, ``1024Mi`` gives ``1Gi``. Raises ValueError as ``parse``."""
    value, suffix = _parse(str(text))
    if suffix in _BINARY and (value == 0 or abs(value) >= 1024) and value == value.to_integral_value():  # noqa: PLR2004 - 1 Ki
        return _binary(int(value))
    if suffix[:1] in {"e", "E"} and len(suffix) > 1:
        return _exponent(value)
    return _decimal(value)


def _binary(value: int) -> str:
    for suffix, factor in reversed(_BINARY.items()):
        if value and value % factor == 0:
            return f"{value // factor}{suffix}"
    return str(value)


def _decimal(value: Decimal) -> str:
    for suffix, factor in reversed(_DECIMAL.items()):
        scaled = _EXACT.divide(value, factor)
        if scaled == scaled.to_integral_value(context=_EXACT) and (scaled or not suffix):
            return f"{int(scaled)}{suffix}"
    return str(_rounded(value))


def _exponent(value: Decimal) -> str:
    text = _decimal(value)
    powers = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
    return f"{text[:-1]}e{powers[text[-1]]}" if text[-1] in powers else text


@lru_cache(maxsize=4096)  # objects repeat few quantities, each many times
def canonical_milli(text: str | float) -> str:
    """Return the canonical form, rounded up to thousandths as resource lists are. Raises ValueError as ``parse``."""
    milli = _EXACT.multiply(parse(text), Decimal(1000))
    return canonical(text) if milli == milli.to_integral_value() else format_milli(_rounded(milli))


def format_milli(milli: int) -> str:
    """Return the canonical form of so many thousandths: 1500 gives ``1500m``, 2000 gives ``2``."""
    return _decimal(Decimal(milli) / 1000)


def format_bytes(count: int) -> str:
    """Return the canonical binary form of so many bytes: 1073741824 gives ``1Gi``."""
    return _binary(count)
