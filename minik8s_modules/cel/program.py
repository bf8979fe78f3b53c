"""A compiled expression, and the budget it runs on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from minik8s_modules.cel.checking.checker import Checked, check
from minik8s_modules.cel.checking.estimate import estimate
from minik8s_modules.cel.checking.ranges import Range
from minik8s_modules.cel.environment import Environment
from minik8s_modules.cel.errors import (
    CelSyntaxError,
    CostExceeded,
    EvaluationError,
    ProgramError,
    issue_at,
    no_such_overload,
)
from minik8s_modules.cel.running.attributes import missing_variable
from minik8s_modules.cel.running.builder import PER_EXPRESSION, Builder
from minik8s_modules.cel.running.code import FIRST_SLOT, SPENT, Frame, Run
from minik8s_modules.cel.syntax.nodes import Node
from minik8s_modules.cel.syntax.parser import MAX_DEPTH, parse
from minik8s_modules.cel.types import Type
from minik8s_modules.cel.values import allow_comparisons

# cost units (apiserver, pkg/apis/cel/config.go)
PER_OBJECT = 10_000_000
PER_MATCH_CONDITIONS = 2_500_000


class BudgetExhausted(CostExceeded):
    """Several expressions together used more than they share."""


@dataclass
class Budget:
    """What several expressions may spend together; one of them at most ``per_expression``."""

    remaining: int = PER_OBJECT
    per_expression: int = PER_EXPRESSION

    def spend(self, cost: int) -> None:
        """Take a cost away; raises BudgetExhausted when it is more than what remains."""
        self.remaining -= cost
        if self.remaining < 0:
            raise BudgetExhausted("running out of cost budget")


@dataclass(frozen=True)
class Program:
    """A compiled expression, ``type`` being that of its result. It may be evaluated by many threads at once."""

    source: str
    type: Type
    tree: Node
    names: frozenset[str]
    run: Run
    cost: int
    slots: Mapping[str, int] = field(default_factory=dict)
    frame_size: int = FIRST_SLOT

    def estimate(self, root: Type | None = None) -> Range:
        """Return the least and the most cost, ``root`` being the declared type of ``self`` where there is a schema."""
        return estimate(self.tree, root)

    def slim(self) -> Program:
        """Return the program without its tree, which is a third of its size: it can no longer be estimated."""
        return replace(self, tree=Node(position=0))

    def uses(self, name: str) -> bool:
        """Return whether the expression names a variable of its environment."""
        return name in self.names

    def evaluate(self, variables: Mapping[str, Any], budget: Budget | None = None) -> Any:
        """Return the value for these variables (JSON, or values of ``cel.values``).

        Raises EvaluationError for an error of CEL, CostExceeded when this expression costs more than one may, and
        BudgetExhausted when the budget's owner has nothing left.
        """
        budget = budget or Budget()
        allow_comparisons()
        frame: Frame = [self.cost, budget.per_expression, *([None] * (self.frame_size - FIRST_SLOT))]
        for name, slot in self.slots.items():
            try:
                frame[slot] = variables[name]
            except KeyError:
                raise missing_variable(name) from None
        try:
            result = self.run(frame)
        except RecursionError:
            raise EvaluationError("expression nests too deeply to be evaluated") from None
        except (AttributeError, TypeError) as error:  # a value that is not of its declared type
            raise no_such_overload() from error
        finally:
            budget.spend(frame[SPENT])
        if frame[SPENT] > budget.per_expression:
            raise CostExceeded
        return result


def compile(source: str, environment: Environment) -> Program:  # noqa: A001 - what it does in every CEL library
    """Return the program of an expression; raises CelSyntaxError or CelTypeError."""
    tree = parse(source)
    try:
        return _built(source, check(source, tree, environment))
    except RecursionError:
        message = f"max recursion depth exceeded: {MAX_DEPTH}"
        raise CelSyntaxError(source, [issue_at(source, 0, message)]) from None


def _built(source: str, checked: Checked) -> Program:
    builder = Builder()
    try:
        code = builder.build(checked.tree)
    except EvaluationError as error:
        raise ProgramError(f"program instantiation failed: {error}") from error
    return Program(
        source, checked.tree.type, checked.tree, checked.names, code.run, code.cost, dict(builder.slots), builder.size
    )
