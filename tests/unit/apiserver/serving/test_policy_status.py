"""Which policies get a status: one that cannot be checked keeps no other from it."""

from __future__ import annotations

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.kinds import VALIDATING_ADMISSION_POLICY
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.policies.typechecking import warnings_of
from minik8s_modules.apiserver.serving import policy_status
from minik8s_modules.apiserver.serving.policy_status import PolicyStatus
from minik8s_modules.apiserver.verbs import writing

NAMES = ("a", "b", "c")


def made(backend: Backend, options: Options) -> None:
    rule = {"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"], "operations": ["*"]}
    for name in NAMES:
        declared = {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "true"}]}
        policy = {"metadata": {"name": name}, "spec": declared}
        writing.create(backend, Target(VALIDATING_ADMISSION_POLICY, ""), policy, options)


def looked_at(backend: Backend) -> list[str]:
    found = [backend.get(Target(VALIDATING_ADMISSION_POLICY, "", name)).object for name in NAMES]
    return [objects.name(each) for each in found if objects.status(each).get("observedGeneration")]


@pytest.mark.parametrize("error", [ZeroDivisionError(), StatusError(403, "Forbidden", "no")])
def test_a_policy_that_cannot_be_checked_keeps_no_other_from_it(
    backend: Backend, options: Options, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def failing(policy, kinds):
        if objects.name(policy) == "a":
            raise error
        return warnings_of(policy, kinds)

    monkeypatch.setattr(policy_status, "warnings_of", failing)
    made(backend, options)
    status = PolicyStatus(backend)
    if isinstance(error, StatusError):
        with pytest.raises(StatusError):  # it is tried again
            status.look()
    else:
        status.look()
    assert looked_at(backend) == ["b", "c"]
