"""What a pod counts for while it is resized."""

from __future__ import annotations

import pytest

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods import resizes
from minik8s_modules.api.pods.resources import pod_requests


def pod(wanted: str, allocated: str, runs: str, *conditions: JsonObject) -> JsonObject:
    status = {"name": "app", "allocatedResources": {"cpu": allocated}, "resources": {"requests": {"cpu": runs}}}
    return {
        "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": wanted}}}]},
        "status": {"containerStatuses": [status], "conditions": list(conditions)},
    }


DEFERRED = {"type": "PodResizePending", "status": "True", "reason": "Deferred"}
INFEASIBLE = {**DEFERRED, "reason": "Infeasible"}
IN_PROGRESS = {"type": "PodResizeInProgress", "status": "True"}


@pytest.mark.parametrize(
    ("found", "milli_cpu"),
    [
        (pod("500m", "500m", "500m"), 500),
        (pod("1", "500m", "500m"), 1000),
        (pod("1", "500m", "500m", DEFERRED), 1000),
        (pod("64", "500m", "500m", INFEASIBLE), 500),
        (pod("250m", "500m", "500m"), 500),
        (pod("250m", "250m", "500m", IN_PROGRESS), 500),
    ],
    ids=["settled", "asked", "deferred", "infeasible", "shrinking", "shrinking in progress"],
)
def test_a_pod_counts_for_the_most_of_what_it_wants_and_has(found: JsonObject, milli_cpu: int) -> None:
    assert pod_requests(resizes.as_counted(found)).milli_cpu == milli_cpu


def test_the_same_amount_in_other_words_is_no_resize() -> None:
    assert not resizes.is_asked(pod("0.5", "500m", "500m"))
    assert resizes.is_asked(pod("0.6", "500m", "500m"))


def test_a_pod_of_which_nothing_is_told_asks_for_no_resize() -> None:
    assert not resizes.is_asked({"spec": pod("1", "1", "1")["spec"], "status": {}})


def test_a_limit_that_one_side_lacks_is_none() -> None:
    unlimited, limited = {"requests": {"cpu": "1"}}, {"limits": {"cpu": "2"}}
    assert resizes.largest([unlimited, limited]) == {"requests": {"cpu": "2"}}
