"""The AnsiballZ script of ansible-core 2.19: the only file that knows how it is laid out.

ansible-core hands a connection one Python script: a wrapper and, at its end, one call
``_ansiballz_main(zip_data=…, ansible_module=…, …)`` with a literal per line. The warm interpreter needs the literals.
"""

from __future__ import annotations

import ast
import hashlib
import re
from typing import NamedTuple

CALL = b'\nif __name__ == "__main__":\n    _ansiballz_main(\n'
ZIP = re.compile(rb"^\s*zip_data='([A-Za-z0-9+/=]*)',$", re.M)
FIELD = re.compile(r"^\s*(module_fqn|profile|params|extensions|rlimit_nofile)=(.*),$", re.M)
FIELDS = {"module_fqn", "profile", "params", "extensions", "rlimit_nofile"}


class Payload(NamedTuple):
    """A module call: ``archive`` (base64 of a zip with the module and its utils), ``params`` (JSON)."""

    archive: bytes
    module: str
    profile: str
    params: str
    known_key: str = ""

    @property
    def key(self) -> str:
        """Return what names the archive: 64 hex digits."""
        return self.known_key or hashlib.sha256(self.archive).hexdigest()


class _Tail(NamedTuple):
    """The end of a script, from its archive on; where in it the archive is, and what names that."""

    text: bytes
    begin: int
    end: int
    key: str


_KEPT = 4
_tails: list[_Tail] = []
"""Those of the last scripts: a process calls a few modules, whose archives are all but a hundredth of a script."""


def parse(script: bytes | None) -> Payload | None:
    """Return the call ``script`` makes, or None when it is no such script or asks for more than a plain call."""
    if not script:
        return None
    tail = next((each for each in _tails if script.endswith(each.text)), None)
    if tail is None:
        return _parsed(script)
    found = _literals(script[: -len(tail.text)])
    return _payload(tail, found) if found is not None else None


def _parsed(script: bytes) -> Payload | None:
    """Return the call of a script whose end is not known, which is known from then on."""
    start = script.rfind(CALL)
    archive = ZIP.search(script, start + len(CALL)) if start >= 0 else None
    if archive is None:
        return None
    found = _literals(script[: archive.start()] + script[archive.end() :])
    if found is None:
        return None
    begin = archive.start() - 1  # with the line's break before it
    key = hashlib.sha256(archive[1]).hexdigest()
    tail = _Tail(script[begin:], archive.start(1) - begin, archive.end(1) - begin, key)
    _tails[:] = [tail, *_tails[: _KEPT - 1]]
    return _payload(tail, found)


def _literals(script: bytes) -> dict[str, str] | None:
    """Return the literals of a script without its archive, None where they ask for more than a plain call."""
    start = script.rfind(CALL)
    if start < 0:
        return None
    rest = script[start + len(CALL) :].decode("utf-8", "surrogateescape")
    try:
        found = {name: ast.literal_eval(text) for name, text in FIELD.findall(rest)}
    except (SyntaxError, ValueError):
        return None
    return None if set(found) != FIELDS or found["extensions"] or found["rlimit_nofile"] else found


def _payload(tail: _Tail, found: dict[str, str]) -> Payload:
    archive = tail.text[tail.begin : tail.end]
    return Payload(archive, found["module_fqn"], found["profile"], found["params"], tail.key)
