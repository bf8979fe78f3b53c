"""What a pod declares for all of its containers together: defaults, validation, and everybody who counts it."""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.api.defaulting import defaults_pod
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods import limits, quotas
from minik8s_modules.api.pods.resources import pod_requests, qos_class
from minik8s_modules.api.validation.pods.resizes import validate_resize
from minik8s_modules.api.validation.pods.resources import validate_pod_resources
from minik8s_modules.controllers.autoscaling.replica_counts import requests_of
from minik8s_modules.reconcile.housekeeping.eviction import _requested
from minik8s_modules.reconcile.storage.volumes import _memory_limit
from minik8s_modules.reconcile.values import resources
from minik8s_modules.scheduler.framework.infos import PodInfo

MIB = 1 << 20


def pod(own: JsonObject, *containers: JsonObject, **spec: Any) -> JsonObject:
    each = [{"name": f"c{index}", "image": "i", "resources": one} for index, one in enumerate(containers or ({},))]
    return {"metadata": {"name": "p", "namespace": "n"}, "spec": {"resources": own, "containers": each, **spec}}


def defaulted(*given: JsonObject, **spec: Any) -> JsonObject:
    made = pod(*given, **spec)
    defaults_pod.pod(made)
    return made


@pytest.mark.parametrize(
    ("own", "containers", "expected"),
    [
        ({"limits": {"cpu": "2"}}, [{}], {"cpu": "2"}),
        ({"limits": {"cpu": "2"}}, [{"requests": {"cpu": "500m"}}, {"requests": {"cpu": "250m"}}], {"cpu": "750m"}),
        ({"limits": {"cpu": "2"}}, [{"limits": {"cpu": "1"}}], {"cpu": "1"}),
        ({"limits": {"cpu": "2"}}, [{"requests": {"memory": "1Gi"}}], {"cpu": "2", "memory": "1Gi"}),
        ({"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}, [{"requests": {"cpu": "500m"}}], {"cpu": "1"}),
        ({"requests": {"cpu": "1"}}, [{"requests": {"memory": "1Gi"}}], {"cpu": "1"}),
    ],
)  # fmt: skip
def test_requests_follow_from_limits_and_from_containers(own, containers, expected):
    assert defaulted(own, *containers)["spec"]["resources"]["requests"] == expected


def test_a_template_keeps_what_it_says():
    template = pod({"limits": {"cpu": "2000m"}}, {"requests": {"cpu": "1"}})
    defaults_pod.pod_template(template)
    assert template["spec"]["resources"] == {"limits": {"cpu": "2"}}
    assert pod_requests(template).milli_cpu == 1000  # as of the pod that is made from it


FILLED = {"spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "300m"}}]}}
HALF = {"requests": {"cpu": "500m"}}


@pytest.mark.parametrize(
    ("own", "containers", "expected"),
    [
        ({"limits": {"cpu": "1"}}, [{"requests": {"cpu": "100m"}}, {}], {"cpu": "400m"}),
        ({"limits": {"cpu": "1"}}, [{}], {"cpu": "1"}),  # the containers' requests do not lower it
        ({"limits": {"cpu": "1"}, "requests": {"cpu": "100m"}}, [HALF, {}], {"cpu": "100m"}),  # validation refuses it
    ],
)
def test_requests_that_were_implied_grow_with_what_admission_gives_containers(own, containers, expected):
    made = pod(own, *containers)
    given = set(own.get("requests") or {})
    defaults_pod.pod(made)
    implied = defaults_pod.implied_requests(made, given)
    limits.fill(made, [FILLED])
    raised = defaults_pod.raise_implied(made, implied)
    assert (made["spec"]["resources"]["requests"], raised) == (expected, expected == {"cpu": "400m"})
    assert bool(validate_pod_resources(made)) == bool(given)


def test_a_request_that_a_webhook_has_set_stays():
    made = defaulted({"limits": {"cpu": "1"}}, {"requests": {"cpu": "100m"}})
    implied = defaults_pod.implied_requests(made, ())
    made["spec"]["resources"]["requests"]["cpu"] = "150m"
    made["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "200m"
    assert not defaults_pod.raise_implied(made, implied)
    assert made["spec"]["resources"]["requests"] == {"cpu": "150m"}


def test_what_is_no_quantity_is_left_to_validation():
    assert defaulted({"limits": {"cpu": "much"}})["spec"]["resources"] == {"limits": {"cpu": "much"}}


def test_the_pods_own_amounts_go_before_those_of_its_containers():
    own = {"requests": {"cpu": "2"}, "limits": {"cpu": "4", "memory": "1Gi"}}
    one = pod(own, {"requests": {"cpu": "1", "memory": "256Mi", "example.com/gpu": "1"}}, overhead={"cpu": "100m"})
    found = pod_requests(one)
    assert (found.milli_cpu, found.memory_bytes, found.other) == (2100, 256 * MIB, {"example.com/gpu": 1})
    assert PodInfo.of({**one, "metadata": {**one["metadata"], "uid": "u"}}).requests == found


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}, "Burstable"),
        ({"requests": {"memory": "1Gi"}}, "Burstable"),
        ({}, "BestEffort"),
    ],
)
def test_the_class_is_decided_by_the_pod_where_it_declares_something(own, expected):
    assert qos_class(pod(own, {})) == expected


