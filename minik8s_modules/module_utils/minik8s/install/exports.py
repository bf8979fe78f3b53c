"""What a machine exports by NFS for the cluster: one file of ours, and the kernel's table of exports.

Only entries of ours are written and taken back: those of other files in /etc/exports.d, and those that somebody made
with ``exportfs -i``, stay as they are (``exportfs -r`` would drop the latter). An export goes to named machines, never
to a network or to everyone, and a folder is made where it is missing and never deleted.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..core.faults import KeyFault
from ..volumes.exported import Pair, pairs_of

FILE = "/etc/exports.d/minik8s.exports"
HEADER = "# Written by minik8s; changes are overwritten. Add files of your own beside this one.\n"
_PATH = re.compile(
    r"/[A-Za-z0-9._/+@:-]*\Z"
)  # exports(5) gives blanks, quotes, '#', '(' and '\\' meanings of their own
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?\Z")  # no wildcard, netgroup or network
_OPTION = re.compile(r"[a-z_]+(=[A-Za-z0-9._/:-]+)?\Z")


class Export(NamedTuple):
    """A folder, the machines it goes to, and its options."""

    path: str
    clients: tuple[str, ...]
    options: tuple[str, ...]


class ObservedExports(NamedTuple):
    """What stands on the machine: our file ("" for none), (folder, client) of the kernel's table, folders missing."""

    text: str
    active: frozenset[Pair]
    missing: frozenset[str]


class Step(NamedTuple):
    """One effect; ``what`` is the folder, the file, or ``CLIENT:FOLDER``."""

    action: str
    what: str


def export_of(given: Mapping[str, object]) -> Export:
    """Return one export as declared.

    Raises:
        KeyFault: InvalidEntry, naming what exports(5) would read as something else.
    """
    path, clients, options = str(given["path"]), _texts(given.get("clients")), _texts(given.get("options"))
    if not _PATH.match(path) or ".." in path.split("/") or os.path.normpath(path) != path or path == "/":
        raise KeyFault("InvalidEntry", f"export path {path!r:.80} must be absolute, plain, and more than '/'")
    for client in clients:
        if not (_HOST.match(client) or _is_address(client)):
            raise KeyFault(
                "InvalidEntry",
                f"export {path}: client {client!r:.80} is not a machine's name or address; exports go to machines",
            )
    for option in options:
        if not _OPTION.match(option):
            raise KeyFault("InvalidEntry", f"export {path}: {option!r:.80} is not an option of exports(5)")
    if not clients:
        raise KeyFault("InvalidEntry", f"export {path} goes to no machine")
    return Export(path, tuple(sorted(clients)), tuple(options))


def _texts(given: object) -> list[str]:
    return [str(each) for each in given] if isinstance(given, (list, tuple)) else []


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def render(exports: Sequence[Export]) -> str:
    """Return our file, "" where nothing is exported."""
    lines = [" ".join([one.path, *(f"{client}({','.join(one.options)})" for client in one.clients)]) for one in exports]
    return HEADER + "".join(f"{line}\n" for line in sorted(lines)) if lines else ""


def plan(exports: Sequence[Export], seen: ObservedExports) -> list[Step]:
    """Return what leads from ``seen`` to ``exports``; what was ours and is no more goes from the kernel last."""
    wanted, text = pairs_of(render(exports)), render(exports)
    steps = [Step("make", one.path) for one in sorted(exports) if one.path in seen.missing]
    if seen.text != text:
        steps.append(Step("write" if text else "remove", FILE))
    if wanted and (seen.text != text or not wanted <= seen.active):
        steps.append(Step("export", "all"))
    gone = (pairs_of(seen.text) - wanted) & seen.active
    return [*steps, *(Step("unexport", f"{_bracketed(client)}:{path}") for path, client in sorted(gone))]


def _bracketed(client: str) -> str:
    return f"[{client}]" if ":" in client else client
