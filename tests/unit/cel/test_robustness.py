"""Text that is no expression, expressions that would run away: each ends in an error, none hangs or crashes."""

from __future__ import annotations

import contextlib
import random
import string

import pytest

from minik8s_modules.cel import (
    DYN,
    Budget,
    CelError,
    CelSyntaxError,
    CompileError,
    CostExceeded,
    Environment,
    EvaluationError,
    compile,  # noqa: A004 - what is tested
)
from tests.support.cel_cases import cases

ENVIRONMENT = Environment({"self": DYN, "x": DYN})
_PIECES = [
    *"()[]{}.,?:!+-*/%<>=&|'\"\\ \n\t\x00é👑",
    *("&&", "||", "==", "!=", "<=", "in", "self", "x", "1", "0x", "1u", "1.5e", "r'", "b'", '"""', "has(", ".all(x,"),
    *(".map(", ".?a", "[?0]", "optMap(", "true", "null", "size(", "matches('", "duration('", "9" * 30, "//"),
]


def _try(source: str) -> None:
    """Compile and evaluate; any failure that is none of CEL's own ends the test."""
    with contextlib.suppress(CelError):
        compile(source, ENVIRONMENT).evaluate({"self": {"a": [1, "b"]}, "x": 1}, Budget())


@pytest.mark.parametrize("seed", range(300))
def test_random_text_is_an_expression_or_an_error(seed: int) -> None:
    picked = random.Random(seed)
    _try("".join(picked.choice(_PIECES) for _ in range(picked.randint(1, 40))))


@pytest.mark.parametrize("seed", range(300))
def test_a_rule_with_a_letter_changed_is_an_expression_or_an_error(seed: int) -> None:
    picked = random.Random(seed)
    rules = [rule for case in cases("expressions") for rule in case.get("valid", [])]
    rule = picked.choice(rules)
    at = picked.randrange(len(rule))
    letter = picked.choice(string.printable)
    _try(
        picked.choice([rule[:at] + letter + rule[at:], rule[:at] + rule[at + 1 :], rule[:at] + letter + rule[at + 1 :]])
    )


@pytest.mark.parametrize(
    "source",
    [
        "(" * 300 + "1" + ")" * 300,
        "[" * 300 + "]" * 300,
        "!" * 5000 + "(" * 260 + "true" + ")" * 260,
        "1" + " + 1" * 300,
        "self" + ".a" * 300,
        "x ? 1 : " * 300 + "2",
        "self" + ".all(y, y" * 260 + ")" * 260,
        "true" + " == true" * 260,
    ],
)
def test_what_nests_too_deeply_is_refused(source: str) -> None:
    with pytest.raises(CelSyntaxError, match="max recursion depth exceeded"):
        compile(source, ENVIRONMENT)


def test_250_operators_are_as_deep_as_upstream_allows() -> None:
    source = " == ".join(["self.a"] * 250)
    assert compile(source, ENVIRONMENT).evaluate({"self": {"a": True}}) is True


def test_text_beyond_the_limit_is_refused() -> None:
    with pytest.raises(CelSyntaxError, match="size exceeds limit"):
        compile("1 + " * 30_000 + "1", ENVIRONMENT)


@pytest.mark.parametrize(
    "source",
    [
        "self.all(a, self.all(b, self.all(c, self.all(d, a + b + c + d >= 0))))",
        "optional.of('aaaaaaaa')" + ".optMap(v, v + v)" * 60 + ".hasValue()",
        "optional.of([1])" + ".optMap(v, v + v)" * 60 + ".hasValue()",
        "optional.of([1])" + ".optMap(v, [v, v])" * 60 + ".optMap(v, v == v).hasValue()",
        "self.map(a, self.map(b, self.map(c, self.map(d, 'x')))).size() > 0",
        "optional.of('a')" + ".optMap(v, v.replace('', v))" * 30 + ".hasValue()",
    ],
)
def test_what_runs_away_is_stopped(source: str) -> None:
    budget = Budget()
    with pytest.raises(CostExceeded):
        compile(source, ENVIRONMENT).evaluate({"self": list(range(200))}, budget)


@pytest.mark.parametrize("item", ["x+x", "x==1", "[]", "{1:[]}", "x<2?1:2", "[1].map(y,y)"])
def test_the_longest_text_compiles(item: str) -> None:
    count = 99_000 // (len(item) + 1)
    program = compile(f"[{','.join([item] * count)}].size()", ENVIRONMENT)
    assert program.evaluate({"x": 1}, Budget()) == count


def test_a_hundred_mistakes_are_told_and_the_rest_counted() -> None:
    with pytest.raises(CompileError, match=r"\n900 more errors were truncated$") as caught:
        compile(f"[{','.join(['nosuch'] * 1000)}]", ENVIRONMENT)
    assert str(caught.value).count("undeclared reference") == 100


def test_a_term_that_fails_is_evaluated_once() -> None:
    source = "self.nosuch"
    for _ in range(60):
        source = f"({source} && true)"
    budget = Budget()
    with pytest.raises(EvaluationError, match="no such key"):
        compile(source, ENVIRONMENT).evaluate({"self": {}}, budget)
    assert budget.remaining > 9_999_000


@pytest.mark.parametrize("rule", ["self.a.b == 'c'", "self[0] > 1", "self + 1 == 2", "self.all(e, e.f)", "self < 'a'"])
@pytest.mark.parametrize("value", [None, 1, "a", [None], {"a": None}, [{}], True, 1.5], ids=str)
def test_values_of_another_type_are_an_error_of_cel_or_differ(rule: str, value: object) -> None:
    program = compile(rule, ENVIRONMENT)
    with contextlib.suppress(EvaluationError):
        assert program.evaluate({"self": value}) is (rule in {"self + 1 == 2", "self.all(e, e.f)"} or value == "")


@pytest.mark.parametrize(
    ("source", "line", "column"), [("1 +\n  nosuch", 2, 2), ("'é' + nosuch", 1, 6), ("size(1)", 1, 4)]
)
def test_a_mistake_is_told_with_its_place(source: str, line: int, column: int) -> None:
    with pytest.raises(CompileError) as caught:
        compile(source, ENVIRONMENT)
    issue = caught.value.issues[0]
    assert (issue.line, issue.column) == (line, column)
    assert f"<input>:{line}:{column + 1}:" in str(caught.value)
