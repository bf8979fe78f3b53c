"""A container's command as a script, where there is no container: a Slurm job, a unit of systemd. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Container

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject

INDEX = "batch.kubernetes.io/job-completion-index"
"""Annotation and label of an indexed Job's Pods."""
_VARIABLE = re.compile(r"\$(?:\$|\(([A-Za-z_][A-Za-z0-9_]*)\))")


def unfit(text: str) -> str:
    """Return why no program can be given ``text`` as a word or a variable, "" where one can."""
    if "\0" in text:
        return "it has a NUL character, which no program can be given"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "it is no text in UTF-8"
    return ""


def spec_as_written(pod: JsonObject) -> JsonObject:
    """Return the Pod's spec without the hostname that an indexed Job gives its Pods: nobody has asked for one."""
    spec = objects.spec(pod)
    return {**spec, "hostname": ""} if objects.annotations(pod).get(INDEX) else spec


def script_of(
    container: JsonObject, variables: Container[str], enter: str = "", before: str = "", prefix: str = ""
) -> str:
    """Return a shell's script that becomes ``command`` and ``args``.

    Args:
        container: whose they are.
        variables: those that there are.
        enter: lines before.
        before: a shell's words before the command, such as those of a program that runs it in a container.
        prefix: what the shell has before the names of those variables.

    ``$(NAME)`` is the variable's value, taken when the script runs; ``$$(NAME)`` is ``$(NAME)``.
    """
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    told = [*([before] if before else []), *(_word(word, variables, prefix) for word in words)]
    return f"#!/bin/sh\n{enter}exec {' '.join(told)}\n"


def _word(text: str, variables: Container[str], prefix: str) -> str:
    parts, at = [], 0
    for found in _VARIABLE.finditer(text):
        parts.append(shlex.quote(text[at : found.start()]) if found.start() > at else "")
        name = found.group(1)
        if name is None:
            parts.append("'$'")
        else:
            parts.append(f'"${{{prefix}{name}}}"' if name in variables else shlex.quote(found.group()))
        at = found.end()
    return "".join([*parts, shlex.quote(text[at:]) if at < len(text) or not parts else ""])
