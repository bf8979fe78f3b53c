"""Elements of nf_tables' maps and sets, read and written without the nft program (linux/netfilter/nf_tables.h).

A map's content is ``{key: value}`` in the kernel's bytes: the key as in NFTA_DATA_VALUE, the value as the payload of
NFTA_SET_ELEM_DATA, which is b"" in a set. What is written and what is listed have the same bytes, so that sets of them
can be compared without being understood. ``commit`` sends one batch: all of it happens or nothing.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import os
import socket
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .wire import (
    ACK,
    CREATE,
    ERROR,
    NESTED,
    Message,
    Wire,
    attribute,
    attributes,
    error_of,
    message,
    nested,
    next_sequence,
    text,
)

SUBSYSTEM = 10 << 8
BATCH_BEGIN, BATCH_END = 16, 17
GET_TABLE, DELETE_TABLE, NEW_CHAIN, GET_CHAIN, DELETE_CHAIN = (SUBSYSTEM | kind for kind in (1, 2, 3, 4, 5))
NEW_RULE, GET_RULE, DELETE_RULE = (SUBSYSTEM | kind for kind in (6, 7, 8))
APPEND = 0x800
GET_SET, SET_FLAGS, SET_KEY, SET_DATA, SET_ANONYMOUS = SUBSYSTEM | 10, 3, 4, 6, 1
NEW_ELEMENT, GET_ELEMENT, DELETE_ELEMENT = (SUBSYSTEM | kind for kind in (12, 13, 14))
LIST_TABLE, LIST_SET, LIST_ELEMENTS, LIST_ELEMENT = 1, 2, 3, 1
ELEMENT_KEY, ELEMENT_DATA, ELEMENT_TIMEOUT, ELEMENT_EXPIRES = 1, 2, 4, 5
VALUE, VERDICT, VERDICT_CODE, VERDICT_CHAIN = 1, 2, 1, 2
GOTO = -4
RULE_TABLE, RULE_CHAIN, RULE_HANDLE, RULE_EXPRESSIONS = 1, 2, 3, 4
_FAMILIES = {"": socket.AF_INET, "ip": socket.AF_INET, "ip6": socket.AF_INET6, "bridge": 7}  # linux/netfilter.h
LONGEST_LIST = 60_000  # an attribute's length has 16 bits
ASKED_AT_ONCE = 256
Elements = dict[bytes, bytes]


class SetKind(NamedTuple):
    """What a set holds, as numbers of nft's types; ``data`` 0 is a set, else a map."""

    key: int
    data: int


class Change(NamedTuple):
    """What a transaction does to one map."""

    map: str
    delete: list[bytes]
    add: Elements


def value_of(data: bytes) -> bytes:
    """Return the value of a map of data (address, port)."""
    return _place_head(len(data)) + data


@functools.lru_cache(maxsize=8)
def _place_head(size: int) -> bytes:
    return struct.pack("=HH", 4 + size, VALUE)


@functools.lru_cache(maxsize=4096)
def verdict_of(chain: str, code: int = GOTO) -> bytes:
    """Return the value of a verdict map: go to ``chain``."""
    return attribute(VERDICT, attribute(VERDICT_CODE, struct.pack(">i", code)) + text(VERDICT_CHAIN, chain))


@functools.lru_cache(maxsize=4096)
def chain_of(value: bytes) -> str:
    """Return the chain a verdict goes to."""
    inner = dict(attributes(next(attributes(value))[1]))
    return inner[VERDICT_CHAIN].rstrip(b"\0").decode()


def data_of(value: bytes) -> bytes:
    """Return the data of a value that is no verdict."""
    return next(attributes(value))[1]


@functools.lru_cache(maxsize=256)
def _frame(key_size: int, data_size: int) -> tuple[bytes, bytes]:
    """Return what stands before the key of an element, and between key and value (sizes are multiples of 4)."""
    pack = struct.Struct("=HH").pack
    size = 12 + key_size + (4 + data_size if data_size else 0)
    before = pack(size, LIST_ELEMENT) + pack(8 + key_size, ELEMENT_KEY) + pack(4 + key_size, VALUE)
    return before, pack(4 + data_size, ELEMENT_DATA) if data_size else b""


