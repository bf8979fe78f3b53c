"""Validation of CEL expressions in what decides about writes: match conditions, and what policies are made of.

The room cel is imported when the first expression is met: programs that only validate pods do without it.
Source: kubernetes ``pkg/apis/admissionregistration/validation`` (``validateMatchConditions``), apiserver
``pkg/admission/plugin/cel/compile.go``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from minik8s_modules.api import cause, syntax
from minik8s_modules.api.errors import Cause

if TYPE_CHECKING:
    from minik8s_modules.cel import Environment, Program, Type

MOST_CONDITIONS = 64
_COMPILED = 4096


class PolicyNames:
    """What the expressions of one policy may name: its variables are declared one after the other."""

    def __init__(self, *, params: bool) -> None:
        self.params = params
        self._types: dict[str, Type] = {}

    def environment(self, *, authorizer: bool = True) -> Environment:
        """Return the environment with the variables that are declared so far."""
        from minik8s_modules import cel  # noqa: PLC0415 - see the top of this file
        from minik8s_modules.cel import admission  # noqa: PLC0415

        params = cel.DYN if self.params else None
        return admission.environment(params=params, authorizer=authorizer, variables={**self._types})

    def add(self, name: str, program: Program) -> None:
        """Declare a variable."""
        self._types[name] = program.type

    def declare(self, at: str, name: str, source: str) -> list[Cause]:
        """Declare a variable; return why it cannot be."""
        from minik8s_modules import cel  # noqa: PLC0415 - see the top of this file

        try:
            self.add(name, cel.compile(source, self.environment()))
        except cel.CompileError as error:
            return [cause.invalid(at, source, f"compilation failed: {error}")]
        return []


@lru_cache(_COMPILED)
def condition_program(source: str, *, params: bool = False) -> Program:
    """Return the compiled match condition of a webhook or (with ``params``) of a policy. Raises CompileError."""
    from minik8s_modules import cel  # noqa: PLC0415 - see the top of this file
    from minik8s_modules.cel.admission import environment  # noqa: PLC0415

    return cel.compile(source, environment(params=cel.DYN if params else None))


def expression(at: str, source: str, names: PolicyNames, *types: str, authorizer: bool = True) -> list[Cause]:
    """Return why an expression of a policy cannot be used; it must evaluate to one of ``types``."""
    from minik8s_modules import cel  # noqa: PLC0415 - see the top of this file

    try:
        found = str(cel.compile(source, names.environment(authorizer=authorizer)).type)
    except cel.CompileError as error:
        return [cause.invalid(at, source, f"compilation failed: {error}")]
    wanted = types[0] if len(types) == 1 else f"one of [{' '.join(types)}]"
    return [] if found in types else [cause.invalid(at, source, f"must evaluate to {wanted}")]


def match_conditions(at: str, values: Any, *, params: bool = False) -> list[Cause]:
    """Return what is wrong with the match conditions of a webhook, or (with ``params``) of a policy."""
    found = values or []
    causes = [cause.too_many(at, len(found), MOST_CONDITIONS)] if len(found) > MOST_CONDITIONS else []
    seen = set()
    for index, each in enumerate(found[:MOST_CONDITIONS]):
        here, name = f"{at}[{index}]", each.get("name") or ""
        causes += _condition(f"{here}.expression", (each.get("expression") or "").strip(), params=params)
        if not name:
            causes.append(cause.required(f"{here}.name"))
        else:
            causes += cause.all_invalid(f"{here}.name", name, syntax.qualified_name(name))
            if name in seen:
                causes.append(cause.duplicate(f"{here}.name", name))
        seen.add(name)
    return causes


def _condition(at: str, source: str, *, params: bool) -> list[Cause]:
    from minik8s_modules.cel import BOOL, CompileError  # noqa: PLC0415 - see the top of this file

    if not source:
        return [cause.required(at)]
    try:
        found = condition_program(source, params=params).type
    except CompileError as error:
        return [cause.invalid(at, source, f"compilation failed: {error}")]
    return [] if found == BOOL else [cause.invalid(at, source, "must evaluate to bool")]
