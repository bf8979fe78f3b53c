"""Upstream's tables, whole: what rules give, what they cost while they run, and what they are estimated to cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from minik8s_modules import cel
from minik8s_modules.cel import Budget, Environment
from minik8s_modules.cel.schema.declared import declare
from tests.support.cel_cases import apply, cases, compiled, printed

_EXPRESSIONS = cases("expressions")


def _valid() -> Iterator[Any]:
    for case in _EXPRESSIONS:
        for rule in case.get("valid", []):
            yield pytest.param(case, rule, id=f"{case['name']}: {rule}"[:120])


def _errors(name: str) -> Iterator[Any]:
    for case in cases(name):
        for rule, text in case.get("errors", {}).items():
            yield pytest.param(case, rule, text, id=f"{case['name']}: {rule}"[:120])


def _costs(name: str) -> Iterator[Any]:
    for case in cases(name):
        for rule, cost in case["costs"].items():
            yield pytest.param(case, rule, cost, id=f"{case['name']}: {rule}"[:120])


@pytest.mark.parametrize(("case", "rule"), list(_valid()))
def test_a_valid_rule_holds(case: dict[str, Any], rule: str) -> None:
    budget = Budget(case.get("budget") or cel.PER_OBJECT)
    before = budget.remaining
    assert (
        apply(case["schema"], rule, case["object"], case.get("old"), root=case.get("root", False), budget=budget) == []
    )
    spent = before - budget.remaining
    if case.get("skipped"):
        assert spent == 0
    elif "cost" in case:
        assert spent == case["cost"]


@pytest.mark.parametrize(("case", "rule", "text"), list(_errors("expressions")))
def test_an_invalid_rule_is_told_in_upstreams_words(case: dict[str, Any], rule: str, text: str) -> None:
    budget = Budget(case.get("budget") or cel.PER_OBJECT)
    errors = apply(case["schema"], rule, case["object"], case.get("old"), root=True, budget=budget)
    assert errors
    assert all(text in printed(error) for error in errors), errors


@pytest.mark.parametrize(("case", "rule", "cost"), list(_costs("costs")))
def test_running_costs_what_it_costs_upstream(case: dict[str, Any], rule: str, cost: int) -> None:
    budget = Budget()
    assert apply(case["schema"], rule, case["object"], root=True, budget=budget) == []
    assert cel.PER_OBJECT - budget.remaining == cost


@pytest.mark.parametrize(("case", "rule", "cost"), list(_costs("estimates")))
def test_the_estimate_is_upstreams(case: dict[str, Any], rule: str, cost: int) -> None:
    kind = declare(case["schema"], "selfType", root=False)
    assert kind is not None
    program = cel.compile(rule, Environment({"self": kind, "oldSelf": kind}))
    assert program.estimate(kind).most == cost


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in cases("estimations")])
def test_bounds_of_a_schema_bound_the_estimate(case: dict[str, Any]) -> None:
    for schema, cost, above in (
        (case["schema"], case.get("cost"), case.get("above")),
        (case["bounded"], case.get("bounded_cost"), case.get("bounded_above")),
    ):
        rule = _first_rule(compiled(schema, root=True))
        assert rule.failure == ""
        if cost is not None:
            assert rule.cost == cost
        if above is not None:
            assert rule.cost >= above


def _first_rule(node: Any) -> Any:
    if node.rules:
        return node.rules[0]
    below = [node.items, node.entries, *node.properties.values()]
    return next(rule for each in below if each is not None for rule in [_first_rule(each)] if rule)
