"""What policies and match conditions name: the request, lazily computed variables, an authorizer that answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from minik8s_modules.cel import (
    DYN,
    INT,
    AuthorizerValue,
    Budget,
    CelTypeError,
    CostExceeded,
    Decision,
    EvaluationError,
    Question,
    compile,  # noqa: A004 - what is tested
)
from minik8s_modules.cel.admission import LazyFields, environment

_REQUEST = {
    "operation": "UPDATE", "name": "web", "namespace": "shop", "resource": {"group": "apps", "version": "v1",
    "resource": "deployments"}, "userInfo": {"username": "ann", "groups": ["dev"], "extra": {"k": ["v"]}},
    "dryRun": False, "options": {"kind": "UpdateOptions"},
}  # fmt: skip


class Asked:
    """An authorizer that lets pods be read, and notes what it was asked."""

    def __init__(self) -> None:
        self.questions: list[Question] = []

    def authorize(self, question: Question) -> Decision:
        """Answer, and note the question."""
        self.questions.append(question)
        return Decision(allowed=question.resource == "pods" and question.verb == "get", reason="rule", error="")


@pytest.mark.parametrize(
    "source",
    [
        "request.operation == 'UPDATE' && request.resource.group == 'apps' && 'dev' in request.userInfo.groups",
        "!has(request.subResource) && !request.dryRun && request.options.kind == 'UpdateOptions'",
        "object.spec.replicas <= 5 && object.metadata.labels['app'] == 'web' && oldObject == null",
        "namespaceObject.metadata.name == 'shop' && namespaceObject.metadata.creationTimestamp.getFullYear() == 2024",
        "object.?spec.?nosuch.orValue(3) == 3 && !has(object.spec.nosuch)",
        "request.userInfo.extra['k'].exists(v, v == 'v')",
    ],
)  # fmt: skip
def test_what_an_expression_of_admission_may_name(source: str) -> None:
    values = {
        "object": {"spec": {"replicas": 3}, "metadata": {"labels": {"app": "web"}}},
        "oldObject": None,
        "request": _REQUEST,
        "namespaceObject": {"metadata": {"name": "shop", "creationTimestamp": "2024-01-01T00:00:00Z"}},
    }
    assert compile(source, environment()).evaluate(values) is True


@pytest.mark.parametrize("source", ["request.nosuch == 1", "params.x == 1", "variables.x == 1", "request.name == 1"])
def test_what_is_not_there_is_told_when_it_is_compiled(source: str) -> None:
    with pytest.raises(CelTypeError):
        compile(source, environment())


def test_variables_are_computed_when_they_are_named_and_once() -> None:
    computed: list[str] = []

    def compute(name: str, value: Any) -> Any:
        computed.append(name)
        return value

    lazy = LazyFields({"a": lambda: compute("a", 1), "b": lambda: compute("b", 2), "n": lambda: None})
    kinds = environment(params=DYN, variables={"a": INT, "b": INT, "n": DYN})
    program = compile("variables.a + variables.a == 2 || variables.b == 2", kinds)
    assert program.evaluate({"variables": lazy}) is True
    assert computed == ["a"]
    assert compile("variables.n == null", kinds).evaluate({"variables": lazy}) is True


def test_a_variable_that_fails_fails_whoever_names_it() -> None:
    def fail() -> Any:
        raise EvaluationError("no such key: x")

    kinds = environment(variables={"a": INT})
    lazy = LazyFields({"a": fail})
    assert compile("variables.a == 1 || true", kinds).evaluate({"variables": lazy}) is True
    with pytest.raises(EvaluationError, match="no such key: x"):
        compile("variables.a == 1", kinds).evaluate({"variables": lazy})


_SCALE = Question(group="apps", resource="deployments", subresource="scale", name="web")


@pytest.mark.parametrize(
    ("source", "question", "result"),
    [
        ("group('').resource('pods').namespace('shop').check('get').allowed()",
         Question(verb="get", resource="pods", namespace="shop"), True),
        ("group('apps').resource('deployments').subresource('scale').name('web').check('update').allowed()",
         replace(_SCALE, verb="update"), False),
        ("serviceAccount('shop', 'bot').group('apps').resource('deployments').check('get').allowed()",
         Question(verb="get", group="apps", resource="deployments", service_account=("shop", "bot")), False),
        ("path('/healthz').check('get').reason() == 'rule'", Question(verb="get", path="/healthz"), True),
        ("requestResource.check('delete').errored()", replace(_SCALE, verb="delete"), False),
        ("group('').resource('pods').labelSelector('a=b').fieldSelector('c=d').check('list').allowed()",
         Question(verb="list", resource="pods", label_selector="a=b", field_selector="c=d"), False),
    ],
)  # fmt: skip
def test_the_authorizer_is_asked_what_the_expression_says(source: str, question: Question, result: object) -> None:
    asked = Asked()
    value = AuthorizerValue(asked, request=_SCALE)
    assert compile(f"authorizer.{source}", environment()).evaluate({"authorizer": value}) is result
    assert asked.questions == [question]


def test_two_checks_an_expression_are_what_its_budget_allows() -> None:
    check = "authorizer.group('').resource('pods').check('get').allowed()"
    values = {"authorizer": AuthorizerValue(Asked())}
    budget = Budget()
    assert compile(f"{check} && {check}", environment()).evaluate(values, budget) is True
    assert budget.remaining < 10_000_000 - 700_000
    with pytest.raises(CostExceeded):
        compile(f"{check} && {check} && {check}", environment()).evaluate(values, Budget())
