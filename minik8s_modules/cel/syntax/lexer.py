"""Tokens of CEL. One regular expression without backtracking over what it matched finds the next token."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from minik8s_modules.cel.errors import CelSyntaxError, issue_at


class Token(NamedTuple):
    """A token: ``kind`` is float, int, uint, string, bytes, name, op or end."""

    kind: str
    text: str
    position: int


_QUOTED = r"""(?:[rR](?:\"{3}[\s\S]*?\"{3}|'{3}[\s\S]*?'{3}|"[^"\n\r]*"|'[^'\n\r]*')
|\"{3}(?:[^\\]|\\[\s\S])*?\"{3}|'{3}(?:[^\\]|\\[\s\S])*?'{3}
|"(?:[^"\\\n\r]|\\.)*"|'(?:[^'\\\n\r]|\\.)*')"""
_TOKEN = re.compile(
    rf"""(?P<space>(?:[\t \r\n\f]+|//[^\n]*)+)
|(?P<float>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
|(?P<uint>(?:0x[0-9a-fA-F]+|[0-9]+)[uU])
|(?P<int>0x[0-9a-fA-F]+|[0-9]+)
|(?P<bytes>[bB]{_QUOTED})
|(?P<string>{_QUOTED})
|(?P<name>[A-Za-z_][A-Za-z0-9_]*)
|(?P<op>==|!=|<=|>=|&&|\|\||[-<>\[\]{{}}().,!?:+*/%])""",
    re.VERBOSE,
)


def tokens(source: str) -> Iterator[Token]:
    """Yield the tokens of the text, and one of kind ``end``; raises CelSyntaxError at what is none."""
    position = 0
    while position < len(source):
        found = _TOKEN.match(source, position)
        if found is None:
            near = source[position]
            raise CelSyntaxError(
                source, [issue_at(source, position, f"Syntax error: token recognition error at: '{near}'")]
            )
        kind = found.lastgroup or ""
        if kind != "space":
            yield Token(kind, found.group(), position)
        position = found.end()
    yield Token("end", "<EOF>", position)
