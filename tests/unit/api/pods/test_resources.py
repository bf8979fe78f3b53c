"""What pods ask for, and their quality of service."""

from __future__ import annotations

import pytest

from minik8s_modules.api.pods.resources import PodResources, node_allocatable, pod_requests, qos_class


def container(requests=None, limits=None):
    return {"name": "c", "resources": {"requests": requests or {}, "limits": limits or {}}}


def test_pod_requests():
    pod = {
        "spec": {
            "containers": [
                container({"cpu": "100m", "memory": "64Mi"}),
                container({"cpu": "250m"}, {"memory": "64Mi", "example.com/gpu": "1"}),
            ],
            "initContainers": [container({"cpu": "1"}), container({"memory": "32Mi"})],
        }
    }
    assert pod_requests(pod) == PodResources(1000, 128 << 20, 1, {"example.com/gpu": 1})


def test_a_pod_without_requests_asks_for_itself():
    assert pod_requests({"spec": {"containers": [{"name": "c"}]}}) == PodResources(0, 0, 1, {})


def test_what_a_node_has():
    node = {"status": {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "3500m", "memory": "1Gi", "pods": "20"}}}
    assert node_allocatable(node) == PodResources(3500, 1 << 30, 20, {})
    assert node_allocatable({"status": {"capacity": {"cpu": "4"}}}) == PodResources(4000, 0, 110, {})


BOTH = {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        ([container()], "BestEffort"),
        ([container({"cpu": "0"})], "BestEffort"),
        ([container(BOTH, BOTH)], "Guaranteed"),
        ([container({}, BOTH)], "Guaranteed"),
        ([container({"cpu": "1000m", "memory": "1024Mi"}, BOTH)], "Guaranteed"),
        ([container({"cpu": "500m"}, BOTH)], "Burstable"),
        ([container({}, {"cpu": "1"})], "Burstable"),
        ([container(BOTH, BOTH), container()], "Burstable"),
    ],
)
def test_qos_class(containers, expected):
    assert qos_class({"spec": {"containers": containers}}) == expected


def test_init_containers_count_for_qos():
    pod = {"spec": {"containers": [container(BOTH, BOTH)], "initContainers": [container()]}}
    assert qos_class(pod) == "Burstable"
