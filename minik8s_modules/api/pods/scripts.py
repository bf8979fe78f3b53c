"""A container's command as a script, where there is no container: a Slurm job, a unit of systemd. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Container

from minik8s_modules.api.objects import JsonObject

_VARIABLE = re.compile(r"\$(?:\$|\(([A-Za-z_][A-Za-z0-9_]*)\))")


def script_of(container: JsonObject, variables: Container[str], enter: str = "") -> str:
    """Return a shell's script that becomes ``command`` and ``args``; ``enter`` are lines before.

    ``$(NAME)`` is the variable's value, taken when the script runs; ``$$(NAME)`` is ``$(NAME)``.
    """
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    return f"#!/bin/sh\n{enter}exec {' '.join(_word(word, variables) for word in words)}\n"


def _word(text: str, variables: Container[str]) -> str:
    parts, at = [], 0
    for found in _VARIABLE.finditer(text):
        parts.append(shlex.quote(text[at : found.start()]) if found.start() > at else "")
        name = found.group(1)
        if name is None:
            parts.append("'$'")
        else:
            parts.append(f'"${{{name}}}"' if name in variables else shlex.quote(found.group()))
        at = found.end()
    return "".join([*parts, shlex.quote(text[at:]) if at < len(text) or not parts else ""])
