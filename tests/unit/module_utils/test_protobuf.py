"""Messages of Protocol Buffers, against Google's own library where that has the type."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import duration_pb2, struct_pb2

from minik8s_modules.module_utils.minik8s.rpc.protobuf import Field, Malformed, decode, encode

INNER = {"text": Field(1, "str"), "count": Field(2, "int")}
MESSAGE = {
    "name": Field(1, "str"),
    "inner": Field(2, INNER),
    "rows": Field(3, INNER, many=True),
    "words": Field(4, "str", many=True),
    "pairs": Field(5, "map"),
    "yes": Field(6, "bool"),
    "number": Field(16, "int"),
}
NOTHING: dict[str, Any] = {"name": "", "inner": None, "rows": [], "words": [], "pairs": {}, "yes": False, "number": 0}


@pytest.mark.parametrize(
    "value",
    [
        {"name": "ä" * 200, "number": -1, "yes": True},
        {"inner": {"text": "", "count": 0}, "rows": [{"text": "a", "count": 1 << 62}, {"text": "b", "count": 0}]},
        {"words": ["x", ""], "pairs": {"a": "1", "b": "", "": "2"}, "number": 1 << 40},
        {},
    ],
)
def test_what_is_written_is_read(value):
    assert decode(MESSAGE, encode(MESSAGE, value)) == {**NOTHING, **value}


def test_it_is_as_googles():
    table = {"seconds": Field(1, "int"), "nanos": Field(2, "int")}
    for seconds, nanos in ((0, 0), (5, 7), (-3, -1), (1 << 40, 300)):
        theirs = duration_pb2.Duration(seconds=seconds, nanos=nanos).SerializeToString()
        ours = {"seconds": seconds, "nanos": nanos}
        assert encode(table, ours) == theirs
        assert decode(table, theirs) == ours
    values = struct_pb2.ListValue(values=[struct_pb2.Value(string_value="a"), struct_pb2.Value(bool_value=True)])
    listed = {"values": Field(1, {"string_value": Field(3, "str"), "bool_value": Field(4, "bool")}, many=True)}
    rows = [{"string_value": "a", "bool_value": False}, {"string_value": "", "bool_value": True}]
    assert decode(listed, values.SerializeToString()) == {"values": rows}


def test_what_is_not_named_is_passed_over():
    number = struct_pb2.Value(number_value=2.5).SerializeToString()  # eight bytes
    assert decode({"string_value": Field(3, "str")}, number) == {"string_value": ""}
    assert decode({"other": Field(9, "str")}, encode(MESSAGE, {"name": "x", "number": 3})) == {"other": ""}


@pytest.mark.parametrize("data", [b"\x0a\x05ab", b"\x0a", b"\x80" * 11, b"\x08", b"\x0b", b"\x08\x01", b"\x32\x00"])
def test_what_is_no_message_is_refused(data):
    with pytest.raises(Malformed):
        decode(MESSAGE, data)
