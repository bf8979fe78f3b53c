"""What an APIService may say, and its columns."""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.api.kinds import API_SERVICE
from minik8s_modules.api.validation import validate_create
from tests.unit.api.samples import created, sample


def messages(name: str = "", **spec: Any) -> list[str]:
    obj = sample(API_SERVICE)
    obj["spec"] = {key: value for key, value in {**obj["spec"], **spec}.items() if value is not None}
    if name:
        obj["metadata"]["name"] = name
    return [f"{each.field}: {each.message}" for each in validate_create(API_SERVICE, created(obj))]


def test_a_small_one_is_valid() -> None:
    assert not messages()
    assert not messages(service=None, insecureSkipTLSVerify=None)
    assert not messages("v1.", group="", version="v1")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"groupPriorityMinimum": 0},
            "spec.groupPriorityMinimum: Invalid value: 0: must be positive and less than 20000",
        ),
        ({"versionPriority": 1001}, "spec.versionPriority: Invalid value: 1001: must be positive and less than 1000"),
        ({"service": {"name": "a", "namespace": ""}}, "spec.service.namespace: Required value"),
        (
            {"service": {"name": "a", "namespace": "b", "port": 70000}},
            "spec.service.port: Invalid value: 70000: port is not valid: [must be between 1 and 65535, inclusive]",
        ),
        (
            {"caBundle": "eA=="},
            "spec.insecureSkipTLSVerify: Invalid value: true: may not be true if caBundle is present",
        ),
        (
            {"service": None},
            "spec.insecureSkipTLSVerify: Invalid value: true: local APIServices may not have insecureSkipTLSVerify",
        ),
        (
            {"service": None, "insecureSkipTLSVerify": None, "caBundle": "eA=="},
            'spec.caBundle: Invalid value: "1 bytes": local APIServices may not have a caBundle',
        ),
    ],
)
def test_what_is_wrong_is_told(spec: dict[str, Any], message: str) -> None:
    assert message in messages(**spec)


def test_a_name_is_that_of_version_and_group() -> None:
    wanted = 'metadata.name: Invalid value: "web": must be `spec.version+"."+spec.group`: "v1alpha1.wardle.example.com"'
    assert wanted in messages("web")
    legacy = "spec.group: Required value: only v1 may have an empty group and it better be legacy kube"
    assert legacy in messages("v2.", group="", version="v2")
