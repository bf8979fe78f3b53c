"""The program of the original's Job: its text goes into the object, since the server reads no files."""

from __future__ import annotations

from pathlib import Path

from minik8s_modules.api.kinds import LEGACY_JOB, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli.output import warn


def with_source(kind: Kind, obj: JsonObject, where: str) -> JsonObject:
    """Return ``obj`` with the text of ``spec.codePath`` as ``spec.source``, where it is such a Job without one.

    A relative path is meant from where the command runs. What cannot be read is said, and left to the server to refuse:
    deleting a Job needs no program.
    """
    spec = obj.get("spec")
    if kind is not LEGACY_JOB or not isinstance(spec, dict) or spec.get("source"):
        return obj
    path = spec.get("codePath")
    if not isinstance(path, str) or not path:
        return obj
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        warn(f"{where}: spec.codePath {path} cannot be read here: {why}")
        return obj
    return {**obj, "spec": {**spec, "source": text}}
