"""Binding: a pod gets its node once."""

from __future__ import annotations

import copy

import pytest

from minik8s_modules.api.errors import BadRequest, Conflict
from minik8s_modules.api.kinds import POD
from minik8s_modules.api.lifecycle.strategy import bind
from tests.unit.api import samples

BINDING = {"metadata": {"name": "web"}, "target": {"kind": "Node", "name": "n1"}}


def test_a_binding_sets_the_node_once():
    pod = samples.created(samples.sample(POD))
    before = copy.deepcopy(pod)
    bound = bind(POD, pod, BINDING, samples.NOW)
    assert pod == before
    assert bound["spec"]["nodeName"] == "n1"
    assert bound["status"]["conditions"] == [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T12:00:00Z"}
    ]
    with pytest.raises(Conflict, match='pod web is already assigned to node "n1"'):
        bind(POD, bound, BINDING, samples.NOW)


def test_annotations_of_the_binding_go_to_the_pod():
    pod = samples.created(samples.sample(POD))
    binding = samples.merged(BINDING, {"metadata": {"annotations": {"a/b": "c"}}})
    assert bind(POD, pod, binding, samples.NOW)["metadata"]["annotations"] == {"a/b": "c"}


def test_a_deleted_pod_is_not_bound():
    pod = samples.merged(
        samples.created(samples.sample(POD)), {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
    )
    with pytest.raises(Conflict, match="is being deleted, cannot be assigned to a host"):
        bind(POD, pod, BINDING, samples.NOW)


def test_a_binding_means_one_pod():
    binding = samples.merged(BINDING, {"metadata": {"uid": "other"}})
    with pytest.raises(Conflict, match="UID in precondition"):
        bind(POD, samples.created(samples.sample(POD)), binding, samples.NOW)


@pytest.mark.parametrize("target", [{}, {"kind": "Pod", "name": "n1"}, {"kind": "Node"}])
def test_a_binding_names_a_node(target):
    with pytest.raises(BadRequest):
        bind(POD, samples.created(samples.sample(POD)), {"target": target}, samples.NOW)
