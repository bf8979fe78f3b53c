"""What a DELETE means, as a value; the object given stays as it is."""

from __future__ import annotations

import copy
from datetime import timedelta

import pytest

from minik8s_modules.api.errors import Conflict
from minik8s_modules.api.kinds import CONFIG_MAP, NAMESPACE, POD
from minik8s_modules.api.lifecycle.strategy import check_preconditions, graceful_deletion, ready_to_remove
from tests.unit.api import samples


def pod(change=None):
    obj = samples.created(samples.sample(POD))
    return samples.merged(
        samples.merged(obj, {"spec": {"nodeName": "n1"}, "status": {"phase": "Running"}}), change or {}
    )


def delete(obj, options=None, kind=POD, later_s=0):
    before = copy.deepcopy(obj)
    decision = graceful_deletion(kind, obj, options or {}, samples.NOW + timedelta(seconds=later_s))
    assert obj == before
    return decision


@pytest.mark.parametrize(
    ("change", "options", "grace_s"),
    [
        ({}, {}, 30),
        ({"spec": {"terminationGracePeriodSeconds": 5}}, {}, 5),
        ({"spec": {"terminationGracePeriodSeconds": 5}}, {"gracePeriodSeconds": 60}, 60),
        ({}, {"gracePeriodSeconds": -7}, 1),
    ],
)
def test_a_running_pod_is_marked_with_its_grace(change, options, grace_s):
    decision = delete(pod(change), options)
    meta = decision.obj["metadata"]
    assert (decision.action, decision.graceful, meta["deletionGracePeriodSeconds"]) == ("mark", True, grace_s)
    assert meta["deletionTimestamp"] == (samples.NOW + timedelta(seconds=grace_s)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert meta["generation"] == 2


@pytest.mark.parametrize(
    ("change", "options"),
    [
        ({"spec": {"nodeName": None}}, {}),
        ({"spec": {"nodeName": None}}, {"gracePeriodSeconds": 60}),
        ({"status": {"phase": "Succeeded"}}, {}),
        ({"status": {"phase": "Failed"}}, {}),
        ({}, {"gracePeriodSeconds": 0}),
        ({"spec": {"terminationGracePeriodSeconds": 0}}, {}),
    ],
)
def test_a_pod_without_anything_to_stop_goes_at_once(change, options):
    assert delete(pod(change), options).action == "remove"


def test_a_second_delete_shortens_the_time():
    marked = delete(pod()).obj
    shorter = delete(marked, {"gracePeriodSeconds": 5}, later_s=2)
    assert shorter.action == "mark"
    assert shorter.obj["metadata"]["deletionTimestamp"] == "2026-01-01T12:00:05Z"
    assert shorter.obj["metadata"]["deletionGracePeriodSeconds"] == 5
    assert shorter.obj["metadata"]["generation"] == 2


@pytest.mark.parametrize("options", [{}, {"gracePeriodSeconds": 30}, {"gracePeriodSeconds": 300}])
def test_a_second_delete_never_lengthens_the_time(options):
    marked = delete(pod()).obj
    again = delete(marked, options, later_s=2)
    assert (again.action, again.obj) == ("wait", marked)


def test_the_node_ends_a_deletion_with_grace_zero():
    assert delete(delete(pod()).obj, {"gracePeriodSeconds": 0}).action == "remove"


@pytest.mark.parametrize("kind", [CONFIG_MAP, NAMESPACE])
def test_finalizers_hold_an_object(kind):
    obj = samples.merged(samples.created(samples.sample(kind)), {"metadata": {"finalizers": ["a/b"]}})
    decision = delete(obj, kind=kind)
    assert (decision.action, decision.graceful) == ("mark", True)
    assert decision.obj["metadata"]["deletionTimestamp"] == "2026-01-01T12:00:00Z"
    assert decision.obj["metadata"]["deletionGracePeriodSeconds"] == 0
    assert delete(decision.obj, kind=kind).action == "wait"
    assert not ready_to_remove(kind, decision.obj)


def test_an_object_without_finalizers_goes_at_once():
    assert delete(samples.created(samples.sample(CONFIG_MAP)), kind=CONFIG_MAP).action == "remove"


def test_a_pod_with_finalizers_is_stopped_first_and_held_then():
    marked = delete(pod({"metadata": {"finalizers": ["a/b"]}})).obj
    held = delete(marked, {"gracePeriodSeconds": 0}, later_s=1)
    assert held.action == "mark"
    assert held.obj["metadata"]["deletionGracePeriodSeconds"] == 0
    released = samples.merged(held.obj, {"metadata": {"finalizers": []}})
    assert ready_to_remove(POD, released)


def test_a_marked_pod_is_not_removed_by_an_update():
    assert not ready_to_remove(POD, delete(pod()).obj)


def test_a_namespace_waits_for_its_finalizers():
    decision = delete(samples.created(samples.sample(NAMESPACE)), kind=NAMESPACE)
    assert (decision.action, decision.obj["status"]["phase"]) == ("mark", "Terminating")
    assert not ready_to_remove(NAMESPACE, decision.obj)
    emptied = samples.merged(decision.obj, {"spec": {"finalizers": []}})
    assert ready_to_remove(NAMESPACE, emptied)
    assert delete(emptied, kind=NAMESPACE).action == "remove"


@pytest.mark.parametrize(
    "spec", ["text", [], 0, {"finalizers": "x"}, {"finalizers": 0}, {"finalizers": ["kubernetes", 5]}]
)
def test_a_namespace_whose_finalizers_cannot_be_read_waits_until_it_is_empty(spec):
    obj = {**samples.created(samples.sample(NAMESPACE)), "spec": spec}
    decision = delete(obj, kind=NAMESPACE)
    assert (decision.action, decision.obj["spec"]) == ("mark", {"finalizers": ["kubernetes"]})
    assert not ready_to_remove(NAMESPACE, decision.obj)


def test_preconditions():
    obj = samples.merged(pod(), {"metadata": {"resourceVersion": "7"}})
    check_preconditions(POD, obj, {"preconditions": {"uid": samples.UID, "resourceVersion": "7"}})
    check_preconditions(POD, obj, {})
    with pytest.raises(Conflict, match="Precondition failed: UID in precondition: other, UID in object meta: 1111"):
        check_preconditions(POD, obj, {"preconditions": {"uid": "other"}})
    with pytest.raises(Conflict, match="ResourceVersion in precondition: 6, ResourceVersion in object meta: 7"):
        check_preconditions(POD, obj, {"preconditions": {"resourceVersion": "6"}})