def _element(key: bytes, value: bytes | None) -> bytes:
    before, between = _frame(len(key), len(value or b""))
    return before + key + between + (value or b"")


def named(table: str) -> bytes:
    """Return what messages about a table or a part of it begin with; ``ip6 NAME`` names a family, as nft writes it."""
    family, _, name = table.rpartition(" ")
    return struct.pack("=BBH", _FAMILIES[family], 0, 0) + text(LIST_TABLE, name)


def _place(table: str, name: str) -> bytes:
    return named(table) + text(LIST_SET, name)


def _lists(elements: Iterable[bytes]) -> Iterable[bytes]:
    """Yield element lists as long as an attribute can be."""
    part, size = list[bytes](), 0
    for each in elements:
        if size + len(each) > LONGEST_LIST:
            yield b"".join(part)
            part, size = [], 0
        part.append(each)
        size += len(each)
    if part:
        yield b"".join(part)


def element_messages(table: str, changes: Iterable[Change]) -> list[bytes]:
    """Return the messages of changes; the deletions of a map come before its additions."""
    asked = list[bytes]()
    for change in changes:
        place = _place(table, change.map)
        gone = _lists(_element(key, None) for key in change.delete)
        new = _lists(_element(key, value) for key, value in change.add.items())
        asked += [message(DELETE_ELEMENT, 0, place + attribute(LIST_ELEMENTS | NESTED, each)) for each in gone]
        asked += [message(NEW_ELEMENT, CREATE, place + attribute(LIST_ELEMENTS | NESTED, each)) for each in new]
    return asked


def commit(wire: Wire, asked: list[bytes]) -> None:
    """Send messages as one batch and wait for the verdict.

    Raises:
        OSError: refused; nothing of it happened.
    """
    if not asked:
        return
    batch = struct.pack(">BBH", 0, 0, SUBSYSTEM >> 8)
    first, last = next_sequence(), next_sequence()
    head, body = asked[-1][:6], asked[-1][16:]
    flags = struct.unpack("=H", asked[-1][6:8])[0] | ACK
    ending = head + struct.pack("=HII", flags, last, 0) + body
    begin = message(BATCH_BEGIN, 0, batch, first)
    wire.send(b"".join([begin, *asked[:-1], ending, message(BATCH_END, 0, batch)]))
    failed, done = 0, False
    while not done:
        for each in wire.receive():
            if each.type == ERROR:
                failed = failed or error_of(each)
                done = done or each.sequence in (first, last)
    if failed:
        raise OSError(failed, f"transaction of {len(asked)} messages: {os.strerror(failed)}")


def listed(wire: Wire, table: str, name: str) -> Elements:
    """Return all elements of a map; none when there is no such map."""
    found: Elements = {}
    try:
        answers = wire.dump(GET_ELEMENT, _place(table, name))
    except OSError as error:
        if error.errno == errno.ENOENT:
            return {}
        raise
    for answer in answers:
        _collect(answer, found)
    return found


def _collect(answer: Message, found: Elements) -> None:
    for kind, payload in attributes(answer.body[4:]):
        if kind == LIST_ELEMENTS and payload:
            _read_elements(payload, found)


def _read_elements(payload: bytes, found: Elements) -> None:
    """Read a list of elements; those of one size (nearly always all) are cut by struct in one go."""
    size, kind, key_size = struct.unpack_from("=HH4xH", payload)
    data_size = size - 8 - key_size
    if data_size > ELEMENT_DATA and len(payload) % size == 0:
        shape = struct.Struct(f"=HH4xH2x{key_size - 4}sHH{data_size - 4}s")
        rows = list(shape.iter_unpack(payload))
        if {(*row[:3], *row[4:6]) for row in rows} == {(size, kind, key_size, data_size, rows[0][5])}:
            found.update((row[3], row[6]) for row in rows)
            return
    for _, element in attributes(payload):
        parts = dict(attributes(element))
        found[data_of(parts[ELEMENT_KEY])] = parts.get(ELEMENT_DATA, b"")


