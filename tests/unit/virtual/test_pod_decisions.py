"""What a PodController decides; ported from virtual-kubelet's ``node/pod_test.go``."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.virtual.contract import new_pod
from minik8s_modules.virtual.pods.deciding import (
    ProviderRecord,
    Run,
    Step,
    completed_status,
    decide_pod,
    decide_run,
    failed_status,
    pods_equal,
    should_enqueue,
)

RUNNING = [{"name": "app", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]
ENDED = [{"name": "app", "state": {"terminated": {"exitCode": 0}}}]
NOW = "2026-01-01T00:00:00Z"
Change = Callable[[JsonObject], Any]


def _pod(**metadata: Any) -> JsonObject:
    pod = new_pod("one")
    pod["metadata"].update({"uid": "u1", **metadata})
    return pod


def _changed(change: Change) -> tuple[JsonObject, JsonObject]:
    old = _pod()
    new = copy.deepcopy(old)
    change(new)
    return old, new


def _deleting(containers: list[JsonObject]) -> JsonObject:
    pod = _pod(deletionTimestamp=NOW, deletionGracePeriodSeconds=30)
    pod["status"] = {"phase": "Running", "containerStatuses": containers}
    return pod


DIFFERENT: dict[str, Change] = {
    "image": lambda pod: pod["spec"]["containers"][0].update(image="other"),
    "init containers": lambda pod: pod["spec"].update(initContainers=[{"name": "init", "image": "x"}]),
    "deadline": lambda pod: pod["spec"].update(activeDeadlineSeconds=3),
    "tolerations": lambda pod: pod["spec"].update(tolerations=[{"operator": "Exists"}]),
    "labels": lambda pod: pod["metadata"].update(labels={"a": "b"}),
    "annotations": lambda pod: pod["metadata"].update(annotations={"a": "b"}),
}


@pytest.mark.parametrize("change", DIFFERENT.values(), ids=DIFFERENT)
def test_what_may_change_of_a_running_pod_makes_it_different(change: Change) -> None:
    old, new = _changed(change)
    assert not pods_equal(old, new)
    assert should_enqueue(old, new)


IGNORED: dict[str, Change] = {
    "status": lambda pod: pod.update(status={"phase": "Running", "containerStatuses": RUNNING}),
    "resource version": lambda pod: pod["metadata"].update(resourceVersion="7"),
    "scheduler": lambda pod: pod["spec"].update(schedulerName="mine"),
    "empty init containers": lambda pod: pod["spec"].update(initContainers=[]),
}


@pytest.mark.parametrize("change", IGNORED.values(), ids=IGNORED)
def test_other_changes_never_reach_the_provider(change: Change) -> None:
    old, new = _changed(change)
    assert pods_equal(old, new)
    assert not should_enqueue(old, new)


def test_deletion_its_time_and_its_grace_are_looked_at() -> None:
    old, new = _changed(lambda pod: pod["metadata"].update(deletionTimestamp=NOW))
    assert should_enqueue(old, new)
    later = copy.deepcopy(new)
    later["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:09Z"
    assert should_enqueue(new, later)
    shorter = copy.deepcopy(new)
    shorter["metadata"]["deletionGracePeriodSeconds"] = 1
    assert should_enqueue(new, shorter)


def test_the_last_container_of_a_deleted_pod_that_ends_is_looked_at() -> None:
    assert should_enqueue(_deleting(RUNNING), _deleting(ENDED))
    assert not should_enqueue(_deleting(RUNNING), _deleting(RUNNING))


def test_a_pod_that_was_just_bound_is_looked_at() -> None:
    old, new = _changed(lambda pod: pod["spec"].pop("nodeName"))
    assert should_enqueue(new, old)


def test_another_pod_under_the_name_is_looked_at() -> None:
    assert should_enqueue(_pod(), _pod(uid="u2"))


def test_what_is_done_about_a_pod() -> None:
    pod = _pod()
    assert decide_pod(None, ProviderRecord()) is Step.FORGET
    assert decide_pod(pod, ProviderRecord()) is Step.RUN
    assert decide_pod(pod, ProviderRecord(used=copy.deepcopy(pod))) is Step.NOTHING
    assert decide_pod(pod, ProviderRecord(used=_pod(uid="u0"))) is Step.RUN
    for phase in ("Succeeded", "Failed"):
        assert decide_pod({**pod, "status": {"phase": phase}}, ProviderRecord()) is Step.NOTHING


def test_a_deleted_pod_is_told_once_and_goes_when_nothing_runs() -> None:
    assert decide_pod(_deleting(RUNNING), ProviderRecord()) is Step.DELETE
    assert decide_pod(_deleting(RUNNING), ProviderRecord(deleted="u1")) is Step.NOTHING
    assert decide_pod(_deleting(ENDED), ProviderRecord(deleted="u1")) is Step.REMOVE
    # never taken away before the provider was told, even if no container is known to run
    assert decide_pod(_deleting([]), ProviderRecord(deleted="u0")) is Step.DELETE


def test_what_the_provider_has_decides_what_it_is_told() -> None:
    pod = _pod()
    assert decide_run(pod, None) is Run.CREATE
    assert decide_run(pod, copy.deepcopy(pod)) is Run.NOTHING
    assert decide_run(pod, {**copy.deepcopy(pod), "status": {"phase": "Running"}}) is Run.NOTHING
    assert decide_run(pod, _pod(labels={"a": "b"})) is Run.UPDATE
    assert decide_run(pod, _pod(uid="u0")) is Run.REPLACE
    without = _pod()
    without["metadata"].pop("uid")
    assert decide_run(pod, without) is Run.NOTHING


@pytest.mark.parametrize(("policy", "phase"), [("Always", "Pending"), ("OnFailure", "Pending"), ("Never", "Failed")])
def test_what_a_provider_refuses_is_pending_or_failed(policy: str, phase: str) -> None:
    pod = new_pod("one", restartPolicy=policy)
    pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "True"}]
    status = failed_status(pod, ValueError("no room"), NOW)
    assert (status["phase"], status["reason"], status["message"]) == (phase, "ProviderFailed", "no room")
    assert [each["type"] for each in status["conditions"]] == ["PodScheduled", "Ready"]
    assert pod["status"]["phase"] == "Pending"


def test_a_status_is_the_providers_but_for_what_others_alone_know() -> None:
    pod = _pod()
    scheduled = {"type": "PodScheduled", "status": "True"}
    pod["status"] = {"phase": "Pending", "qosClass": "BestEffort", "message": "old", "conditions": [scheduled]}
    fields = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    assert completed_status(pod, fields) == {
        "phase": "Running",
        "qosClass": "BestEffort",
        "conditions": [{"type": "Ready", "status": "True"}, scheduled],
    }
