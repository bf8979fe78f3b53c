"""The manifests of static pods in a folder of the node, as they lie there; what they mean is decided elsewhere.

Like kubelet's file source: regular files and links to such, not below folders, not names that begin with a dot.
"""

from __future__ import annotations

import base64
import os
import stat
from typing import NamedTuple

LARGEST_FILE = 1024 * 1024
MOST_FILES = 500


class Manifests(NamedTuple):
    """``files`` are ``{"name", "data"}`` (base64), ``errors`` by file name; ``present``: the folder is there."""

    present: bool
    files: list[dict[str, str]]
    errors: dict[str, str]


def read_manifests(folder: str) -> Manifests:
    """Return what lies in ``folder``; a folder that is missing holds nothing.

    Raises:
        OSError: the folder is there and cannot be read; its pods must not be taken for gone.
    """
    try:
        names = sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except FileNotFoundError:
        return Manifests(present=False, files=[], errors={})
    files: list[dict[str, str]] = []
    errors: dict[str, str] = {}
    for name in names:
        try:
            data = _read(os.path.join(folder, name))
            if data is not None and len(files) < MOST_FILES:
                files.append({"name": name, "data": base64.b64encode(data).decode()})
            elif data is not None:
                errors[name] = f"more than {MOST_FILES} manifests"
        except (OSError, ValueError) as error:
            errors[name] = str(error)
    return Manifests(present=True, files=files, errors=errors)


def _read(path: str) -> bytes | None:
    """Return the file's bytes, None for what is not a regular file."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        return None
    with open(path, "rb") as file:
        data = file.read(LARGEST_FILE + 1)
    if len(data) > LARGEST_FILE:
        raise ValueError(f"larger than {LARGEST_FILE} bytes")
    return data
