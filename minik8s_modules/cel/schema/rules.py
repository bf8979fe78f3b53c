"""One rule of a schema: what is checked when it is declared, and what it becomes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from minik8s_modules.cel import types
from minik8s_modules.cel.checking.estimate import estimate
from minik8s_modules.cel.environment import Environment
from minik8s_modules.cel.errors import CompileError
from minik8s_modules.cel.program import Program, compile  # noqa: A004 - what it does in every CEL library
from minik8s_modules.cel.schema.field_path import normalized
from minik8s_modules.cel.types import Type

REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_NEWLINE = re.compile(r"[\n\r]")


@dataclass(frozen=True)
class SchemaError:
    """What is wrong with a schema. ``type``: Required, Invalid, Forbidden, NotSupported or InternalError."""

    path: str
    type: str
    value: Any
    detail: str


@dataclass(frozen=True)
class Rule:
    """A compiled rule. ``failure`` is why it could not be compiled: then ``program`` is None."""

    declared: Mapping[str, Any]
    program: Program | None = None
    failure: str = ""
    message: Program | None = None
    message_failure: str = ""
    field_path: str = ""
    cost: int = 0
    message_cost: int = 0

    @property
    def uses_old(self) -> bool:
        """Whether it compares with the old value."""
        return self.program is not None and self.program.uses("oldSelf")

    @property
    def optional_old(self) -> bool:
        """Whether it also runs where there is no old value."""
        return bool(self.declared.get("optionalOldSelf"))

    def text(self) -> str:
        """What names the rule in errors: its message, or the rule itself."""
        return str(self.declared.get("message") or self.declared["rule"]).strip()


def compile_rule(declared: Mapping[str, Any], schema: Mapping[str, Any], kind: Type) -> Rule:
    """Return the rule of a schema whose declared type is ``kind``; it carries its own failures."""
    old = types.optional_of(kind) if declared.get("optionalOldSelf") else kind
    environment = Environment({"self": kind, "oldSelf": old})
    if not str(declared.get("rule") or "").strip():
        return Rule(declared)
    program, failure = _compiled(declared["rule"], environment, types.BOOL, "cel expression must evaluate to a bool")
    if program is None:
        return Rule(declared, failure=f"compilation failed: {failure}" if failure.startswith("ERROR") else failure)
    message, message_failure = None, ""
    if expression := declared.get("messageExpression"):
        wanted = "messageExpression must evaluate to a string"
        message, message_failure = _compiled(expression, environment, types.STRING, wanted)
        if message_failure.startswith("ERROR"):
            message_failure = f"messageExpression compilation failed: {message_failure}"
    return Rule(
        declared,
        program.slim(),
        message=message.slim() if message else None,
        message_failure=message_failure,
        field_path=_path(declared, schema),
        cost=estimate(program.tree, kind).most,
        message_cost=estimate(message.tree, kind).most if message else 0,
    )


def _compiled(source: str, environment: Environment, wanted: Type, refusal: str) -> tuple[Program | None, str]:
    try:
        program = compile(source, environment)
    except CompileError as error:
        return None, str(error)
    return (program, "") if program.type == wanted else (None, refusal)


def _path(declared: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    try:
        return normalized(declared.get("fieldPath") or "", schema)
    except ValueError:
        return ""


def declaration_errors(rule: Mapping[str, Any], schema: Mapping[str, Any], path: str) -> Iterator[SchemaError]:
    """Yield what is wrong with a rule apart from its expressions."""
    text, message = str(rule.get("rule") or "").strip(), str(rule.get("message") or "").strip()
    if not text:
        yield SchemaError(f"{path}.rule", "Required", "", "rule is not specified")
    elif rule.get("message") and not message:
        yield SchemaError(f"{path}.message", "Invalid", rule["message"], "message must be non-empty if specified")
    elif _NEWLINE.search(message):
        yield SchemaError(f"{path}.message", "Invalid", rule["message"], "message must not contain line breaks")
    elif _NEWLINE.search(text) and not message:
        detail = "message must be specified if rule contains line breaks"
        yield SchemaError(f"{path}.message", "Required", "", detail)
    if rule.get("messageExpression") and not rule["messageExpression"].strip():
        detail = "messageExpression must be non-empty if specified"
        yield SchemaError(f"{path}.messageExpression", "Required", "", detail)
    if rule.get("reason") is not None and rule["reason"] not in REASONS:
        supported = ", ".join(f'"{reason}"' for reason in REASONS)
        yield SchemaError(f"{path}.reason", "NotSupported", rule["reason"], f"supported values: {supported}")
    if rule.get("fieldPath"):
        yield from _field_path_errors(rule["fieldPath"], schema, f"{path}.fieldPath")


def _field_path_errors(value: str, schema: Mapping[str, Any], path: str) -> Iterator[SchemaError]:
    if not value.strip():
        yield SchemaError(path, "Invalid", value, "fieldPath must be non-empty if specified")
    if _NEWLINE.search(value):
        yield SchemaError(path, "Invalid", value, "fieldPath must not contain line breaks")
    try:
        normalized(value, schema)
    except ValueError:
        yield SchemaError(path, "Invalid", value, "fieldPath must be a valid path")