def looked_up(wire: Wire, table: str, name: str, keys: Iterable[bytes]) -> Elements:
    """Return those of ``keys`` that the map holds; the cost does not depend on the size of the map."""
    found: Elements = {}
    wanted = list(keys)
    for start in range(0, len(wanted), ASKED_AT_ONCE):
        asked, sequences = list[bytes](), list[int]()
        for key in wanted[start : start + ASKED_AT_ONCE]:
            sequences.append(next_sequence())
            body = _place(table, name) + attribute(LIST_ELEMENTS | NESTED, _element(key, None))
            asked.append(message(GET_ELEMENT, 0, body, sequences[-1]))
        for answer in wire.ask_each(asked, sequences).values():
            if answer.type != ERROR:
                _collect(answer, found)
            elif error_of(answer) != errno.ENOENT:
                raise OSError(error_of(answer), f"look up in {name}: {os.strerror(error_of(answer))}")
    return found


class Remembered(NamedTuple):
    """One client of a map with timeouts: its key, the number it is remembered by, and how long (as the kernel says)."""

    key: bytes
    number: bytes
    times: bytes


def remembered(wire: Wire, table: str, name: str) -> list[Remembered]:
    """Return what a map of numbers with timeouts holds."""
    found = []
    for answer in wire.dump(GET_ELEMENT, _place(table, name)):
        lists = (payload for kind, payload in attributes(answer.body[4:]) if kind == LIST_ELEMENTS)
        for _, element in (each for payload in lists for each in attributes(payload)):
            parts = dict(attributes(element))
            times = b"".join(
                attribute(kind, parts[kind]) for kind in (ELEMENT_TIMEOUT, ELEMENT_EXPIRES) if kind in parts
            )
            found.append(Remembered(data_of(parts[ELEMENT_KEY]), data_of(parts[ELEMENT_DATA]), times))
    return found


def remembering_messages(table: str, name: str, gone: list[bytes], new: list[Remembered]) -> list[bytes]:
    """Return what deletes and then adds elements of such a map, each with its remaining time."""
    place = _place(table, name)
    asked = element_messages(table, [Change(name, gone, {})])
    elements = (
        attribute(
            LIST_ELEMENT,
            attribute(ELEMENT_KEY, attribute(VALUE, one.key))
            + attribute(ELEMENT_DATA, attribute(VALUE, one.number))
            + one.times,
        )
        for one in new
    )
    return asked + [
        message(NEW_ELEMENT, CREATE, place + attribute(LIST_ELEMENTS | NESTED, each)) for each in _lists(elements)
    ]


def comment_of(wire: Wire, table: str) -> str | None:
    """Return a table's comment, None when there is no such table."""
    parts = _table(wire, table)
    if parts is None:
        return None
    user_data = parts.get(6, b"")  # NFTA_TABLE_USERDATA
    # libnftnl's own type, length, value: type 0 is the comment
    return user_data[2 : 2 + user_data[1]].rstrip(b"\0").decode("utf-8", "replace") if user_data[:1] == b"\0" else ""


def _table(wire: Wire, table: str) -> dict[int, bytes] | None:
    sequence = next_sequence()
    asked = message(GET_TABLE, 0, named(table), sequence)
    answer = wire.ask_each([asked], [sequence])[sequence]
    if answer.type != ERROR:
        return dict(attributes(answer.body[4:]))
    if error_of(answer) in (errno.ENOENT, 0):
        return None
    raise OSError(error_of(answer), f"table {table}: {os.strerror(error_of(answer))}")


def fingerprints(wire: Wire, table: str, chain: str = "") -> dict[str, str]:
    """Return a digest of each chain of the table, or of one, as the kernel has it.

    It tells its hook, its rules, and what the sets without a name that these look into hold. A table with flags, as one
    that is switched off (dormant), has digests of its own.
    """
    chains, own = dict[str, list[bytes]](), table.rpartition(" ")[2]
    for answer in _chains(wire, table, chain):
        parts = dict(attributes(answer.body[4:]))
        if _name(parts[1]) == own:
            # type, hook and policy; neither handle nor number of uses
            chains[_name(parts[3])] = [parts.get(kind, b"") for kind in (4, 5, 7)]
    if not chains or (about := _table(wire, table)) is None:
        return {}
    flags = about.get(2, b"")  # NFTA_TABLE_FLAGS
    place = named(table) + (text(RULE_CHAIN, chain) if chain else b"")
    for answer in wire.dump(GET_RULE, place):
        parts = dict(attributes(answer.body[4:]))
        if _name(parts[RULE_TABLE]) == own and _name(parts[RULE_CHAIN]) in chains:
            rule = parts.get(RULE_EXPRESSIONS, b"")
            chains[_name(parts[RULE_CHAIN])] += [rule, *(_content(wire, table, each) for each in _unnamed(rule))]
    rest = [flags] if any(flags) else []
    return {name: hashlib.sha256(b"\0".join([*parts, *rest])).hexdigest()[:16] for name, parts in chains.items()}


