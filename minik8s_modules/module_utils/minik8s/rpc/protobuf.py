"""Protocol Buffers' wire format (proto3), as much as a few small messages need: tables instead of generated code.

A message is a table of its fields; a value is a dict of those that are set. What a table does not name is passed over,
as by every reader of Protocol Buffers. Source: protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Union

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MASK = (1 << 64) - 1
_SIGN = 1 << 63
_LONGEST_BITS = 70  # of a number of 64 bits: ten bytes of seven


class Malformed(ValueError):
    """The bytes are no message."""


class Field(NamedTuple):
    """A field: its number, what it is (``str``, ``bool``, ``int``, ``map`` of strings, or a message's table)."""

    number: int
    kind: Union[str, Mapping[str, Field]]  # noqa: UP007  (read by the Python of nodes)
    many: bool = False


Message = Mapping[str, Field]
_ENTRY: Message = {"key": Field(1, "str"), "value": Field(2, "str")}


def encode(message: Message, value: Mapping[str, Any]) -> bytes:
    """Return the bytes of a value; empty fields are left out, as proto3 has it, but for messages that are given.

    Raises:
        KeyError: the message has no such field.
    """
    return b"".join(
        _field(message[name], each) for name, given in value.items() for each in _each(message[name], given)
    )


def _each(field: Field, given: Any) -> Iterator[Any]:
    if given is None:
        return
    if field.kind == "map":
        yield from ({"key": key, "value": text} for key, text in sorted(given.items()))
    elif field.many:
        yield from given
    elif given or isinstance(given, Mapping):
        yield given


def _field(field: Field, value: Any) -> bytes:
    if field.kind in {"bool", "int"} if isinstance(field.kind, str) else False:
        return _number(field.number << 3 | _VARINT) + _number(int(value) & _MASK)
    table = _ENTRY if field.kind == "map" else field.kind
    data = str(value).encode() if isinstance(table, str) else encode(table, value)
    return _number(field.number << 3 | _BYTES) + _number(len(data)) + data


def _number(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:  # noqa: PLR2004  (seven bits a byte)
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def decode(message: Message, data: bytes) -> dict[str, Any]:
    """Return the fields of ``message`` that stand in ``data``, all others as proto3 has them when absent.

    Raises:
        Malformed: the bytes are no message, or a field is of another type.
    """
    names = {field.number: name for name, field in message.items()}
    found: dict[str, Any] = {name: _absent(field) for name, field in message.items()}
    for number, raw in fields_of(data):
        if number not in names:
            continue
        name = names[number]
        field = message[name]
        if field.kind == "map":
            entry = decode(_ENTRY, _bytes(raw))
            found[name][entry["key"]] = entry["value"]
        elif field.many:
            found[name].append(_value(field, raw))
        else:
            found[name] = _value(field, raw)
    return found


def _absent(field: Field) -> Any:
    if field.kind == "map":
        return {}
    if field.many:
        return []
    return {"str": "", "bool": False, "int": 0}[field.kind] if isinstance(field.kind, str) else None


def _value(field: Field, raw: int | bytes) -> Any:
    if not isinstance(field.kind, str):
        return decode(field.kind, _bytes(raw))
    if field.kind == "str":
        return _bytes(raw).decode("utf-8", "replace")
    if not isinstance(raw, int):
        raise Malformed("a number was expected")
    if field.kind == "bool":
        return bool(raw)
    return raw - (1 << 64) if raw & _SIGN else raw


def _bytes(raw: int | bytes) -> bytes:
    if isinstance(raw, int):
        raise Malformed("a string or message was expected")
    return raw


def fields_of(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (field number, value) of a message: an int, or the bytes of what is not one.

    Raises:
        Malformed: the bytes are no message.
    """
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if kind == _BYTES:
            size, at = _varint(data, at)
        elif kind in {_FIXED64, _FIXED32}:
            size = 8 if kind == _FIXED64 else 4
        else:
            raise Malformed(f"a field of the unknown type {kind} before byte {at}")
        if at + size > len(data):
            raise Malformed(f"field {number} ends after the message")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    # no check of the length for each byte: API servers read whole objects with this, 0.3 us a byte at the most
    try:
        while shift < _LONGEST_BITS:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:  # noqa: PLR2004  (the continuation bit)
                return value & _MASK, at
            shift += 7
    except IndexError:
        raise Malformed("a number is cut off") from None
    raise Malformed(f"the number that ends at byte {at} is too long")
