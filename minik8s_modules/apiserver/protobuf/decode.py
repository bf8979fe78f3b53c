"""Protobuf request bodies to JSON objects, by the table ``types.json`` (made by generate.py).

A body is ``k8s``, a zero byte and a runtime.Unknown: apiVersion, kind and the object's own bytes. ``fields_of`` reads
the wire format, which volume drivers speak, too; the meaning of a field is the table's. A plain field that is zero is
left out, as Go's ``omitempty`` would; a pointer is kept whatever it points to.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from minik8s_modules.api import size_limits
from minik8s_modules.api.errors import BadRequest, RequestEntityTooLarge
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import rfc3339, rfc3339_micro
from minik8s_modules.module_utils.minik8s.rpc.protobuf import fields_of

MEDIA = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_NEVER_S = -62135596800  # Go's time.Time{}, the first second of the year 1: no time at all
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Protobuf is shorter than the JSON it becomes, of which the store takes 1.5 MiB; reading costs up to 0.3 µs a byte.
MAX_PROTOBUF_BYTES = 1536 * 1024
_GROUPS = {
    "": "core",
    **{f"{group}.k8s.io": group for group in (
        "admissionregistration", "authentication", "authorization", "certificates", "coordination", "discovery",
        "events", "networking", "node", "scheduling", "storage",
    )},
    "rbac.authorization.k8s.io": "rbac",
}  # fmt: skip

Wire = int | bytes


class Field(NamedTuple):
    """One row of the table; see generate.py."""

    json_name: str
    kind: str
    shape: str


@cache
def _table() -> Mapping[str, Mapping[int, Field]]:
    rows = orjson.loads(Path(__file__).with_name("types.json").read_bytes())
    return {name: {int(number): Field(*row) for number, row in fields.items()} for name, fields in rows.items()}


def decode(body: bytes) -> JsonObject:
    """Return the object a protobuf body holds.

    Raises:
        RequestEntityTooLarge: it is longer than MAX_PROTOBUF_BYTES.
        StatusError: 413: it has more than MAX_VALUES values.
        BadRequest: it is none, or of a kind whose protobuf form is not known.
    """
    if len(body) > MAX_PROTOBUF_BYTES:
        raise RequestEntityTooLarge(MAX_PROTOBUF_BYTES)
    if not body.startswith(_MAGIC):
        raise BadRequest("the request's body does not start with Kubernetes' protobuf prefix")
    try:
        return _envelope(body[len(_MAGIC) :])
    except (ValueError, IndexError, struct.error, OverflowError, TypeError) as error:
        raise BadRequest(f"the request's body is not valid protobuf: {error}") from error


def _envelope(data: bytes) -> JsonObject:
    fields = dict(fields_of(data))
    meta = dict(fields_of(_as_bytes(fields.get(1, b""))))
    version, kind = (_as_bytes(meta.get(number, b"")).decode() for number in (1, 2))
    group, _, number = version.rpartition("/")
    name = f"{_GROUPS.get(group, group)}/{number}.{kind}"
    if kind == "DeleteOptions":
        name = "meta/v1.DeleteOptions"
    if name not in _table():
        raise BadRequest(f'protobuf is not supported for kind "{kind}" of "{version}"; send JSON')
    return {"apiVersion": version, "kind": kind, **_message(name, _as_bytes(fields.get(2, b"")), _Place(0, count()))}


class _Place(NamedTuple):
    """How deep the reader is; ``values`` counts what it has read so far, everywhere."""

    depth: int
    values: Iterator[int]


def _message(name: str, data: bytes, place: _Place) -> JsonObject:
    if place.depth > size_limits.MAX_DEPTH:
        raise size_limits.too_deep(f"more than {size_limits.MAX_DEPTH}")
    table, inner = _table()[name], place._replace(depth=place.depth + 1)
    found: JsonObject = {}
    for number, wire in fields_of(data):
        field = table.get(number)
        if field is not None:
            if next(place.values) >= size_limits.MAX_VALUES:
                raise size_limits.too_many_values()
            _put(found, field, wire, inner)
    return found


def _put(found: JsonObject, field: Field, wire: Wire, place: _Place) -> None:
    if field.shape == "m":
        entry = dict(fields_of(_as_bytes(wire)))
        key = _as_bytes(entry.get(1, b"")).decode()
        found.setdefault(field.json_name, {})[key] = _value(field.kind, entry.get(2, _zero(field.kind)), place)
        return
    value = _value(field.kind, wire, place)
    if not field.json_name:
        found.update(value)
    elif field.shape == "r":
        found.setdefault(field.json_name, []).append(value)
    elif field.shape == "p" or value not in (None, "", 0, {}, []):
        found[field.json_name] = value


def _zero(kind: str) -> Wire:
    return 0 if kind in {"int", "bool"} else b""


def _value(kind: str, wire: Wire, place: _Place) -> Any:
    special = _SPECIAL.get(kind)
    return special(wire) if special else _message(kind, _as_bytes(wire), place)


def _as_bytes(wire: Wire) -> bytes:
    if isinstance(wire, int):
        raise TypeError("found a number where a string or message is expected")
    return wire


def _integer(wire: Wire) -> int:
    if not isinstance(wire, int):
        raise TypeError("found a string where a number is expected")
    return wire - (1 << 64) if wire >= 1 << 63 else wire


def _double(wire: Wire) -> float:
    (value,) = struct.unpack("<d", _as_bytes(wire))
    return float(value)


def _part(wire: Wire, number: int) -> Wire | None:
    return dict(fields_of(_as_bytes(wire))).get(number)


def _text_part(wire: Wire, number: int) -> str:
    return _as_bytes(_part(wire, number) or b"").decode()


def _moment(wire: Wire) -> datetime | None:
    parts = dict(fields_of(_as_bytes(wire)))
    if 1 not in parts or _integer(parts[1]) == _NEVER_S:
        return None
    return _EPOCH + timedelta(seconds=_integer(parts[1]), microseconds=_integer(parts.get(2, 0)) // 1000)


def _time(wire: Wire) -> str | None:
    moment = _moment(wire)
    return rfc3339(moment) if moment else None


def _micro_time(wire: Wire) -> str | None:
    moment = _moment(wire)
    return rfc3339_micro(moment) if moment else None


def _int_or_string(wire: Wire) -> int | str:
    if _integer(_part(wire, 1) or 0):
        return _text_part(wire, 3)
    return _integer(_part(wire, 2) or 0)


def _raw_json(wire: Wire) -> Any:
    raw = _as_bytes(_part(wire, 1) or b"")
    return orjson.loads(raw) if raw else None


def _strings(wire: Wire) -> list[str]:
    return [_as_bytes(value).decode() for number, value in fields_of(_as_bytes(wire)) if number == 1]


_SPECIAL: Mapping[str, Callable[[Wire], Any]] = {
    "string": lambda wire: _as_bytes(wire).decode(),
    "bytes": lambda wire: base64.b64encode(_as_bytes(wire)).decode(),
    "int": _integer,
    "bool": lambda wire: bool(_integer(wire)),
    "double": _double,
    "time": _time,
    "microtime": _micro_time,
    "duration": lambda wire: f"{_integer(_part(wire, 1) or 0) / 1e9:g}s",
    "quantity": lambda wire: _text_part(wire, 1),
    "intstr": _int_or_string,
    "json": _raw_json,
    "strings": _strings,
}