def sets_of(wire: Wire, table: str) -> dict[str, SetKind]:
    """Return the sets and maps of a table that have a name."""
    found = {}
    for answer in wire.dump(GET_SET, named(table)):
        parts = dict(attributes(answer.body[4:]))
        flags, key, data = (int.from_bytes(parts.get(kind, b""), "big") for kind in (SET_FLAGS, SET_KEY, SET_DATA))
        if not flags & SET_ANONYMOUS:
            found[_name(parts[LIST_SET])] = SetKind(key, data)
    return found


def _unnamed(rule: bytes) -> Iterator[str]:
    """Yield the sets that a rule alone has: the kernel names them ``__set0`` or ``__map0``, whatever they hold."""
    for _, each in attributes(rule) if b"__" in rule else ():
        parts = dict(attributes(each))
        name = _name(dict(attributes(parts[2]))[1]) if parts[1] == b"lookup\0" else ""
        if name.startswith("__"):
            yield name


def _content(wire: Wire, table: str, name: str) -> bytes:
    lists = (
        payload
        for answer in wire.dump(GET_ELEMENT, _place(table, name))
        for kind, payload in attributes(answer.body[4:])
        if kind == LIST_ELEMENTS
    )
    return b"".join(sorted(element for payload in lists for _, element in attributes(payload)))


def _chains(wire: Wire, table: str, chain: str) -> list[Message]:
    if not chain:
        return wire.dump(GET_CHAIN, named(table))
    sequence = next_sequence()
    asked = message(GET_CHAIN, 0, named(table) + text(3, chain), sequence)
    answer = wire.ask_each([asked], [sequence])[sequence]
    return [answer] if answer.type != ERROR else []


def digest_of(text_of_it: str) -> str:
    """Return a digest of a text."""
    return hashlib.sha256(text_of_it.encode()).hexdigest()[:16]


def _name(raw: bytes) -> str:
    return raw.rstrip(b"\0").decode()


# --- chains, rule by rule; those that pick: picks.py


def expression(name: str, *parts: bytes) -> bytes:
    """Return one expression of a rule."""
    return nested(LIST_ELEMENT, text(1, name), nested(2, *parts))


def number(kind: int, value: int) -> bytes:
    """Return an attribute that is a number."""
    return attribute(kind, struct.pack(">I", value))


def loading(register: int, header: int, offset: int, size: int) -> bytes:
    """Return what loads a part of a header into a register."""
    return expression("payload", number(1, register), number(2, header), number(3, offset), number(4, size))


def chain_messages(table: str, chain: str, rules: Iterable[bytes]) -> list[bytes]:
    """Return what makes a chain (which may exist) hold exactly these rules."""
    place = named(table)
    made = message(NEW_CHAIN, CREATE, place + text(3, chain))
    emptied = message(DELETE_RULE, 0, place + text(RULE_CHAIN, chain))
    bodies = (place + text(RULE_CHAIN, chain) + attribute(RULE_EXPRESSIONS | NESTED, each) for each in rules)
    return [made, emptied, *(message(NEW_RULE, CREATE | APPEND, body) for body in bodies)]


def deletion_messages(table: str, chains: Iterable[str]) -> list[bytes]:
    """Return what deletes chains, rules first."""
    place = named(table)
    emptied = [message(DELETE_RULE, 0, place + text(RULE_CHAIN, chain)) for chain in chains]
    return emptied + [message(DELETE_CHAIN, 0, place + text(3, chain)) for chain in chains]
