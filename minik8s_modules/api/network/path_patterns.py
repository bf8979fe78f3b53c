"""Paths in AuthorizationPolicies, and in requests as an Envoy compares them. Pure.

A character outside RFC 3986's unreserved ones may be sent as itself or as %XX, and applications differ in whether both
are the same to them. A rule that denies takes both for the same, whichever of the two it is written with; one that
allows takes none but the one it is written with. What URIs do not have as itself (RFC 3986, 3.3), such as a space or a
letter outside ASCII, is its %XX to both.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Iterator
from urllib.parse import quote

REFUSED = r"(?:%(?:2[dDeE]|3[0-9]|[46][1-9a-fA-F]|[57][0-9aA]|5[fF]|7[eE]|00)|/\.\.?(?:;|%3[bB]))"
"""What nobody has to encode (RFC 3986, 2.3): applications read it as the letter that it is, and rules would not. Also
%00, where some end the path, and /..; which some take for /.. with parameters."""
_ESCAPED_SLASH = r"(?i)%(?:2f|5c)"
_PLAIN = frozenset(f"{string.ascii_letters}{string.digits}-._~/")
_VISIBLE = range(0x21, 0x7F)
_SENT_AS_IT_IS = frozenset("!$&'()*+,;=:@")
_PARTS = re.compile(r"%[0-9a-fA-F]{2}|.", re.DOTALL)


def is_plain(pattern: str) -> bool:
    """Return whether a pattern has no character that can be sent in two ways."""
    return _PLAIN.issuperset(pattern.strip("*"))


def path_expression(pattern: str, *, wide: bool) -> str:
    """Return the regular expression of whole paths that a pattern means; a ``wide`` one is of a rule that denies."""
    before, after = (".*" if pattern.startswith("*") else ""), (".*" if pattern.endswith("*") else "")
    body = "".join(_expressions(_PARTS.findall(pattern.strip("*")), wide=wide))
    return f"{'(?i)' if wide else ''}{before}{body}{after if pattern != '*' else ''}"


def _expressions(parts: Iterable[str], *, wide: bool) -> Iterator[str]:
    for part in parts:
        if part.startswith("%") and part != "%":
            yield _byte(int(part[1:], 16), wide=wide, encoded=True)
        elif part.isascii():
            yield _byte(ord(part), wide=wide, encoded=False)
        else:
            cases = sorted({part, part.lower(), part.upper()}) if wide else [part]
            forms = ["".join(map(_percent, each.encode())) for each in cases]
            yield forms[0] if len(forms) == 1 else f"(?:{'|'.join(forms)})"


def _byte(value: int, *, wide: bool, encoded: bool) -> str:
    char = chr(value)
    if char in _PLAIN:
        return re.escape(char)
    if value not in _VISIBLE or (encoded and not wide):
        return _percent(value)
    if char in _SENT_AS_IT_IS and not wide:
        return re.escape(char)
    return f"(?:{re.escape(char)}|{_percent(value)})"


def _percent(value: int) -> str:
    """Return the expression of a byte as %XX, whichever the case of its digits."""
    return "%" + "".join(f"[{each}{each.lower()}]" if each.isalpha() else each for each in f"{value:02X}")


def normalized(path: str) -> str | None:
    """Return a request's path as rules see it, without its query; None for one that is refused whatever they say."""
    asked = quote(path.partition("?")[0], safe=string.punctuation).replace("\\", "/")
    if re.search(_ESCAPED_SLASH, asked):
        return None
    kept: list[str] = []
    _, *parts = asked.split("/")
    for number, part in enumerate(parts, 1):
        dots = re.sub("(?i)%2e", ".", part)
        if dots not in {".", ".."}:
            kept.append(part)
            continue
        if dots == "..":
            del kept[-1:]
        if number == len(parts):
            kept.append("")
    found = re.sub("/+", "/", f"/{'/'.join(kept)}")
    return None if re.search(REFUSED, found) else found
