"""ValidatingAdmissionPolicies: expressions decide about writes, in Kubernetes' words."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.apiserver.conftest import Namespace, pod
from tests.support.apiserver import Answer
from tests.support.waiting import until

GROUP = "/apis/admissionregistration.k8s.io/v1"
CONFIG_MAPS = {"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}


class Policies:
    """Policies and bindings that concern one namespace alone; both are named after it."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self.name = namespace.name
        self._made: list[str] = []

    def policy(self, *validations: dict[str, Any], **spec: Any) -> Answer:
        """Create a policy for ConfigMaps."""
        constraints = {"resourceRules": [CONFIG_MAPS], **spec.pop("matchConstraints", {})}
        body = {"matchConstraints": constraints, **({"validations": list(validations)} if validations else {}), **spec}
        return self._make("validatingadmissionpolicies", self.name, body)

    def bind(self, *actions: str, name: str = "", **spec: Any) -> Answer:
        """Bind the policy to the namespace."""
        selector = {"matchLabels": {"kubernetes.io/metadata.name": self.namespace.name}}
        limits = {"namespaceSelector": selector}
        body = {"policyName": self.name, "validationActions": actions or ["Deny"], "matchResources": limits, **spec}
        return self._make("validatingadmissionpolicybindings", f"{self.name}{name}", body)

    def _make(self, plural: str, name: str, spec: dict[str, Any]) -> Answer:
        answer = self.namespace.server.request("POST", f"{GROUP}/{plural}", {"metadata": {"name": name}, "spec": spec})
        if answer.code == 201:
            self._made.append(f"{GROUP}/{plural}/{name}")
        return answer

    def ready(self, *validations: dict[str, Any], **spec: Any) -> None:
        """Create a policy and bind it."""
        answer = self.policy(*validations, **spec)
        assert answer.code == 201, answer.body
        answer = self.bind()
        assert answer.code == 201, answer.body

    def remove(self) -> None:
        """Delete what was made."""
        for path in self._made:
            assert self.namespace.server.request("DELETE", path).code == 200


@pytest.fixture
def policies(namespace: Namespace) -> Iterator[Policies]:
    """Policies for the namespace."""
    found = Policies(namespace)
    yield found
    found.remove()


def denied(policies: Policies, message: str) -> str:
    who = f"ValidatingAdmissionPolicy '{policies.name}' with binding '{policies.name}' denied request: {message}"
    return f'configmaps "a" is forbidden: {who}'


def test_a_policy_refuses_in_its_own_words(policies: Policies, namespace: Namespace) -> None:
    policies.ready({"expression": "object.metadata.name.startsWith('x')"})
    answer = namespace.create("a")
    assert answer.json["message"] == denied(policies, "failed expression: object.metadata.name.startsWith('x')")
    assert (answer.code, answer.json["reason"]) == (422, "Invalid")
    assert namespace.create("xa").code == 201
    assert namespace.server.request("POST", namespace.path("pods"), pod("a")).code == 201  # no rule speaks of pods
    assert (
        namespace.server.request(
            "POST", "/api/v1/namespaces/default/configmaps?dryRun=All", {"metadata": {"name": "a"}}
        ).code
        == 201
    )  # the binding has another namespace
    shown = namespace.server.kubectl("get", "validatingadmissionpolicies", policies.name).stdout.split()
    assert shown[:7] == ["NAME", "VALIDATIONS", "PARAMKIND", "AGE", policies.name, "1", "<unset>"]


def test_messages_and_reasons(policies: Policies, namespace: Namespace) -> None:
    policies.ready(
        {
            "expression": "has(object.data)",
            "messageExpression": "object.metadata.name + ' lacks data'",
            "message": "never told",
            "reason": "Forbidden",
        }
    )
    answer = namespace.create("a")
    assert (answer.code, answer.json["reason"]) == (403, "Forbidden")
    assert answer.json["message"] == denied(policies, "a lacks data")
    assert answer.json["details"]["causes"][0]["message"] == answer.json["message"].partition("forbidden: ")[2]


