"""Names of fields as expressions write them (pkg/cel/escaping.go): ``a-b`` is ``a__dash__b``."""

from __future__ import annotations

import re

_RESERVED = frozenset(
    ["true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import",
     "let", "loop", "package", "namespace", "return", "var", "void", "while"]
)  # fmt: skip
_USABLE = re.compile(r"[A-Za-z_./-][A-Za-z0-9_./-]*", re.ASCII)
_SPECIAL = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_ESCAPED = re.compile("__|[-./]")


def escape(name: str) -> str | None:
    """Return how an expression writes the name, or None when it cannot."""
    if name in _RESERVED:
        return f"__{name}__"
    if not _USABLE.fullmatch(name):
        return None
    return _ESCAPED.sub(lambda found: _SPECIAL[found.group()], name)
