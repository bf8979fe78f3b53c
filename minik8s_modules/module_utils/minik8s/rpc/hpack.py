"""Headers of HTTP/2 (RFC 7541), as much as one client needs whose peer was told to remember none.

We announce a dynamic table of size 0, so every block of headers stands for itself: what ``fields`` makes of its bytes
never changes. What we send is written as literals that nobody keeps, the same bytes for every call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

# bits of each symbol's code, one character a symbol in base 36 (RFC 7541, appendix B); the code is canonical
_LENGTHS = (
    "dnsssssssoussussssssssusssssssss6aacd68baa8b8666555666666678f6cad67777777777777777777777878djde6f56565666577666567655677"
    "777fbedskmkkmmmnmnnnnnonoomnonnnnlmnmnnomlkmmnnlnmmolmnnllmlnmnnkmmmnmmnqqkjmnmpqqqrrqopjlqrrqrollqqsrrrkoklmllnmmppooqn"
    "qrqqrrrrrsrrrrrqu"
)
_END = 256  # of a string; it never stands in one
# how the first byte of a field begins: one of a table, a literal to be remembered, the size of the table
_INDEXED, _REMEMBERED, _SIZE, _KIND = 0x80, 0x40, 0x20, 0x60
_SHORT = 0x7F  # strings of fewer bytes have their length in one


class BadHeaders(ValueError):
    """The block is no HPACK, or relies on a table that we did not offer."""


def _codes() -> dict[tuple[int, int], int]:
    """Return the symbol of each code, by its bits and their number."""
    found, code, before = {}, 0, 0
    for bits, symbol in sorted((int(digit, 36), symbol) for symbol, digit in enumerate(_LENGTHS)):
        code <<= bits - before
        found[code, bits] = symbol
        code, before = code + 1, bits
    return found


_SYMBOLS = _codes()


def literals(pairs: Iterable[tuple[str, str]]) -> bytes:
    """Return a block of header fields, all of them literals that are not to be remembered."""
    return b"".join(b"\0" + _string(name.encode()) + _string(value.encode()) for name, value in pairs)


def fields(block: bytes) -> Mapping[str, str]:
    """Return the fields whose names are spelled out; those of the static table (``:status``) are passed over.

    Raises:
        BadHeaders: the block cannot be read.
    """
    found: dict[str, str] = {}
    at = 0
    try:
        while at < len(block):
            first = block[at]
            if first & _INDEXED:
                _, at = _number(block, at, 7)
            elif first & _KIND == _SIZE:
                _, at = _number(block, at, 5)
            else:
                index, at = _number(block, at, 6 if first & _REMEMBERED else 4)
                name, at = ("", at) if index else _text(block, at)
                value, at = _text(block, at)
                if name:
                    found[name] = value
    except IndexError as error:
        raise BadHeaders("a block of headers is cut off") from error
    return found


def _string(data: bytes) -> bytes:
    if len(data) < _SHORT:
        return bytes([len(data)]) + data
    rest, size = bytearray([_SHORT]), len(data) - _SHORT
    while size > _SHORT:
        rest.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*rest, size]) + data


def _number(block: bytes, at: int, bits: int) -> tuple[int, int]:
    """Return the number whose first byte has ``bits`` bits for it, and where the next thing begins."""
    most = (1 << bits) - 1
    value = block[at] & most
    at += 1
    if value < most:
        return value, at
    shift = 0
    while True:
        byte = block[at]
        at += 1
        value += (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, at


def _text(block: bytes, at: int) -> tuple[str, int]:
    coded = block[at] & 0x80
    size, at = _number(block, at, 7)
    data = block[at : at + size]
    if len(data) < size:
        raise BadHeaders("a block of headers is cut off")
    return (_expanded(data) if coded else data).decode("utf-8", "replace"), at + size


def _expanded(data: bytes) -> bytes:
    """Return what Huffman's code shortened to ``data``."""
    found, code, bits = bytearray(), 0, 0
    for byte in data:
        for shift in range(7, -1, -1):
            code, bits = code << 1 | byte >> shift & 1, bits + 1
            symbol = _SYMBOLS.get((code, bits))
            if symbol == _END:
                raise BadHeaders("a string in a block of headers holds its own end")
            if symbol is not None:
                found.append(symbol)
                code, bits = 0, 0
    return bytes(found)
