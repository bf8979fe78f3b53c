"""Cases of CEL from upstream's own tables (tests/cases/cel), and what applies one rule to one object.

Taken from k8s.io/apiextensions-apiserver v0.32.3, pkg/apiserver/schema/cel: validation_test.go,
celcoststability_test.go, compilation_test.go. Only facts: rules, schemas, objects, and what is expected of them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from minik8s_modules.cel import Budget, CompiledSchema, RuleError, validate
from minik8s_modules.cel.schema.compiling import RULES, Findings, Place, compile_node
from minik8s_modules.cel.schema.declared import declare

FOLDER = Path(__file__).parent.parent / "cases" / "cel"


def cases(name: str) -> list[dict[str, Any]]:
    """Return the cases of a file."""
    found: list[dict[str, Any]] = json.loads((FOLDER / f"{name}.json").read_text())
    return found


def compiled(schema: dict[str, Any], *, root: bool, path: str = "root") -> CompiledSchema:
    """Return the compiled schema, whatever is wrong with it; ``root``: whether it is a whole resource."""
    return compile_node(schema, schema, Place(path, declare(schema, "selfType", root=root)), Findings(), root=root)


def with_rule(schema: dict[str, Any], rule: str) -> dict[str, Any]:
    """Return the schema with one rule; one of several lines must have a message."""
    return {**schema, RULES: [{"rule": rule, "message": "broken"} if "\n" in rule else {"rule": rule}]}


def apply(
    schema: dict[str, Any], rule: str, value: Any, old: Any = None, *, root: bool, budget: Budget
) -> list[RuleError]:
    """Return what a rule says about an object."""
    return validate(compiled(with_rule(schema, rule), root=root), value, old, "root", budget, ratcheting=False)


def printed(error: RuleError) -> str:
    """Return an error as upstream prints it."""
    if error.type == "Invalid":
        return f'{error.path}: Invalid value: "{error.value}": {error.message}'
    if error.type == "Duplicate":
        return f'{error.path}: Duplicate value: "{error.value}"'
    return f"{error.path}: {error.type}: {error.message}"
