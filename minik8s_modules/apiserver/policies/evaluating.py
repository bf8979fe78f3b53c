"""What one policy says of one write with one object of params; pure.

Variables are computed when they are first named. All expressions share one budget. Source: apiserver
``plugin/policy/validating/validator.go``, ``pkg/admission/plugin/cel/{condition,composition}.go``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from minik8s_modules.apiserver.policies.compiled import Expression, Policy, Validation
from minik8s_modules.apiserver.webhooks.conditions import Uncertain, all_true
from minik8s_modules.cel import PER_OBJECT, Budget, BudgetExhausted, CelError, EvaluationError
from minik8s_modules.cel.admission import LazyFields

_OUT_OF_BUDGET = "validation failed due to running out of cost budget, no further validation rules will be run"
_LONGEST_MESSAGE = 10 * 1024


class Denial(NamedTuple):
    """A validation that does not hold, or could not be evaluated ; ``place`` is its index."""

    message: str
    reason: str = ""
    place: int = 0


class PolicyVerdict(NamedTuple):
    """What a policy says: why it would deny the write, and what the audit log is told."""

    denials: tuple[Denial, ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    broken: tuple[Denial, ...] = ()


class _Failed(Exception):
    """An expression could not be evaluated; the message says why."""


def evaluate(policy: Policy, variables: Mapping[str, Any]) -> PolicyVerdict:
    """Return what ``policy`` says of the write that ``variables`` hold (object, oldObject, request, params, …)."""
    try:
        if not all_true(policy.conditions, variables):
            return PolicyVerdict()
    except Uncertain as error:
        return PolicyVerdict((Denial(str(error)),)) if policy.fail else PolicyVerdict()
    budget = Budget(PER_OBJECT)
    names = {**variables, "variables": _lazy(policy, variables, budget)}
    denials: list[Denial] = []
    try:
        for index, validation in enumerate(policy.validations):
            denials += _denials(policy, index, validation, names, budget)
    except BudgetExhausted:
        return PolicyVerdict((Denial(_OUT_OF_BUDGET),)) if policy.fail else PolicyVerdict()
    return _with_annotations(policy, tuple(denials), {**variables, "variables": names["variables"]})


def _lazy(policy: Policy, variables: Mapping[str, Any], budget: Budget) -> LazyFields:
    def thunk(name: str, expression: Expression) -> Callable[[], Any]:
        def compute() -> Any:
            try:
                return _value(expression, {**variables, "variables": fields}, budget)
            except _Failed as error:
                raise EvaluationError(f'composited variable "{name}" fails to evaluate: {error}') from error

        return compute

    fields = LazyFields({name: thunk(name, expression) for name, expression in policy.variables})
    return fields


def _value(expression: Expression, names: Mapping[str, Any], budget: Budget) -> Any:
    if expression.program is None:
        raise _Failed(expression.broken)
    try:
        return expression.program.evaluate(names, budget)
    except BudgetExhausted:
        raise
    except CelError as error:
        raise _Failed(f"expression '{expression.source}' resulted in error: {error}") from error


def _denials(
    policy: Policy, index: int, validation: Validation, names: Mapping[str, Any], budget: Budget
) -> list[Denial]:
    try:
        holds = _value(validation.expression, names, budget)
    except _Failed as error:
        return [Denial(str(error), place=index)] if policy.fail else []
    if holds is True:
        return []
    message = _computed(validation, names, budget) or validation.message
    message = message or f"failed expression: {validation.expression.source.strip()}"
    return [Denial(message, validation.reason, index)]


def _computed(validation: Validation, names: Mapping[str, Any], budget: Budget) -> str:
    """Return what the messageExpression says, "" for nothing that can be told in one line."""
    if validation.computed is None:
        return ""
    try:
        found = _value(validation.computed, names, budget)
    except _Failed:
        return ""
    text = found.strip() if isinstance(found, str) else ""
    return "" if len(text) > _LONGEST_MESSAGE or "\n" in text else text


def _with_annotations(policy: Policy, denials: tuple[Denial, ...], names: Mapping[str, Any]) -> PolicyVerdict:
    budget, found, broken = Budget(PER_OBJECT), [], []
    for key, expression in policy.annotations:
        try:
            value = _value(expression, names, budget)
        except (BudgetExhausted, _Failed) as error:
            broken += [Denial(str(error))] if policy.fail else []
            continue
        if isinstance(value, str) and value.strip():
            found.append((key, value.strip()))
    return PolicyVerdict(denials, tuple(found), tuple(broken))
