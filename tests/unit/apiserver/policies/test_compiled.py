"""Which policies a write concerns, and what they come to."""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.api.kinds import CONFIG_MAP, LEGACY_REPLICA_SET, REPLICA_SET, VALIDATING_ADMISSION_POLICY, Kind
from minik8s_modules.apiserver.policies.compiled import Policy, compiled, concerned
from minik8s_modules.apiserver.policies.evaluating import Denial, evaluate
from minik8s_modules.apiserver.webhooks.reviews import ReviewedWrite

EVERY = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}


def asked(kind: Kind = CONFIG_MAP, name: str = "a", subresource: str = "") -> ReviewedWrite:
    return ReviewedWrite(kind, subresource, "CREATE", "n", name, {}, dry_run=False, options=None, shown=kind)


def policies(constraints: dict[str, Any] | None = None, **spec: Any) -> tuple[Policy, ...]:
    declared = {"matchConstraints": {"resourceRules": [EVERY], **(constraints or {})}, **spec}
    policy = {"metadata": {"name": "p"}, "spec": declared}
    binding = {"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}}
    return compiled([policy], [binding])


def test_a_policy_without_a_binding_says_nothing() -> None:
    assert compiled([{"metadata": {"name": "p"}, "spec": {}}], []) == ()


def test_what_is_excluded_is_not_meant() -> None:
    excluded = {"excludeResourceRules": [{**EVERY, "resourceNames": ["a"]}]}
    assert not list(concerned(policies(excluded), asked(name="a")))
    assert list(concerned(policies(excluded), asked(name="b")))


def test_a_rule_may_name_its_objects() -> None:
    named = {"resourceRules": [{**EVERY, "resourceNames": ["a"]}]}
    assert list(concerned(policies(named), asked(name="a")))
    assert not list(concerned(policies(named), asked(name="b")))


def test_an_equivalent_resource_is_meant_too() -> None:
    rule = {**EVERY, "apiGroups": ["apps"], "resources": ["replicasets"]}
    (found,) = concerned(policies({"resourceRules": [rule]}), asked(LEGACY_REPLICA_SET))
    assert found.kind is REPLICA_SET
    exact = {"resourceRules": [rule], "matchPolicy": "Exact"}
    assert not list(concerned(policies(exact), asked(LEGACY_REPLICA_SET)))


def test_policies_themselves_are_seen_by_none() -> None:
    assert not list(concerned(policies(), asked(VALIDATING_ADMISSION_POLICY)))


def said(obj: dict[str, Any], **spec: Any) -> Any:
    (policy,) = policies(**spec)
    return evaluate(policy, {"object": obj, "oldObject": None, "request": {}, "namespaceObject": None})


def test_a_variable_is_computed_when_it_is_named() -> None:
    variables = [{"name": "bad", "expression": "1 / 0 == 1"}, {"name": "good", "expression": "object.a + 1"}]
    assert said({"a": 1}, variables=variables, validations=[{"expression": "variables.good == 2"}]).denials == ()
    (denial,) = said({}, variables=variables, validations=[{"expression": "variables.bad"}]).denials
    assert 'composited variable "bad" fails to evaluate' in denial.message


@pytest.mark.parametrize(
    ("validation", "expected"),
    [
        ({"expression": "false"}, Denial("failed expression: false", "Invalid")),
        ({"expression": "false", "message": " m "}, Denial("m", "Invalid")),
        ({"expression": "false", "message": "m", "messageExpression": "'c'"}, Denial("c", "Invalid")),
        ({"expression": "false", "message": "m", "messageExpression": "'a\\nb'"}, Denial("m", "Invalid")),
        ({"expression": "false", "message": "m", "messageExpression": "' '"}, Denial("m", "Invalid")),
        ({"expression": "false", "message": "m", "messageExpression": "object.no"}, Denial("m", "Invalid")),
        ({"expression": "false", "reason": "Forbidden"}, Denial("failed expression: false", "Forbidden")),
    ],
)
def test_messages(validation: dict[str, Any], expected: Denial) -> None:
    assert said({}, validations=[validation]).denials == (expected,)


def test_a_condition_that_is_false_decides_before_one_that_cannot_be_evaluated() -> None:
    conditions = [{"name": "a", "expression": "object.no == 1"}, {"name": "b", "expression": "false"}]
    assert said({}, matchConditions=conditions, validations=[{"expression": "false"}]).denials == ()
    (denial,) = said({}, matchConditions=conditions[:1], validations=[{"expression": "false"}]).denials
    assert denial.message == "expression 'object.no == 1' resulted in error: no such key: no"


def test_an_empty_annotation_is_left_out() -> None:
    annotations = [{"key": "a", "valueExpression": "' '"}, {"key": "b", "valueExpression": "null"}]
    assert said({}, auditAnnotations=[*annotations, {"key": "c", "valueExpression": "'x'"}]).annotations == (
        ("c", "x"),
    )
