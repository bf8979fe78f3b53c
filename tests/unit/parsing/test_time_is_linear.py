"""A fuzz target for each parser of what clients write: odd input is refused, and time grows as length does.

``MINIK8S_FUZZ_TEXTS`` is the number of odd inputs for each parser (100 in ``make test``).
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

import jwt
import pytest

from minik8s_modules.api import cron, quantities
from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.field_selectors import parse_field_selector
from minik8s_modules.api.kinds import CONFIG_MAP, POD
from minik8s_modules.api.merging import fieldsets, managed_fields, patch, server_side_apply, strategic_merge
from minik8s_modules.api.merging.server_side_apply import Applier
from minik8s_modules.api.schema import structural
from minik8s_modules.api.selectors import parse_label_selector
from minik8s_modules.apiserver.http import bodies
from minik8s_modules.apiserver.protobuf import decode as protobuf
from tests.support.load.cpu import fast_seconds

COUNT = int(os.environ.get("MINIK8S_FUZZ_TEXTS", "100"))
SHARE_S = 0.5
NOW = datetime(2026, 1, 1, tzinfo=UTC)
REFUSALS = (StatusError, ValueError, jwt.InvalidTokenError)


class Target(NamedTuple):
    """A parser, what makes input of a length for it, and its longest input."""

    parse: Callable[[Any], object]
    make: Callable[[int], Any]
    longest: int


def _duplicates(body: bytes) -> object:
    return bodies.duplicate_fields(body, bodies.JSON, bodies.parse(body, bodies.JSON))


def _json_of(value: Callable[[int], Any]) -> Callable[[int], bytes]:
    return lambda n: json.dumps(value(n)).encode()


def _pod(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x", **spec}]}}


def _variables(n: int) -> dict[str, Any]:
    return _pod(env=[{"name": f"v{i}"} for i in range(n)])


def _strategic(wanted: dict[str, Any]) -> object:
    return strategic_merge.strategic_merge(POD, _variables(2_000), wanted)


def _apply(config: dict[str, Any]) -> object:
    return server_side_apply.apply(POD, _variables(2_000), {**config, "apiVersion": "v1"}, Applier("m"), NOW)


def _managed(n: int) -> list[Any]:
    entry = {"operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}
    return [{**entry, "manager": f"m{i}", "fieldsV1": {f"f:{i}": {}}} for i in range(n)]


def _recorded(entries: list[Any]) -> object:
    new = {"metadata": {"name": "a", "managedFields": entries}}
    managed_fields.record_update(CONFIG_MAP, CONFIG_MAP, new, None, managed_fields.Writer("me"), NOW)
    return new


def _message(n: int) -> bytes:
    config_map = b"\x0a\x02v1\x12\x09ConfigMap"
    data = b"\x12\x06\x0a\x01a\x12\x01b" * n
    return b"k8s\x00" + b"\x0a%c" % len(config_map) + config_map + b"\x12" + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    found = b""
    while value > 127:
        found += bytes([value & 127 | 128])
        value >>= 7
    return found + bytes([value])


def _operations(n: int) -> list[Any]:
    first = {"op": "add", "path": "/x", "value": ["a"] * n}
    return [
        first,
        *({"op": "add", "path": "/x/0", "value": "a"} for _ in range(n)),
        {"op": "copy", "from": "/x", "path": "/y"},
    ]


YAML = bodies.parse_yaml
TARGETS = {
    "JSON, fields given twice": Target(_duplicates, lambda n: b'{"a":[' + b'{"a":1,"a":1},' * n + b"0]}", 9_000),
    "JSON, names given twice": Target(
        _duplicates, lambda n: ("{" + ",".join(f'"k{i}":1,"k{i}":1' for i in range(n)) + "}").encode(), 19_000
    ),
    "JSON, long integers": Target(_duplicates, lambda n: b"[" + b"9" * 300 + b"," + b"1," * n + b"1]", 19_000),
    "YAML, base 60": Target(YAML, lambda n: b"x: " + b"1:" * n + b"1", 130_000),
    "YAML, a number": Target(YAML, lambda n: b"x: " + b"9" * n, 260_000),
    "YAML, underscores": Target(YAML, lambda n: b"x: 1" + b"_" * n, 260_000),
    "YAML, a fraction": Target(YAML, lambda n: b"x: 1." + b"1" * n + b"x", 260_000),
    "YAML, items": Target(YAML, lambda n: b"x: [" + b"a," * n + b"a]", 19_000),
    "YAML, keys": Target(YAML, lambda n: b"".join(b"k%d: 1\n" % i for i in range(n)), 19_000),
    "YAML, lines of a text": Target(YAML, lambda n: b"x: a\n" + b" a\n" * n, 80_000),
    "YAML, deep commas": Target(YAML, lambda n: b"[" * 120 + b"a," * n + b"a" + b"]" * 120, 19_000),
    "YAML, directives": Target(
        YAML, lambda n: b"".join(b"%%TAG !%x! t:\n" % i for i in range(n)) + b"---\na: b\n", 16_000
    ),
    "protobuf, entries": Target(protobuf.decode, _message, 19_000),
    "protobuf, unknown fields": Target(protobuf.decode, lambda n: _message(1) + b"\x78\x00" * n, 700_000),
    "unknown fields": Target(
        lambda obj: structural.unknown_fields(CONFIG_MAP, obj), lambda n: {f"x{i}": 1 for i in range(n)}, 19_000
    ),
    "strategic merge": Target(_strategic, _variables, 9_000),
    "strategic order": Target(
        _strategic, lambda n: _pod(**{"$setElementOrder/env": [{"name": f"v{n - i}"} for i in range(n)]}), 9_000
    ),
    "JSON patch": Target(lambda ops: patch.json_patch({}, ops), _operations, 4_000),
    "apply": Target(_apply, _variables, 9_000),
    "managers": Target(_recorded, _managed, 2_500),
    "a set of fields": Target(
        lambda fields: fieldsets.union_of([fields] * 50), lambda n: {f"f:{i}": {} for i in range(n)}, 2_000
    ),
    "a quantity": Target(quantities.parse, lambda n: "1" * n + "Ki", 3_000_000),
    "a schedule": Target(cron.parse, lambda n: "1," * n + "1 * * * *", 100_000),
    "a label selector": Target(parse_label_selector, lambda n: ",".join(f"k{i} in (a)" for i in range(n)), 700),
    "an unclosed label selector": Target(parse_label_selector, lambda n: "a in (" + "a," * n, 4_000),
    "a field selector": Target(
        lambda text: parse_field_selector(POD, text), lambda n: ",".join(["metadata.name!=a"] * n), 450
    ),
    "an escaped field selector": Target(
        lambda text: parse_field_selector(POD, text), lambda n: "metadata.name!=" + "\\\\" * n, 4_000
    ),
    "a token": Target(jwt.get_unverified_header, lambda n: "W1tb" * n + "..", 2_000),
}


def _spender(target: Target, length: int) -> Callable[[], float]:
    made = target.make(length)

    def spend() -> float:
        began = time.process_time()
        with contextlib.suppress(*REFUSALS):
            target.parse(made)
        return time.process_time() - began

    return spend


@pytest.mark.parametrize("name", TARGETS)
def test_the_longest_input_costs_its_share_at_most(name: str):
    target = TARGETS[name]
    assert fast_seconds(_spender(target, target.longest), enough=SHARE_S) <= SHARE_S


@pytest.mark.parametrize("name", TARGETS)
def test_time_grows_with_the_length(name: str):
    target = TARGETS[name]
    whole, quarter = _spender(target, target.longest), _spender(target, target.longest // 4)
    most = part = float("inf")
    for count in range(12):  # the least of several: what a neighbour takes comes and goes, a square stays
        most, part = min(most, whole()), min(part, quarter())
        if count >= 3 and most <= max(11 * part, 0.01):  # seconds; of what takes less, the clock is too coarse
            break
    assert most <= max(11 * part, 0.01)  # a square takes 16 times as long for what is four times as long


@pytest.mark.parametrize("name", TARGETS)
def test_odd_input_is_refused_and_never_a_defect(name: str):
    target, dice = TARGETS[name], random.Random(name)
    for _ in range(COUNT):
        made = target.make(dice.randrange(1, 12))
        try:
            target.parse(_odd(made, dice))
        except REFUSALS:
            continue


def _odd(made: Any, dice: random.Random) -> Any:
    if isinstance(made, bytes):
        return _spoiled(made, bytes([dice.randrange(256)]), dice)
    if isinstance(made, str):
        return _spoiled(
            made, dice.choice(["\0", "\\", "\n", "²", "=", "!", "(", ",", "-", "9", " ", "\u2028", ""]), dice
        )
    try:  # the server's functions get what its own reader let in, of right types
        return json.loads(_spoiled(json.dumps(made), dice.choice(["0", "a", "-", "~", " "]), dice))
    except ValueError:
        return made


def _spoiled(made: Any, part: Any, dice: random.Random) -> Any:
    for _ in range(dice.randrange(1, 4)):
        at = dice.randrange(len(made) + 1)
        made = made[:at] + part + made[at + dice.randrange(3) :]
    return made
