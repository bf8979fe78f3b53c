"""The program of the original's Job: its text goes into the object, since the server reads no files."""

from __future__ import annotations

import os
import stat

from minik8s_modules.api.kinds import LEGACY_JOB, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.slurm import SOURCE_BYTES, SUFFIXES
from minik8s_modules.cli.output import warn


def with_source(kind: Kind, obj: JsonObject, where: str) -> JsonObject:
    """Return ``obj`` with the text of ``spec.codePath`` as ``spec.source``, where it is such a Job without one.

    A relative path is meant from where the command runs. What cannot be read is said, and left to the server to refuse:
    deleting a Job needs no program. Who wrote the manifest may be somebody else than who applies it, so nothing is read
    that the server would not take: no key, no device.
    """
    spec = obj.get("spec")
    if kind is not LEGACY_JOB or not isinstance(spec, dict) or spec.get("source"):
        return obj
    path = spec.get("codePath")
    if not isinstance(path, str) or not path:
        return obj
    try:
        text = _program(path)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        warn(f"{where}: spec.codePath {path} cannot be read here: {why}")
        return obj
    return {**obj, "spec": {**spec, "source": text}}


def _program(path: str) -> str:
    """Return a program's text. Raises OSError, ValueError."""
    if not path.endswith(SUFFIXES):
        raise ValueError(f"it must end with {', '.join(SUFFIXES)}")
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as source:
        if not stat.S_ISREG(os.fstat(source.fileno()).st_mode):
            raise ValueError("it is not a regular file")
        data = source.read(SOURCE_BYTES + 1)
    if len(data) > SOURCE_BYTES:
        raise ValueError(f"it has more than {SOURCE_BYTES >> 10} KiB")
    return data.decode()
