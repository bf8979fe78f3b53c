"""Pod Security Standards and LimitRanges, by cases; and the labels of namespaces."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from minik8s_modules.api.pods import limits
from minik8s_modules.api.pods.security_standards import CHECKS, LATEST, Policy, label_causes, policy_of, violations
from tests.unit.api import samples


@samples.cases("pod_security")
def test_pod_security(path: Path):
    case = samples.read(path)
    level, _, version = case["policy"].partition(":")
    policy = Policy(level, LATEST if version == "latest" else int(version.removeprefix("v1.")))
    assert str(policy) == case["policy"]
    assert violations(policy, case["pod"]) == case["says"]


def test_every_check_has_a_case_that_violates_it():
    folder = samples.ROOT / "tests" / "cases" / "pod_security"
    text = "\n".join(line for path in folder.glob("*.yml") for line in samples.read(path)["says"])
    assert not [check.name for check in CHECKS if f"{check.title} (" not in text]


@samples.cases("limit_range")
def test_limit_range(path: Path):
    case = samples.read(path)
    ranges = [{"spec": {"limits": case["limits"]}}]
    pod = copy.deepcopy(case["pod"])
    limits.fill(pod, ranges)
    assert limits.pod_violations(pod, ranges) == case["says"]
    if "resources" in case:
        assert pod["spec"]["containers"][0]["resources"] == case["resources"]


def test_a_claim_is_held_to_its_storage():
    ranges = [
        {"spec": {"limits": [{"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}}]}}
    ]

    def reported(storage):
        return limits.claim_violations({"spec": {"resources": {"requests": {"storage": storage}}}}, ranges)

    assert reported("1536Mi") == []
    assert reported("512Mi") == ["minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 512Mi"]
    assert reported("3Gi") == ["maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi"]


@pytest.mark.parametrize(
    ("labels", "policy"),
    [
        ({}, "privileged:latest"),
        ({"enforce": "baseline"}, "baseline:latest"),
        ({"enforce": "restricted", "enforce-version": "v1.30"}, "restricted:v1.30"),
        ({"enforce": "nonsense"}, "restricted:latest"),
        ({"enforce": "baseline", "enforce-version": "30"}, "restricted:latest"),
    ],
)
def test_labels_say_the_policy(labels, policy):
    full = {f"pod-security.kubernetes.io/{key}": value for key, value in labels.items()}
    assert str(policy_of(full, "enforce")) == policy


def test_labels_that_cannot_be_read_are_named():
    labels = {"pod-security.kubernetes.io/warn": "strict", "pod-security.kubernetes.io/audit-version": "1.30"}
    assert [(cause.field.partition("/")[2], cause.message) for cause in label_causes(labels)] == [
        ("audit-version]", 'Invalid value: "1.30": must be "latest" or "v1.x"'),
        ("warn]", 'Invalid value: "strict": must be one of privileged, baseline, restricted'),
    ]
