"""A policy for drift is taken where it can be kept, and refused everywhere else."""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.api.kinds import CONFIG_MAP, DEPLOYMENT, NODE, POD, Kind
from minik8s_modules.api.nodes.drift_policies import DRIFT, HELD, OF_PODS, of_node, of_pod
from minik8s_modules.api.validation.meta import validate_metadata
from minik8s_modules.module_utils.minik8s.core import sections


def marked(value: str) -> dict[str, Any]:
    return {"metadata": {"name": "web", "namespace": "shop", "annotations": {DRIFT: value}}}


def test_the_sections_are_those_that_modules_can_hold():
    assert set(HELD) == sections.HELD
    assert set(OF_PODS) < set(HELD)


@pytest.mark.parametrize("policy", ["heal", "report", "ignore"])
def test_a_pod_has_a_policy_and_a_node_one_for_each_section(policy):
    assert of_pod(marked(policy)) == policy
    assert list(validate_metadata(POD, marked(policy))) == []
    both = marked(f"containers={policy}, network=report")
    assert of_node(both) == {"containers": policy, "network": "report"}
    del both["metadata"]["namespace"]
    assert list(validate_metadata(NODE, both)) == []
    assert (of_pod({}), of_node({})) == (None, {})


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (POD, "containers=report", 'supported values: "heal", "ignore", "report"'),
        (POD, "", 'supported values: "heal", "ignore", "report"'),
        (NODE, "report", "there is no section 'report'; write SECTION=POLICY,…"),
        (NODE, "containers=later", "containers=later: a policy is one of heal, report, ignore"),
        (NODE, "containers=report,dns=ignore", "the section dns is always healed"),
        (CONFIG_MAP, "ignore", "a ConfigMap's is always healed"),
        (DEPLOYMENT, "ignore", "it is for Pods: set it in spec.template.metadata.annotations"),
    ],
)
def test_what_cannot_be_kept_is_refused(kind: Kind, value: str, message: str):
    obj = marked(value)
    if kind is NODE:
        del obj["metadata"]["namespace"]
    (cause,) = validate_metadata(kind, obj)
    assert cause.field == f"metadata.annotations[{DRIFT}]"
    assert message in cause.message


def test_a_template_is_asked_as_its_pods_are():
    obj: dict[str, Any] = {
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"template": {"metadata": {"annotations": {DRIFT: "never"}}}},
    }
    (cause,) = validate_metadata(DEPLOYMENT, obj)
    assert cause.field == f"spec.template.metadata.annotations[{DRIFT}]"
    obj["spec"]["template"]["metadata"]["annotations"][DRIFT] = "report"
    assert list(validate_metadata(DEPLOYMENT, obj)) == []