def test_variables_and_conditions(policies: Policies, namespace: Namespace) -> None:
    policies.ready(
        {"expression": "variables.twice < 10", "messageExpression": "'twice ' + string(variables.twice)"},
        variables=[
            {"name": "size", "expression": "int(object.data.size)"},
            {"name": "twice", "expression": "variables.size * 2"},
            {"name": "never", "expression": "1 / 0"},
        ],
        matchConditions=[{"name": "sized", "expression": "has(object.data) && 'size' in object.data"}],
    )
    assert namespace.create("plain").code == 201
    assert namespace.create("small", data={"size": "4"}).code == 201
    assert namespace.create("a", data={"size": "5"}).json["message"] == denied(policies, "twice 10")


def test_params(policies: Policies, namespace: Namespace) -> None:
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    constraints = {"matchConstraints": {"objectSelector": {"matchLabels": {"checked": "yes"}}}}
    most = {"expression": "int(object.data.size) <= int(params.data.most)", "message": "too large"}
    assert policies.policy(most, paramKind=kind, **constraints).code == 201
    ref = {"name": "limits", "parameterNotFoundAction": "Deny"}
    assert policies.bind(paramRef=ref).code == 201
    checked = {"metadata": {"labels": {"checked": "yes"}}, "data": {"size": "5"}}
    missing = "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"
    assert namespace.create("a", **checked).json["message"] == denied(policies, missing)
    assert namespace.create("limits", data={"most": "4"}).code == 201
    assert namespace.create("a", **checked).json["message"] == denied(policies, "too large")
    small = {"metadata": {"labels": {"checked": "yes"}}, "data": {"size": "4"}}
    assert namespace.create("a", **small).code == 201


def test_a_binding_says_whether_to_deny_warn_or_note(policies: Policies, namespace: Namespace) -> None:
    assert policies.policy({"expression": "false", "message": "no"}).code == 201
    assert policies.bind("Warn", "Audit").code == 201
    answer = namespace.create("a")
    assert answer.code == 201
    text = f"Validation failed for ValidatingAdmissionPolicy '{policies.name}' with binding '{policies.name}': no"
    assert answer.headers["warning"] == f'299 - "{text}"'
    noted(namespace, '"validation.policy.admission.k8s.io/validation_failure"')
    both = policies.bind("Deny", "Warn", name="-2")
    assert "must not contain both Deny and Warn" in both.json["message"]


def noted(namespace: Namespace, wanted: str) -> None:
    """Wait until the audit log has a text."""
    deadline = time.monotonic() + 60
    while wanted not in namespace.server.audit.read_text():
        assert time.monotonic() < deadline, f"the audit log lacks {wanted}"
        time.sleep(0.05)


def test_a_policy_tells_the_audit_log(policies: Policies, namespace: Namespace) -> None:
    policies.ready(auditAnnotations=[{"key": "named", "valueExpression": "'it is ' + object.metadata.name"}])
    assert namespace.create("a").code == 201
    noted(namespace, f'"{policies.name}/named":"it is a"')


def test_what_cannot_be_evaluated_counts_as_the_failure_policy_says(policies: Policies, namespace: Namespace) -> None:
    policies.ready({"expression": "object.data.size == '1'"})
    text = "expression 'object.data.size == '1'' resulted in error: no such key: data"
    assert namespace.create("a").json["message"] == denied(policies, text)
    path = f"{GROUP}/validatingadmissionpolicies/{policies.name}"
    merge = {"Content-Type": "application/merge-patch+json"}
    answer = namespace.server.request("PATCH", path, {"spec": {"failurePolicy": "Ignore"}}, headers=merge)
    assert (answer.code, answer.json["metadata"]["generation"]) == (200, 2)
    assert namespace.create("a").code == 201


