"""The AnsiballZ script of ansible-core 2.19: the only file that knows how it is laid out.

ansible-core hands a connection one Python script: a wrapper and, at its end, one call
``_ansiballz_main(zip_data=…, ansible_module=…, …)`` with a literal per line. The warm interpreter needs the literals.
"""

from __future__ import annotations

import ast
import hashlib
import re
from functools import cached_property
from typing import NamedTuple

CALL = b'\nif __name__ == "__main__":\n    _ansiballz_main(\n'
ZIP = re.compile(rb"^\s*zip_data='([A-Za-z0-9+/=]*)',$", re.M)
FIELD = re.compile(r"^\s*(module_fqn|profile|params|extensions|rlimit_nofile)=(.*),$", re.M)
FIELDS = {"module_fqn", "profile", "params", "extensions", "rlimit_nofile"}


class _Literals(NamedTuple):
    archive: bytes
    module: str
    profile: str
    params: str


class Payload(_Literals):
    """A module call: ``archive`` (base64 of a zip with the module and its utils), ``params`` (JSON)."""

    @cached_property
    def key(self) -> str:
        """Return what names the archive: 64 hex digits."""
        return hashlib.sha256(self.archive).hexdigest()


def parse(script: bytes | None) -> Payload | None:
    """Return the call ``script`` makes, or None when it is no such script or asks for more than a plain call."""
    if not script or (start := script.rfind(CALL)) < 0:
        return None
    call = script[start + len(CALL) :]
    archive = ZIP.search(call)
    if archive is None:
        return None
    rest = (call[: archive.start()] + call[archive.end() :]).decode("utf-8", "surrogateescape")
    try:
        found = {name: ast.literal_eval(text) for name, text in FIELD.findall(rest)}
    except (SyntaxError, ValueError):
        return None
    if set(found) != FIELDS or found["extensions"] or found["rlimit_nofile"]:
        return None
    return Payload(archive.group(1), found["module_fqn"], found["profile"], found["params"])
