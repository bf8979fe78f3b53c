"""Ranges of costs and sizes: unsigned numbers of 64 bits that stop at the largest one (cel-go, checker/cost.go)."""

from __future__ import annotations

import math
from typing import NamedTuple

MOST = 2**64 - 1


class Range(NamedTuple):
    """From the least to the most."""

    least: int
    most: int

    def plus(self, other: Range) -> Range:
        """Both together."""
        return Range(min(self.least + other.least, MOST), min(self.most + other.most, MOST))

    def times(self, other: Range) -> Range:
        """One for each of the other."""
        return Range(min(self.least * other.least, MOST), min(self.most * other.most, MOST))

    def scaled(self, factor: float) -> Range:
        """A fraction of it, rounded up."""
        return Range(_scaled(self.least, factor), _scaled(self.most, factor))

    def either(self, other: Range) -> Range:
        """One of the two."""
        return Range(min(self.least, other.least), max(self.most, other.most))


def exactly(value: int) -> Range:
    """A range of one number."""
    return Range(value, value)


ZERO, ONE = exactly(0), exactly(1)
ANY = Range(0, MOST)


def total(ranges: list[Range]) -> Range:
    """All together."""
    result = ZERO
    for each in ranges:
        result = result.plus(each)
    return result


def _scaled(value: int, factor: float) -> int:
    product = math.ceil(float(value) * factor) if value else 0
    return MOST if product >= 2**64 else product
