"""Which warnings a policy's status has of the kinds its rules name (upstream: typechecking_test.go)."""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules import cel
from minik8s_modules.api.custom.kinds import kinds_of
from minik8s_modules.api.kind import Registry
from minik8s_modules.api.kinds import KINDS
from minik8s_modules.apiserver.policies.typechecking import kinds_named, type_of, warnings_of

DEPLOYMENTS = {"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"], "operations": ["*"]}


def policy(*validations: dict[str, str], rules: list[dict[str, Any]] | None = None, **spec: Any) -> dict[str, Any]:
    constraints = {"resourceRules": [DEPLOYMENTS] if rules is None else rules}
    return {"spec": {"matchConstraints": constraints, "validations": [*validations], **spec}}


def type_warnings(expression: str, registry: Registry = KINDS, **more: Any) -> list[str]:
    return [each["warning"] for each in warnings_of(policy({"expression": expression}, **more), registry)]


@pytest.fixture
def registry() -> Registry:
    """With a custom kind."""
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}, "any": {}},
    }
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "widgets", "kind": "Widget", "singular": "widget", "listKind": "WidgetList"}
    definition = {
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Cluster", "names": names, "versions": [version]},
        "status": {
            "acceptedNames": names,
            "conditions": [{"type": "NamesAccepted", "status": "True"}, {"type": "Established", "status": "True"}],
        },
    }
    return KINDS.with_custom(kinds_of(definition))


def test_a_field_that_a_kind_does_not_have_is_told_in_kubernetes_words() -> None:
    found = warnings_of(
        policy({"expression": "true"}, {"expression": "object.spec.replica > 1", "messageExpression": "object.foo"}),
        KINDS,
    )
    assert [each["fieldRef"] for each in found] == [
        "spec.validations[1].expression", "spec.validations[1].messageExpression",
    ]  # fmt: skip
    assert found[0]["warning"] == (
        "apps/v1, Kind=Deployment: compilation failed: ERROR: <input>:1:12: undefined field 'replica'\n"
        " | object.spec.replica > 1\n | ...........^\n"
    )


@pytest.mark.parametrize(
    "expression",
    [
        "object.spec.replicas > 1",
        "object.metadata.labels['a'] == oldObject.metadata.name",
        "object.spec.template.spec.containers.all(c, c.resources.limits['cpu'] == '1')",
        "object.spec.strategy.rollingUpdate.maxSurge == 1",
        "has(object.spec.template.spec.containers[0].livenessProbe)",
        "request.userInfo.username == '' && namespaceObject.metadata.name == '' && has(request.name)",
    ],
)
def test_what_fits_is_not_warned_of(expression: str) -> None:
    assert type_warnings(expression) == []


def test_types_are_compared() -> None:
    assert "no matching overload for '_>_' applied to '(int, string)'" in type_warnings("object.spec.replicas > '1'")[0]


def test_each_kind_is_told_by_itself_in_order() -> None:
    rule = {"apiGroups": ["batch", ""], "apiVersions": ["v1"], "resources": ["pods", "jobs"], "operations": ["*"]}
    (found,) = type_warnings("object.spec.replicas > 1", rules=[rule, DEPLOYMENTS])
    assert [line.split(": ")[0] for line in found.splitlines() if "Kind=" in line] == [
        "/v1, Kind=Pod", "batch/v1, Kind=Job",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "change", [{"apiGroups": ["*"]}, {"apiVersions": ["*"]}, {"resources": ["*"]}, {"resources": ["deployments/scale"]}]
)
def test_wildcards_and_subresources_name_no_kind(change: dict[str, Any]) -> None:
    assert kinds_named(policy(rules=[DEPLOYMENTS | change])["spec"], KINDS) == []


def test_custom_kinds_and_params_are_checked(registry: Registry) -> None:
    rule = {"apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["widgets"], "operations": ["*"]}
    assert type_warnings("object.spec.size > 1 && object.metadata.name == ''", registry, rules=[rule]) == []
    assert "undefined field 'weight'" in type_warnings("object.spec.weight > 1", registry, rules=[rule])[0]
    kind = {"apiVersion": "example.com/v1", "kind": "Widget"}
    assert "undefined field 'weight'" in type_warnings("params.spec.weight > 1", registry, paramKind=kind)[0]
    assert type_warnings("params.spec.size > object.spec.replicas", registry, paramKind=kind) == []
    assert type_warnings("params.anything", KINDS, paramKind=kind) == []


def test_variables_have_the_types_of_what_they_are_made_of() -> None:
    variables = [{"name": "spec", "expression": "object.spec"}, {"name": "broken", "expression": "object.nope"}]
    assert type_warnings("variables.spec.replicas > 1 && variables.broken", variables=variables) == []
    assert "undefined field 'replica'" in type_warnings("variables.spec.replica > 1", variables=variables)[0]


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is compiled from now on."""
    compiled: list[str] = []
    compile_ = cel.compile

    def compiling(source: str, environment: cel.Environment) -> cel.Program:
        compiled.append(source)
        return compile_(source, environment)

    monkeypatch.setattr(cel, "compile", compiling)
    return compiled


def test_variables_are_compiled_once_for_each_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = counted(monkeypatch)
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["*"]}
    validations = [{"expression": f"variables.a > {each}", "messageExpression": "'no'"} for each in range(20)]
    variables = [{"name": "a", "expression": "1 + 1"}, {"name": "b", "expression": "variables.a"}]
    assert warnings_of(policy(*validations, rules=[pods, DEPLOYMENTS], variables=variables), KINDS) == []
    assert (compiled.count("1 + 1"), compiled.count("variables.a"), len(compiled)) == (2, 2, 2 * (2 + 2 * 20))


@pytest.mark.parametrize("many", ["validations", "variables"])
def test_what_would_cost_too_much_is_given_up_and_said(monkeypatch: pytest.MonkeyPatch, many: str) -> None:
    compiled = counted(monkeypatch)
    validations = [{"expression": "object.nope"}, *({"expression": "true"} for _ in range(20_000))]
    variables = [{"name": f"v{each}", "expression": "1"} for each in range(20_000)]
    given = policy(*validations) if many == "validations" else policy(validations[0], variables=variables)
    *before, last = warnings_of(given, KINDS)
    assert "not checked, nor is what follows" in last["warning"]
    assert len(compiled) < 5000
    if many == "validations":
        assert ["undefined field 'nope'" in each["warning"] for each in before] == [True]
        assert last["fieldRef"] == f"spec.validations[{len(compiled)}].expression"
    else:
        assert (before, last["fieldRef"]) == ([], "spec.validations[0].expression")


def test_every_kind_has_a_type() -> None:
    for kind in KINDS.all():
        assert type_of(kind).kind == "object", kind
