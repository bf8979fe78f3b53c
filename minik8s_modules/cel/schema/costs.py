"""How much the rules of a schema may cost, as far as it can be told before there is an object."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from minik8s_modules.cel.checking.ranges import MOST
from minik8s_modules.cel.schema.rules import SchemaError

MOST_A_RULE = 10_000_000
MOST_A_SCHEMA = 100_000_000
_NAMED = 4  # rules that are named when a schema costs too much
_ROUGH, _CLOSE = 100.0, 1.5  # factors from which, and up to which, the message is worded otherwise


def cardinality_below(schema: Mapping[str, Any], cardinality: int | None) -> int | None:
    """Return how often what is below a schema can occur, None when nothing bounds it."""
    if cardinality is None:
        return None
    kind = schema.get("type")
    most: int | None = 1
    if kind == "object" and schema.get("additionalProperties") is not None:
        most = schema.get("maxProperties")
    elif kind == "array":
        most = schema.get("maxItems")
    return None if most is None else min(cardinality * max(most, 0), MOST)


def rule_cost(cost: int, cardinality: int | None, unbounded: int) -> int:
    """Return what all evaluations of a rule on one object can cost."""
    return min(cost * (unbounded if cardinality is None else cardinality), MOST)


def cost_error(name: str, cost: int, limit: int) -> str:
    """Return the message about a cost beyond its limit."""
    factor = cost / limit
    text = f"{factor:.6f}x" if factor < _CLOSE else f"{factor:.1f}x"
    if factor > _ROUGH:
        text = "more than 100x"
    return (
        f"{name} exceeds budget by factor of {text} (try simplifying the rule, or adding maxItems, maxProperties, "
        "and maxLength where arrays, maps, and strings are declared)"
    )


@dataclass
class TotalCost:
    """The cost of all rules of a schema, and which are the most expensive."""

    total: int = 0
    rules: list[tuple[int, str]] = field(default_factory=list)

    def add(self, path: str, cost: int) -> None:
        """Count a rule."""
        self.total = min(self.total + cost, MOST)
        if cost >= MOST_A_SCHEMA // 100:
            self.rules = sorted([*self.rules, (cost, path)], key=lambda each: -each[0])[:_NAMED]

    def errors(self, path: str) -> Iterator[SchemaError]:
        """Yield what is wrong when all rules together cost too much."""
        if self.total <= MOST_A_SCHEMA:
            return
        for _, rule in self.rules:
            detail = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
            yield SchemaError(rule, "Forbidden", None, detail)
        name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        yield SchemaError(path, "Forbidden", None, cost_error(name, self.total, MOST_A_SCHEMA))
