"""The shell: what it reads, when it decides, what it writes; on an API in memory with metrics and scales."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import DEPLOYMENT, HORIZONTAL_POD_AUTOSCALER
from minik8s_modules.api.objects import Key
from minik8s_modules.base.clock import rfc3339
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.base.metrics import Registry
from minik8s_modules.client.silences import AGAIN_S
from minik8s_modules.client.transport import READ_TIMEOUT_S
from minik8s_modules.controllers.autoscaling.controller import PERIOD_S, TICK_S, AutoscalerController
from minik8s_modules.controllers.autoscaling.figures import AutoscalerFigures
from minik8s_modules.controllers.autoscaling.readings import Readings
from minik8s_modules.runtime.controller import Context
from tests.support.servers.autoscaled import SPACE, Server, Shop
from tests.support.waiting import until


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.fixture
def shop(registry: Registry) -> Iterator[Shop]:
    figures = AutoscalerFigures(registry)

    def made(context: Context, server: Server) -> AutoscalerController:
        return AutoscalerController(context, server, Readings(server, context.clock), figures)

    shop = Shop(DEPLOYMENT, HORIZONTAL_POD_AUTOSCALER, made)
    yield shop
    shop.end()


def test_what_is_used_scales_up_and_is_told(shop: Shop, registry: Registry):
    shop.workload(2, "90m", "60m")
    shop.autoscaler()
    shop.begin()
    shop.until(lambda: shop.replicas() == 3 and shop.status().get("desiredReplicas") == 3)
    current = shop.status()["currentMetrics"][0]["resource"]["current"]
    assert current == {"averageUtilization": 75, "averageValue": "75m"}
    until(lambda: "SuccessfulRescale" in shop.reasons())
    text = registry.text()
    assert 'horizontal_pod_autoscaler_controller_reconciliations_total{action="scale_up",error="none"}' in text
    assert 'metric_computation_total{action="scale_up",error="none",metric_type="Resource"}' in text


def test_what_is_not_used_is_taken_away_once_the_window_has_passed(shop: Shop):
    shop.workload(4, "10m", "10m", "10m", "10m")
    shop.autoscaler(behavior={"scaleUp": UP, "scaleDown": {**DOWN, "stabilizationWindowSeconds": 120}})
    began = shop.clock.monotonic()
    shop.begin()
    shop.until(lambda: shop.reason("AbleToScale") == "ScaleDownStabilized")
    assert shop.replicas() == 4
    shop.until(lambda: shop.replicas() == 1)
    assert shop.clock.monotonic() - began >= 120


UP = {"selectPolicy": "Max", "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}]}
DOWN = {"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}


def test_a_controller_that_begins_anew_waits_for_the_whole_window(shop: Shop):
    shop.workload(4, "10m", "10m", "10m", "10m")
    shop.autoscaler(behavior={"scaleUp": UP, "scaleDown": {**DOWN, "stabilizationWindowSeconds": 120}})
    shop.begin()
    shop.until(lambda: shop.reason("AbleToScale") == "ScaleDownStabilized")
    for _ in range(15):
        shop.tick()
    shop.end()
    again = shop.clock.monotonic()
    shop.begin()
    shop.until(lambda: shop.replicas() == 1)
    assert shop.clock.monotonic() - again >= 120


def test_a_newer_sample_is_decided_on_before_the_period_ends(shop: Shop):
    shop.workload(2, "50m", "50m")
    shop.autoscaler()
    shop.begin()
    shop.until(lambda: shop.reason("ScalingActive") == "ValidMetricFound")
    for name in shop.server.cpu:
        shop.server.cpu[name] = "100m"
    changed = shop.clock.monotonic()
    shop.until(lambda: shop.replicas() == 4)
    assert shop.clock.monotonic() - changed < 15


def test_a_target_that_is_not_there_is_told(shop: Shop):
    shop.autoscaler()
    shop.begin()
    shop.until(lambda: shop.reason("AbleToScale") == "FailedGetScale")
    assert 'deployments.apps "web" not found' in shop.status()["conditions"][0]["message"]


def test_a_refused_scale_is_told_and_tried_again(shop: Shop):
    shop.workload(2, "90m", "60m")
    shop.autoscaler()
    shop.server.refused = 403
    shop.begin()
    shop.until(lambda: shop.reason("AbleToScale") == "FailedUpdateScale")
    until(lambda: "FailedRescale" in shop.reasons())
    shop.server.refused = 0
    shop.until(lambda: shop.replicas() == 3)


def test_two_autoscalers_on_the_same_pods_scale_nothing(shop: Shop):
    shop.workload(2, "90m", "90m")
    shop.server.refused = 403
    shop.autoscaler()
    shop.autoscaler(name="other")
    shop.begin()
    shop.until(lambda: all(shop.reason("ScalingActive", name) == "AmbiguousSelector" for name in ("hpa", "other")))
    shop.server.refused = 0
    status = objects.condition({"status": shop.status()}, "ScalingActive") or {}
    assert "controlled by multiple HPAs: [{hpa shop} {other shop}]" in status["message"]
    for _ in range(10):
        shop.tick()
    assert shop.replicas() == 2


def test_a_selector_that_is_none_is_told(shop: Shop):
    shop.workload(2, "90m", "90m")
    shop.api.patch(DEPLOYMENT, "web", SPACE, {"spec": {"selector": {"matchLabels": {"app": "a b"}}}})
    shop.autoscaler()
    shop.begin()
    shop.until(lambda: shop.reason("ScalingActive") == "InvalidSelector")
    status = objects.condition({"status": shop.status()}, "ScalingActive") or {}
    assert status["status"] == "False"
    assert "couldn't convert selector into a corresponding internal selector object" in status["message"]
    until(lambda: "InvalidSelector" in shop.reasons())
    assert shop.replicas() == 2


def test_metrics_of_others_are_read_where_they_are_served(shop: Shop):
    shop.workload(2, "50m", "50m")
    custom = "/apis/custom.metrics.k8s.io/v1beta2"
    moment = rfc3339(shop.clock.now())
    values = [{"describedObject": {"name": f"web-{each}"}, "timestamp": moment, "value": "30"} for each in range(2)]
    shop.server.answers = {
        custom: {},
        f"{custom}/namespaces/shop/pods/*/hits?labelSelector=app=web": {"items": values},
        f"{custom}/namespaces/shop/services/web/load": {"items": values[:1]},
        "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/queue?labelSelector=q=a": {
            "items": [{"value": "7"}, {"value": "500m"}]
        },
    }
    hits = {"metric": {"name": "hits"}, "target": {"type": "AverageValue", "averageValue": "10"}}
    whose = {"apiVersion": "v1", "kind": "Service", "name": "web"}
    load = {"describedObject": whose, "metric": {"name": "load"}, "target": {"type": "Value", "value": "20"}}
    labels = {"matchLabels": {"q": "a"}}
    queue = {"metric": {"name": "queue", "selector": labels}, "target": {"type": "AverageValue", "averageValue": "1"}}
    shop.autoscaler(
        {"type": "Pods", "pods": hits}, {"type": "Object", "object": load}, {"type": "External", "external": queue}
    )
    shop.begin()
    shop.until(lambda: shop.replicas() == 4)  # eight are asked for, twice as many as there are may be had
    shop.until(lambda: shop.reason("ScalingLimited") == "ScaleUpLimit")
    shown = [each[each["type"].lower()]["current"] for each in shop.status()["currentMetrics"]]
    assert shown == [{"averageValue": "30"}, {"value": "30"}, {"averageValue": "3750m"}]


def test_metrics_that_nobody_serves_are_told(shop: Shop):
    shop.workload(2, "50m", "50m")
    queue = {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "1"}}
    shop.autoscaler({"type": "External", "external": queue})
    shop.begin()
    shop.until(lambda: shop.reason("ScalingActive") == "FailedGetExternalMetric")
    status = objects.condition({"status": shop.status()}, "ScalingActive") or {}
    assert status["message"] == (
        "the HPA was unable to compute the replica count: unable to get external metric shop/queue/nil: unable to "
        "fetch metrics from external metrics API: the server could not find the requested resource"
    )


def test_metrics_apis_that_hang_hold_up_no_other_autoscaler(shop: Shop):
    shop.server.hanging = ("/apis/custom.metrics.k8s.io", "/apis/external.metrics.k8s.io")
    hits = {"metric": {"name": "hits"}, "target": {"type": "AverageValue", "averageValue": "10"}}
    queue = {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "1"}}
    for number in range(10):
        shop.workload(1, "50m", name=f"d{number}")
        metrics = ({"type": "Pods", "pods": hits}, {"type": "External", "external": queue})
        shop.autoscaler(*metrics, name=f"h{number}", target=f"d{number}")
    shop.workload(2, "90m", "60m")
    shop.autoscaler()
    began = shop.clock.monotonic()
    shop.begin()
    shop.until(lambda: shop.replicas() == 3)
    assert shop.clock.monotonic() - began < READ_TIMEOUT_S
    for _ in range(30):
        shop.tick()
    passed = shop.clock.monotonic() - began
    assert all(shop.reason("ScalingActive", f"h{number}") == "FailedGetPodsMetric" for number in range(10))
    for api in shop.server.hanging:
        assert 2 <= sum(each.startswith(api) for each in shop.server.waited) <= 1 + passed / AGAIN_S


def test_a_metric_that_hangs_takes_nothing_from_others_of_its_api(shop: Shop):
    custom, external = "/apis/custom.metrics.k8s.io/v1beta2", "/apis/external.metrics.k8s.io/v1beta1"
    of_service, queues = f"{custom}/namespaces/shop/services/web", f"{external}/namespaces/shop/queue?labelSelector="
    item = {"describedObject": {"name": "web"}, "timestamp": rfc3339(shop.clock.now()), "value": "10"}
    shop.server.answers = {custom: {}, f"{of_service}/load": {"items": [item]}, f"{queues}q=b": {"items": [item]}}
    shop.server.hanging = (f"{of_service}/slow", f"{queues}q%3Da")
    whose = {"apiVersion": "v1", "kind": "Service", "name": "web"}
    for name, metric, queue in (("hangs", "slow", "a"), ("hpa", "load", "b")):
        target = {"type": "Value", "value": "10"}
        load = {"describedObject": whose, "metric": {"name": metric}, "target": target}
        labels = {"matchLabels": {"q": queue}}
        waiting = {"metric": {"name": "queue", "selector": labels}, "target": target}
        shop.workload(1, "50m", name=name)
        shop.autoscaler(
            {"type": "Object", "object": load}, {"type": "External", "external": waiting}, name=name, target=name
        )
    began = shop.clock.monotonic()
    shop.begin()
    shop.until(lambda: shop.reason("ScalingActive", "hangs") == "FailedGetObjectMetric")
    for _ in range(40):
        shop.tick()
        assert shop.reason("ScalingActive") == "ValidMetricFound"
        assert len(shop.status()["currentMetrics"]) == 2
    passed = shop.clock.monotonic() - began
    for path in shop.server.hanging:
        assert 4 <= sum(each.startswith(path) for each in shop.server.waited) <= 1 + passed / AGAIN_S
    for path in shop.server.answers.keys() - {custom}:
        assert sum(path.partition("=")[0] in each for each in shop.server.asked) >= passed / PERIOD_S / 2


def test_metrics_of_pods_that_hang_are_waited_for_once_a_tick_and_by_nobody_who_has_something_else_to_do(shop: Shop):
    shop.server.hanging = ("/apis/metrics.k8s.io",)
    for number in range(10):
        shop.workload(1, "50m", name=f"d{number}")
        shop.autoscaler(name=f"h{number}", target=f"d{number}")
    shop.begin()
    for _ in range(3):
        shop.tick()
    assert len(shop.server.waited) == 3
    assert all(shop.reason("ScalingActive", f"h{number}") == "FailedGetResourceMetric" for number in range(10))
    readings = Readings(shop.server, shop.clock)
    readings.refresh(0)
    asked, answer = threading.Event(), threading.Event()

    def waits(path: str, wait_s: float) -> None:
        asked.set()
        assert answer.wait(60)

    shop.server.waits = waits  # type: ignore[method-assign]
    one, other = (threading.Thread(target=readings.refresh, args=(0,), daemon=True) for _ in range(2))
    one.start()
    assert asked.wait(60)
    other.start()
    other.join(60)
    assert not other.is_alive(), "it waits for what fails anyway"
    answer.set()
    one.join(60)
    assert readings.use_of(Key(SPACE, "d0-0")) is not None


def test_many_autoscalers_read_the_metrics_once_a_tick(shop: Shop):
    shop.workload(1, "50m")
    for number in range(50):
        shop.workload(1, name=f"d{number}")
        shop.autoscaler(name=f"h{number}", target=f"d{number}")
    shop.begin()
    for _ in range(20):
        shop.tick()
    assert all(shop.reason("ScalingActive", f"h{number}") == "FailedGetResourceMetric" for number in range(50))
    asked = sum("metrics.k8s.io" in each for each in shop.server.asked)
    assert asked <= shop.clock.monotonic() / TICK_S


def test_a_controller_that_dies_between_scaling_and_telling_is_followed_by_one_that_scales_no_further(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
):
    shop.workload(2, "90m", "60m")
    shop.autoscaler()
    shop.begin()

    def died(*_: object, **__: object) -> None:
        raise TemporaryError("it is dead")

    with monkeypatch.context() as dying:
        dying.setattr(shop.api, "update", died)
        shop.until(lambda: shop.replicas() == 3)
    assert "desiredReplicas" not in shop.status(), "nothing was told"
    shop.begin()
    shop.until(lambda: shop.status().get("currentReplicas") == 3)
    for _ in range(20):
        shop.tick()
        assert shop.replicas() == 3, "the third pod does not run yet: the two that do ask for three, as before"
