"""Names that stand twice in a body are found, whatever else it holds."""

from __future__ import annotations

import json
import random

import pytest

from minik8s_modules.api import size_limits
from minik8s_modules.apiserver.http import bodies


@pytest.mark.parametrize(
    ("body", "twice"),
    [
        ('{"a": 1, "b": 2}', []),
        ('{"a": 1, "a": 2}', ["a"]),
        ('{"a" :1, "a"\n\t:2}', ["a"]),
        (r'{"a": 1, "\u0061": 2}', ["a"]),
        (r'{"a": "\":", "b": "\" :"}', []),
        (r'{"a": "\":", "a": "\" :"}', ["a"]),
        (r'{"a\":": 1, "a\":": 2}', ['a":']),
        (r'{"a": 1, "a": 2, "b\\": 3}', ["a"]),
        ('{"l": [{"x": 1}, {"x": 2}, {"y": {"z": 1, "z": 1}}]}', ["z"]),
        ('{"l": [[{"x": 1, "x": 2}]], "m": {}}', ["x"]),
        ('{"": 1, "": 2}', [""]),
    ],
)
def test_a_name_that_stands_twice_is_found(body, twice):
    encoded = body.encode()
    found = bodies.duplicate_fields(encoded, bodies.JSON, bodies.parse(encoded, bodies.JSON))
    assert found == [f'duplicate field "{name}"' for name in twice]


def test_as_in_a_reader_of_pairs_for_any_body():
    chance = random.Random(18)
    letters = ['"', ":", "\\", "a", "b", " ", "é", "\n"]

    def text() -> str:
        return json.dumps("".join(chance.choices(letters, k=chance.randrange(4))), ensure_ascii=chance.random() < 0.5)

    def value(depth: int) -> str:
        kind = chance.randrange(3) if depth else 2
        if kind == 0:
            pairs = (f"{text()}{chance.choice(['', ' '])}:{value(depth - 1)}" for _ in range(chance.randrange(4)))
            return "{" + ",".join(pairs) + "}"
        if kind == 1:
            return "[" + ",".join(value(depth - 1) for _ in range(chance.randrange(4))) + "]"
        return text()

    for _ in range(3_000):
        body = value(4).encode()
        repeated = []

        def note(pairs: list[tuple[str, object]]) -> dict[str, object]:
            repeated.append(len(pairs) != len(dict(pairs)))  # noqa: B023 - called at once
            return dict(pairs)

        parsed = json.loads(body, object_pairs_hook=note)
        assert bool(bodies.duplicate_fields(body, bodies.JSON, parsed)) == any(repeated)


@pytest.mark.parametrize(
    ("value", "names"), [(1, 0), ({}, 0), ({"a": 1}, 1), ([{"a": [{"b": {}}]}, [{"c": 1, "d": {"e": 2}}]], 5)]
)
def test_names_are_counted_at_every_level(value, names):
    assert size_limits.names(value) == names
