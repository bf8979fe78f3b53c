"""What the text of a literal stands for: escapes, numbers and their ranges (cel-go, parser/unescape.go)."""

from __future__ import annotations

from minik8s_modules.cel.values import INT_MAX, UINT_MAX, UInt

_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_SIMPLE |= {letter: letter for letter in "\\'\"`?"}
_DIGITS = {"x": 2, "X": 2, "u": 4, "U": 8}
_LAST_CODE = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


def integer(text: str, *, negative: bool) -> int:
    """Return the value of an int literal; ValueError when it does not fit 64 bits."""
    value = int(text, 0) if text.startswith("0x") else int(text)
    if value > INT_MAX + (1 if negative else 0):
        raise ValueError("invalid int literal")
    return -value if negative else value


def unsigned(text: str) -> UInt:
    """Return the value of a uint literal; ValueError when it does not fit 64 bits."""
    digits = text[:-1]
    value = int(digits, 0) if digits.startswith("0x") else int(digits)
    if value > UINT_MAX:
        raise ValueError("invalid uint literal")
    return UInt(value)


def floating(text: str) -> float:
    """Return the value of a double literal; ValueError when it is too large."""
    value = float(text)
    if value == float("inf"):
        raise ValueError("invalid double literal")
    return value


def string(text: str) -> str:
    """Return what a string literal stands for; ValueError for an escape that does not exist."""
    body, raw = _body(text)
    return body if raw else "".join(chr(code) for code in _codes(body))


def octets(text: str) -> bytes:
    r"""Return what a bytes literal stands for: ``\x`` and octal escapes are bytes, all else is UTF-8."""
    body, raw = _body(text[1:])
    if raw:
        return body.encode()
    return b"".join(_as_bytes(code, escape) for code, escape in _escaped(body, in_bytes=True))


def _as_bytes(code: int, escape: str) -> bytes:
    return bytes([code]) if escape in {"x", "X", "octal"} else chr(code).encode()


def _body(text: str) -> tuple[str, bool]:
    raw = text[0] in "rR"
    text = text[1:] if raw else text
    width = 3 if text[:3] in {'"""', "'''"} and len(text) >= 6 else 1  # noqa: PLR2004 - two triple quotes
    body = text[width:-width]
    return body.replace("\r\n", "\n").replace("\r", "\n"), raw


def _codes(body: str) -> list[int]:
    return [code for code, _ in _escaped(body, in_bytes=False)]


def _escaped(body: str, *, in_bytes: bool) -> list[tuple[int, str]]:
    result = []
    position = 0
    while position < len(body):
        if body[position] != "\\":
            result.append((ord(body[position]), ""))
            position += 1
            continue
        code, escape, position = _escape(body, position + 1, in_bytes=in_bytes)
        result.append((code, escape))
    return result


def _escape(body: str, position: int, *, in_bytes: bool) -> tuple[int, str, int]:
    letter = body[position]
    if letter in _SIMPLE:
        return ord(_SIMPLE[letter]), "", position + 1
    if letter in _DIGITS and not (in_bytes and letter in "uU"):
        return _digits(body, position + 1, _DIGITS[letter], 16, letter)
    if letter in "0123":
        return _digits(body, position, 3, 8, "octal")
    raise ValueError("unable to unescape string")


def _digits(body: str, position: int, count: int, base: int, letter: str) -> tuple[int, str, int]:
    digits = body[position : position + count]
    if len(digits) < count or not digits.isalnum():
        raise ValueError("unable to unescape string")
    code = int(digits, base)
    if code > _LAST_CODE or code in _SURROGATES:
        raise ValueError("invalid unicode code point")
    return code, letter, position + count
