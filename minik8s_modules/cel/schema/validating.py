"""The rules applied to an object: apiextensions, schema/cel/validation.go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from minik8s_modules.cel.errors import CostExceeded, EvaluationError
from minik8s_modules.cel.program import Budget, BudgetExhausted
from minik8s_modules.cel.schema.compiling import CompiledSchema
from minik8s_modules.cel.schema.ratcheting import OldItems, Ratchet
from minik8s_modules.cel.schema.rules import Rule
from minik8s_modules.cel.values import NONE, Optional

LONGEST_MESSAGE = 5 * 1024  # bytes
_TYPES = {
    "FieldValueForbidden": "Forbidden",
    "FieldValueRequired": "Required",
    "FieldValueDuplicate": "Duplicate",
}
_NO_MORE = "no further validation rules will be run"


@dataclass(frozen=True)
class RuleError:
    """A rule that failed. ``type``: Invalid, Forbidden, Required or Duplicate; ``value``: what upstream prints as one.

    ``path`` is empty for the whole object. A ``warning`` is a failure of what the update left as it was.
    """

    path: str
    type: str
    value: str
    message: str
    warning: bool = False


class _Stop(Exception):
    """The budget is used up."""


def validate(
    compiled: CompiledSchema,
    value: Any,
    old: Any = None,
    path: str = "",
    budget: Budget | None = None,
    *,
    ratcheting: bool = True,
) -> list[RuleError]:
    """Return the rules that an object breaks; ``old`` is what it replaces, None when it is created.

    Never raises: a rule that costs too much, or ends in an error of CEL, is an error in the list.
    """
    check = _Validation(budget or Budget(), [])
    ratchet = Ratchet((value, old)) if ratcheting and old is not None else Ratchet()
    try:
        check.node(compiled, value, old, path, ratchet)
    except _Stop:
        check.budget.remaining = -1
    return check.errors


@dataclass
class _Validation:
    budget: Budget
    errors: list[RuleError]

    def node(self, compiled: CompiledSchema, value: Any, old: Any, path: str, ratchet: Ratchet) -> None:
        """Apply the rules here and below."""
        if value is None:
            return
        if compiled.rules:
            self.rules(compiled, value, old, path, ratchet)
        for each in compiled.all_of:
            self.node(each, value, old, path, ratchet.all_of())
        for child, name, new, before, beneath in _below(compiled, value, old, ratchet):
            self.node(child, new, before, _joined(path, name), beneath)

    def rules(self, compiled: CompiledSchema, value: Any, old: Any, path: str, ratchet: Ratchet) -> None:
        kind = str(compiled.schema.get("type") or "")
        if self.budget.remaining <= 0:
            message = f"validation failed due to running out of cost budget, {_NO_MORE}"
            self.errors.append(RuleError(path, "Invalid", kind, message))
            raise _Stop
        for rule in compiled.rules:
            if rule.failure:
                self.errors.append(RuleError(path, "Invalid", kind, f"rule compile error: {rule.failure}"))
            elif rule.program is not None and not (rule.uses_old and old is None and not rule.optional_old):
                self.rule(rule, compiled, value, old, path, kind, ratchet)

    def rule(
        self, rule: Rule, compiled: CompiledSchema, value: Any, old: Any, path: str, kind: str, ratchet: Ratchet
    ) -> None:
        try:
            variables = _variables(rule, compiled, value, old)
            result = rule.program.evaluate(variables, self.budget) if rule.program else True
        except CostExceeded as error:
            self.errors.append(RuleError(path, "Invalid", kind, _too_dear(rule, error)))
            raise _Stop from error
        except EvaluationError as error:
            self.errors.append(RuleError(path, "Invalid", kind, _failed(rule, str(error))))
            return
        if result is not True:
            field = _joined(path, f".{rule.field_path}") if rule.field_path else path
            message = self.message(rule, variables, field, kind)
            warning = not rule.uses_old and ratchet.unchanged()
            self.errors.append(
                RuleError(field, _TYPES.get(rule.declared.get("reason") or "", "Invalid"), kind, message, warning)
            )

    def message(self, rule: Rule, variables: dict[str, Any], path: str, kind: str) -> str:
        """Return the message of a broken rule: its expression's, where that gives a usable one."""
        declared = str(rule.declared.get("message") or "").strip() or f"failed rule: {rule.text()}"
        if rule.message is None:
            return declared
        try:
            text = rule.message.evaluate(variables, self.budget)
        except BudgetExhausted as error:
            message = f"messageExpression evaluation failed due to running out of cost budget, {_NO_MORE}"
            self.errors.append(RuleError(path, "Invalid", kind, message))
            raise _Stop from error
        except CostExceeded as error:
            expression = rule.declared["messageExpression"]
            message = f'{_NO_MORE} due to call cost exceeds limit for messageExpression: "{expression}"'
            self.errors.append(RuleError(path, "Invalid", kind, message))
            raise _Stop from error
        except EvaluationError:
            return declared
        text = str(text).strip()
        usable = text and "\n" not in text and len(text.encode(errors="replace")) <= LONGEST_MESSAGE
        return text if usable else declared


def _variables(rule: Rule, compiled: CompiledSchema, value: Any, old: Any) -> dict[str, Any]:
    read = compiled.read or (lambda each: each)
    variables = {"self": read(value)}
    if rule.optional_old:
        variables["oldSelf"] = NONE if old is None else Optional(present=True, value=read(old))
    elif rule.uses_old:
        variables["oldSelf"] = read(old)
    return variables


def _too_dear(rule: Rule, error: CostExceeded) -> str:
    if isinstance(error, BudgetExhausted):
        return f"validation failed due to running out of cost budget, {_NO_MORE}"
    return f"'{error}': {_NO_MORE} due to call cost exceeds limit for rule: {rule.text()}"


def _failed(rule: Rule, error: str) -> str:
    if error.startswith("no such overload"):
        detail = "call arguments did not match a supported operator, function or macro signature for rule"
        return f"'{error}': {detail}: {rule.text()}"
    return f"{error} evaluating rule: {rule.text()}"


def _below(
    compiled: CompiledSchema, value: Any, old: Any, ratchet: Ratchet
) -> Iterator[tuple[CompiledSchema, str, Any, Any, Ratchet]]:
    """Yield schema, path element, value, old value and ratchet of what is below and has rules."""
    if isinstance(value, list) and compiled.items is not None:
        known = OldItems(compiled.schema, old)
        for at, item in enumerate(value):
            before = known.find(item)
            yield compiled.items, f"[{at}]", item, before, ratchet.item(item, before)
    if not isinstance(value, dict):
        return
    before = old if isinstance(old, dict) else {}
    if compiled.entries is not None:
        for key, each in value.items():
            yield compiled.entries, f"[{key}]", each, before.get(key), ratchet.key(key)
    for name, child in compiled.properties.items():
        if name in value:
            yield child, f".{name}", value[name], before.get(name), ratchet.key(name)


def _joined(path: str, part: str) -> str:
    return path + part if path else part.removeprefix(".")
