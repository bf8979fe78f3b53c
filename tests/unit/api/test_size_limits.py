"""What fits for certain is never refused by the walk over it, and what the walk refuses never fits."""

from __future__ import annotations

import random
from typing import Any

import orjson
import pytest

from minik8s_modules.api import size_limits
from minik8s_modules.api.errors import StatusError


def made(chance: random.Random, depth: int) -> Any:
    """Return a value of small parts, dense in values for its length."""
    if depth == 0 or chance.random() < 0.3:
        return chance.choice([0, 1, "", "[{", [], {}, None])
    if chance.random() < 0.5:
        return [made(chance, depth - 1) for _ in range(chance.randrange(6))]
    return {str(number): made(chance, depth - 1) for number in range(chance.randrange(6))}


@pytest.mark.parametrize("seed", range(40))
def test_what_fits_is_within_the_limit(seed: int):
    value = made(random.Random(seed), 7)
    data, values = orjson.dumps(value), size_limits.size(value)
    for allowed in (values - 1, values, values + 1, 2 * values, 10 * values):
        if size_limits.fits(data, allowed):
            size_limits.check(value, allowed)
    assert not size_limits.fits(data, values - 1)
    assert not size_limits.fits(b"[" * (size_limits.MAX_DEPTH + 1) + b"]" * (size_limits.MAX_DEPTH + 1))


@pytest.mark.parametrize("dense", [b"[" + b",".join([b"1"] * 50) + b"]", b"[" + b"[]," * 49 + b"[]]"])
def test_the_densest_values_are_counted(dense: bytes):
    value = orjson.loads(dense)
    with pytest.raises(StatusError):
        size_limits.check(value, 50)
    assert not size_limits.fits(dense, 50)
    assert size_limits.fits(dense, 200)


def test_an_ordinary_object_fits():
    assert size_limits.fits(orjson.dumps({"metadata": {"name": "a"}, "data": {"k": "x" * 1000}}))
