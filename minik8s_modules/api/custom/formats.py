"""The string formats a schema may name, as kube-openapi's ``strfmt`` reads them; an unknown format says nothing.

Source: apiextensions-apiserver ``pkg/apiserver/validation/formats.go``, kube-openapi ``pkg/validation/strfmt``.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable
from datetime import date
from urllib.parse import urlsplit

from minik8s_modules.base.clock import parse_rfc3339


def _matching(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern)
    return lambda text: compiled.fullmatch(text) is not None


def _reads(read: Callable[[str], object]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            read(text)
        except ValueError:
            return False
        return True

    return check


def _uri(text: str) -> bool:
    """Say as Go's ``url.ParseRequestURI``: absolute, or a path from the root."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return not re.search(r"[\x00-\x20\x7f]", text) and (bool(parts.scheme) or text.startswith("/"))


def _byte(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error:
        return False
    return True


def _cidr(text: str) -> bool:
    address, slash, bits = text.partition("/")
    if not slash or not (bits.isascii() and bits.isdigit()):
        return False
    return _reads(lambda _: ipaddress.ip_network((address, int(bits)), strict=False))(text)


def _isbn(text: str) -> bool:
    return _isbn10(text) or _isbn13(text)


def _isbn10(text: str) -> bool:
    digits = re.sub(r"[\s-]+", "", text)
    if not re.fullmatch(r"[0-9]{9}[0-9X]", digits):
        return False
    return sum((10 - at) * (10 if one == "X" else int(one)) for at, one in enumerate(digits)) % 11 == 0


def _isbn13(text: str) -> bool:
    digits = re.sub(r"[\s-]+", "", text)
    return re.fullmatch(r"[0-9]{13}", digits) is not None and sum(
        int(one) * (3 if at % 2 else 1) for at, one in enumerate(digits)
    ) % 10 == 0  # fmt: skip


def _credit_card(text: str) -> bool:
    digits = re.sub(r"[^0-9]+", "", text)
    if not _CARD(digits):
        return False
    doubled = [int(one) * (2 if at % 2 else 1) for at, one in enumerate(reversed(digits))]
    return sum(one - 9 if one > 9 else one for one in doubled) % 10 == 0  # noqa: PLR2004 - Luhn's sum of digits


_CARD = _matching(
    r"4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}"
    r"|(?:2131|1800|35[0-9]{3})[0-9]{11}"
)
_HEX = "[0-9a-fA-F]"
_OCTET = r"\s*([01]?[0-9]?[0-9]|2[0-4][0-9]|25[0-5])\s*"
_LABEL = r"[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_UNIT = "(ns|us|µs|μs|ms|s|m|h)"
_WORDS = "(ns|nano|nanos|nanosecond|nanoseconds|us|µs|micro|micros|microsecond|microseconds|ms|milli|millis|millisecond"
_WORDS += (
    "|milliseconds|s|sec|secs|second|seconds|m|min|mins|minute|minutes|h|hr|hour|hours|d|day|days|w|wk|week|weeks)"
)

FORMATS: dict[str, Callable[[str], bool]] = {
    "bsonobjectid": _matching(f"{_HEX}{{24}}"),
    "uri": _uri,
    "email": _matching(r"([^@<>\s]+@[^@<>\s]+|[^<>]*<[^@<>\s]+@[^@<>\s]+>)"),
    "hostname": lambda text: len(text) <= 255 and _matching(rf"{_LABEL}(\.{_LABEL})*\.?")(text),  # noqa: PLR2004
    "ipv4": _reads(ipaddress.IPv4Address),
    "ipv6": _reads(ipaddress.IPv6Address),
    "cidr": _cidr,
    "mac": _matching(rf"{_HEX}{{2}}([:-]{_HEX}{{2}}){{5}}(([:-]{_HEX}{{2}}){{2}})?|({_HEX}{{4}}\.){{2,3}}{_HEX}{{4}}"),
    "uuid": _matching(f"{_HEX}{{8}}-?({_HEX}{{4}}-?){{3}}{_HEX}{{12}}"),
    "uuid3": _matching(f"{_HEX}{{8}}-?{_HEX}{{4}}-?3{_HEX}{{3}}-?{_HEX}{{4}}-?{_HEX}{{12}}"),
    "uuid4": _matching(f"{_HEX}{{8}}-?{_HEX}{{4}}-?4{_HEX}{{3}}-?[89abAB]{_HEX}{{3}}-?{_HEX}{{12}}"),
    "uuid5": _matching(f"{_HEX}{{8}}-?{_HEX}{{4}}-?5{_HEX}{{3}}-?[89abAB]{_HEX}{{3}}-?{_HEX}{{12}}"),
    "isbn": _isbn,
    "isbn10": _isbn10,
    "isbn13": _isbn13,
    "creditcard": _credit_card,
    "ssn": _matching(r"[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}"),
    "hexcolor": _matching(f"#?({_HEX}{{3}}|{_HEX}{{6}})"),
    "rgbcolor": _matching(rf"rgb\({_OCTET},{_OCTET},{_OCTET}\)"),
    "byte": _byte,
    "date": _reads(date.fromisoformat),
    "datetime": _reads(parse_rfc3339),
    "duration": _matching(rf"0|[-+]?([0-9]*(\.[0-9]*)?{_UNIT})+|[0-9]+(\.[0-9]+)?\s*{_WORDS}"),
}
"""By normalized name (without ``-``): whether a text is written so."""


def check_of(name: str) -> Callable[[str], bool] | None:
    """Return the check of a format, None for one that says nothing (``password``, ``int32``, unknown ones)."""
    return FORMATS.get(name.replace("-", ""))
