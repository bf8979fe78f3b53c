"""What is kept of a unit: ``<state_dir>/pods/<uid>``, which others may enter and not list.

record.json   in which boot it was started, and how it ended
program       the entry's script
environment   variables of the program; the only place where their values stand, for root alone
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping
from typing import Any

from ..core.digests import canonical
from ..core.files import read_bytes, read_json, write_atomically
from ..core.paths import component
from .texts import environment_text

HOME = "/var/lib/minik8s-units"
_ENTERED = 0o711


def home_of(node: str) -> str:
    """Return where one owner's units are kept."""
    return os.path.join(HOME, component(node))


def folder_of(state_dir: str, uid: str) -> str:
    """Return the folder of one unit."""
    return os.path.join(state_dir, "pods", component(uid))


def known(state_dir: str) -> set[str]:
    """Return the uids of all units that have a folder."""
    with contextlib.suppress(FileNotFoundError):
        return set(os.listdir(os.path.join(state_dir, "pods")))
    return set()


def record(state_dir: str, uid: str) -> dict[str, Any]:
    """Return what is noted of a unit."""
    found = read_json(os.path.join(folder_of(state_dir, uid), "record.json"))
    return found if isinstance(found, dict) else {}


def note(state_dir: str, uid: str, **changes: Any) -> None:
    """Note something of a unit, beside what is noted."""
    noted = {**record(state_dir, uid), **changes}
    write_atomically(os.path.join(folder_of(state_dir, uid), "record.json"), canonical(noted), sync=True)


def has_program(state_dir: str, uid: str, script: str) -> bool:
    """Return whether program and environment are there; what the values are only the record of them knows."""
    folder = folder_of(state_dir, uid)
    return read_bytes(os.path.join(folder, "program")) == script.encode() and os.path.exists(
        os.path.join(folder, "environment")
    )


def prepare(state_dir: str, uid: str, script: str, environment: Mapping[str, str]) -> None:
    """Write what the program needs."""
    folder = folder_of(state_dir, uid)
    os.makedirs(folder, exist_ok=True)
    for path in ([HOME] if os.path.dirname(state_dir) == HOME else []) + [state_dir, os.path.dirname(folder), folder]:
        os.chmod(path, _ENTERED)  # its user must come to the program, whatever umask these were made with
    write_atomically(os.path.join(folder, "environment"), environment_text(environment).encode())
    write_atomically(os.path.join(folder, "program"), script.encode(), 0o755)


def remove(state_dir: str, uid: str) -> None:
    """Delete a unit's folder."""
    shutil.rmtree(folder_of(state_dir, uid), ignore_errors=True)