def test_what_may_not_be():
    own = {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "64Mi"}}
    both = pod(own, {"requests": {"cpu": "800m"}}, {"requests": {"cpu": "300m"}, "limits": {"cpu": "3"}})
    assert [(one.field, one.message) for one in validate_pod_resources(both)] == [
        (
            "spec.resources.requests[cpu]",
            'Invalid value: "1": must be greater than or equal to aggregate container requests of 1100m',
        ),
        (
            "spec.containers[1].resources.limits[cpu]",
            'Invalid value: "3": must be less than or equal to pod limits of 2',
        ),
    ]
    wrong = pod({"requests": {"ephemeral-storage": "1Gi", "memory": "2Gi"}, "limits": {"memory": "1Gi"}})
    assert [(one.field, one.message) for one in validate_pod_resources(wrong)] == [
        ("spec.resources.requests", 'Unsupported value: "ephemeral-storage": supported values: "cpu", "memory"'),
        ("spec.resources.requests", 'Invalid value: "2Gi": must be less than or equal to memory limit of 1Gi'),
    ]


def test_a_resize_stays_within_the_pods_own():
    own = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
    before = defaulted(own, {"requests": {"cpu": "500m"}})
    after = defaulted(own, {"requests": {"cpu": "1500m"}})
    assert [one.field for one in validate_resize(after, before)] == ["spec.resources.requests[cpu]"]
    assert validate_resize(defaulted(own, {"requests": {"cpu": "900m"}}), before) == []
    larger = defaulted({"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}, {"requests": {"cpu": "500m"}})
    assert [one.field for one in validate_resize(larger, before)] == ["spec"]


def test_quotas_and_limit_ranges_count_the_pods_own():
    one = pod({"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "4"}}, {})
    assert quotas.unsaid(["requests.cpu", "limits.cpu", "memory"], one) == ""
    assert quotas.unsaid(["requests.cpu"], pod({}, {})) == "requests.cpu for: c0"
    little = pod({"requests": {"cpu": "1m"}}, {})
    limited = ["cpu", "requests.cpu", "limits.cpu", "limits.memory", "requests.memory"]
    assert quotas.unsaid(limited, little) == (
        "limits.cpu for: c0; limits.memory for: c0; requests.memory for: c0"
    )  # none of what a quota limits gets in unseen
    most = {"spec": {"limits": [{"type": "Pod", "max": {"cpu": "3"}}]}}
    assert limits.pod_violations(one, [most]) == ["maximum cpu usage per Pod is 3, but limit is 4"]


def test_who_scales_and_who_evicts_counts_the_pods_own():
    one = pod({"requests": {"cpu": "2", "memory": "1Gi"}}, {})
    assert requests_of([one], "cpu") == {"p": 2000}
    assert _requested(one, "memory") == 1 << 30
    assert _memory_limit(pod({"limits": {"memory": "64Mi"}})) == 64 * MIB


def test_the_node_gives_the_limits_to_the_pod_and_to_containers_without_any():
    own = {"requests": {"cpu": "500m"}, "limits": {"cpu": "1", "memory": "64Mi"}}
    one = pod(own, {}, {"limits": {"memory": "32Mi"}})
    cgroup = resources.pod_cgroup(one, 100)
    assert cgroup == {"cpu_shares": 512, "cpu_quota_us": 100_000, "memory_bytes": 64 * MIB, "pids": 100}
    first, second = (resources.as_limited(one, each) for each in one["spec"]["containers"])
    assert [resources.memory_bytes(each) for each in (first, second)] == [64 * MIB, 32 * MIB]
    assert [resources.cpu_quota_us(each) for each in (first, second)] == [100_000, 100_000]
    plain = {"name": "c", "resources": {}}
    assert resources.as_limited(pod({}, {}), plain) is plain


def test_what_of_the_pods_memory_no_container_asks_for_protects_all_of_them():
    node = {"status": {"capacity": {"memory": "1Gi"}}}
    one = pod({"requests": {"memory": "512Mi"}}, {"requests": {"memory": "256Mi"}}, {})
    first, second = (resources.oom_score_adj(one, each, node) for each in one["spec"]["containers"])
    assert (first, second) == (1000 - 375, 1000 - 125)