def test_an_expression_that_costs_too_much_ends(policies: Policies, namespace: Namespace) -> None:
    many = "object.data.all(a, object.data.all(b, object.data.all(c, object.data.all(d, a + b + c + d != 'x'))))"
    policies.ready({"expression": many})
    answer = namespace.create("a", data={f"key-{number}": "v" for number in range(60)})
    assert answer.code == 422
    assert "cost" in answer.json["message"]


def test_who_asks_and_what_he_may(policies: Policies, namespace: Namespace) -> None:
    policies.ready(
        {"expression": "request.userInfo.username == 'minik8s-admin' && namespaceObject.metadata.name != 'x'"},
        {"expression": "authorizer.group('').resource('nodes').check('delete').allowed()"},
        {"expression": "authorizer.serviceAccount('default', 'x').group('').resource('nodes').check('get').allowed()"},
    )
    message = namespace.create("a").json["message"]
    assert "failed expression: authorizer.serviceAccount('default', 'x')" in message


def test_a_deletion_is_seen(policies: Policies, namespace: Namespace) -> None:
    assert namespace.create("a").code == 201
    policies.ready(
        {"expression": "request.operation != 'DELETE' || oldObject.metadata.name != 'a'", "message": "stays"}
    )
    path = namespace.path("configmaps", "a")
    for query in ("", "?dryRun=All"):
        assert namespace.server.request("DELETE", path + query).json["message"] == denied(policies, "stays")
    assert "stays" in namespace.server.request("DELETE", namespace.path("configmaps")).json["message"]
    assert namespace.get("a").code == 200


@pytest.mark.parametrize(
    ("validation", "message"),
    [
        ({"expression": "object."}, 'spec.validations[0].expression: Invalid value: "object.": compilation failed:'),
        ({"expression": "1"}, "must evaluate to bool"),
        (
            {"expression": "true", "messageExpression": "1"},
            'messageExpression: Invalid value: "1": must evaluate to string',
        ),
        ({"expression": "params.a"}, "undeclared reference to 'params'"),
        ({"expression": "variables.a"}, "undefined field 'a'"),
        ({"expression": "true", "reason": "Whim"}, 'Unsupported value: "Whim"'),
        ({"expression": "true", "message": "a\nb"}, "message must not contain line breaks"),
        ({"expression": " "}, "expression is not specified"),
    ],
)
def test_what_is_wrong_is_told_when_it_is_written(policies: Policies, validation: dict[str, Any], message: str) -> None:
    answer = policies.policy(validation)
    assert answer.code == 422
    assert message in answer.json["message"]


def test_a_mutating_policy_is_an_unknown_kind(namespace: Namespace) -> None:
    for version in ("v1", "v1alpha1", "v1beta1"):
        path = f"/apis/admissionregistration.k8s.io/{version}/mutatingadmissionpolicies"
        assert namespace.server.request("GET", path).code == 404


def test_fields_that_a_kind_does_not_have_are_warned_of(policies: Policies) -> None:
    server, path = policies.namespace.server, f"{GROUP}/validatingadmissionpolicies/{policies.name}"
    assert policies.policy({"expression": "object.datum == ''"}).code == 201

    def checked(generation: int) -> Any:
        found = server.request("GET", path).json["status"]
        return found if found.get("observedGeneration") == generation else None

    (warning,) = until(lambda: checked(1))["typeChecking"]["expressionWarnings"]
    assert warning["fieldRef"] == "spec.validations[0].expression"
    assert "/v1, Kind=ConfigMap: compilation failed: ERROR: <input>:1:7: undefined field 'datum'" in warning["warning"]
    change = {"spec": {"validations": [{"expression": "has(object.data)"}]}}
    merge = {"Content-Type": "application/merge-patch+json"}
    assert server.request("PATCH", path, change, headers=merge).code == 200
    assert until(lambda: checked(2))["typeChecking"] == {}
