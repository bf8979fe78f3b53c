"""The shell of the original's autoscalers, on an API in memory with metrics and scales."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from minik8s_modules.api.kinds import LEGACY_AUTOSCALER, POD, REPLICA_SET
from minik8s_modules.controllers.autoscaling.original_controller import OriginalAutoscalerController
from minik8s_modules.controllers.autoscaling.readings import Readings
from tests.support.servers.autoscaled import SPACE, Shop
from tests.support.waiting import until

POLICY = {"type": "Pods", "value": 1, "periodSeconds": 30}
CPU = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
MEMORY = {"name": "memory", "target": {"type": "AverageValue", "averageValue": 100}}


@pytest.fixture
def shop() -> Iterator[Shop]:
    shop = Shop(
        REPLICA_SET,
        LEGACY_AUTOSCALER,
        lambda context, server: OriginalAutoscalerController(context, server, Readings(server, context.clock)),
    )
    yield shop
    shop.end()


def scaled_by(shop: Shop, *metrics: dict[str, Any]) -> None:
    declared = {
        "scaleTargetRef": {"kind": "ReplicaSet", "name": "web"},
        "minReplicas": 1,
        "maxReplicas": 3,
        "scaleWindowSeconds": 20,
        "metrics": [*metrics],
        "behavior": {"scaleUp": POLICY, "scaleDown": POLICY},
    }
    shop.api.create(LEGACY_AUTOSCALER, {"metadata": {"name": "hpa", "namespace": SPACE}, "spec": declared})


def test_the_cpu_scales_by_one_a_window_up_and_down(shop: Shop):
    shop.workload(2, "900m", "900m")
    scaled_by(shop, CPU, MEMORY)
    shop.begin()
    shop.until(lambda: shop.replicas() == 3)
    until(lambda: "SuccessfulRescale" in shop.reasons())
    shop.pod("web-2", "web")
    shop.server.cpu = dict.fromkeys(("web-0", "web-1", "web-2"), "10m")
    seen = []
    for _ in range(40):
        shop.tick()
        seen.append(shop.replicas())
    assert [number for number in (3, 2, 1) if number in seen] == [3, 2, 1]
    # twenty seconds are five ticks
    assert seen.count(2) >= 5


def test_memory_scales_by_the_mean_of_the_pods(shop: Shop):
    shop.workload(1, "1m")
    shop.server.memory = "160Mi"
    scaled_by(shop, CPU, MEMORY)
    shop.begin()
    shop.until(lambda: shop.replicas() == 2)


def test_what_was_used_before_a_restart_is_not_known_after_it_and_the_window_begins_anew(shop: Shop):
    shop.workload(2, "900m", "900m")
    scaled_by(shop, CPU)
    shop.begin()
    shop.tick()
    shop.begin()
    again = shop.clock.monotonic()
    shop.until(lambda: shop.replicas() == 3)
    assert shop.clock.monotonic() - again >= 20


def test_a_pod_that_is_gone_is_forgotten(shop: Shop):
    shop.workload(2, "500m", "100m")
    scaled_by(shop, CPU)
    shop.begin()
    for _ in range(3):
        shop.tick()
    shop.api.delete(POD, "web-1", SPACE, grace_s=0)
    del shop.server.cpu["web-1"]
    assert shop.context is not None
    pods = shop.context.informers.of(POD)
    until(lambda: pods.get(SPACE, "web-1") is None)
    for _ in range(10):
        shop.tick()
    assert shop.replicas() == 2
