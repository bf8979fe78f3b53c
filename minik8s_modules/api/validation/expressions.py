"""Validation of CEL expressions in what decides about writes: match conditions, and what policies are made of.

The room cel is imported when the first expression is met: programs that only validate pods do without it.
Source: kubernetes ``pkg/apis/admissionregistration/validation`` (``validateMatchConditions``), apiserver
``pkg/admission/plugin/cel/compile.go``.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from minik8s_modules.api import cause, syntax
from minik8s_modules.api.errors import Cause

if TYPE_CHECKING:
    from minik8s_modules.cel import Environment, Program

MOST_CONDITIONS = 64
_COMPILED = 4096


@cache
def _names() -> Environment:
    from minik8s_modules.cel.admission import environment  # noqa: PLC0415 - see the top of this file

    return environment()


@lru_cache(_COMPILED)
def condition_program(source: str) -> Program:
    """Return the compiled match condition of a webhook. Raises CompileError."""
    from minik8s_modules import cel  # noqa: PLC0415 - see the top of this file

    return cel.compile(source, _names())


def match_conditions(at: str, values: Any) -> list[Cause]:
    """Return what is wrong with the match conditions of a webhook."""
    found = values or []
    causes = [cause.too_many(at, len(found), MOST_CONDITIONS)] if len(found) > MOST_CONDITIONS else []
    seen = set()
    for index, each in enumerate(found[:MOST_CONDITIONS]):
        here, name = f"{at}[{index}]", each.get("name") or ""
        causes += _expression(f"{here}.expression", (each.get("expression") or "").strip())
        if not name:
            causes.append(cause.required(f"{here}.name"))
        else:
            causes += cause.all_invalid(f"{here}.name", name, syntax.qualified_name(name))
            if name in seen:
                causes.append(cause.duplicate(f"{here}.name", name))
        seen.add(name)
    return causes


def _expression(at: str, source: str) -> list[Cause]:
    from minik8s_modules.cel import BOOL, CompileError  # noqa: PLC0415 - see the top of this file

    if not source:
        return [cause.required(at)]
    try:
        found = condition_program(source).type
    except CompileError as error:
        return [cause.invalid(at, source, f"compilation failed: {error}")]
    return [] if found == BOOL else [cause.invalid(at, source, "must evaluate to bool")]
