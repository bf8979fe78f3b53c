"""The shell: what it reads, when it decides, what it writes; on an API in memory with metrics and scales."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from urllib3.response import HTTPResponse

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound, StatusError
from minik8s_modules.api.kinds import DEPLOYMENT, EVENT, HORIZONTAL_POD_AUTOSCALER, POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import FakeClock, rfc3339
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.base.metrics import Registry
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.controllers.autoscaling.controller import TICK_S, AutoscalerController
from minik8s_modules.controllers.autoscaling.figures import AutoscalerFigures
from minik8s_modules.controllers.autoscaling.targets import scale_in
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.informers import Informers
from tests.support.waiting import until

SPACE = "shop"


class Server:
    """Answers raw requests: PodMetrics, custom and external metrics, scales of the deployments of a ``FakeApi``."""

    def __init__(self, api: FakeApi, clock: FakeClock) -> None:
        self.api, self.clock = api, clock
        self.cpu: dict[str, str] = {}
        self.answers: dict[str, Any] = {}
        self.asked: list[str] = []
        self.refused = 0

    def raw(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> HTTPResponse:
        """Answer."""
        assert headers is None or headers["Content-Type"] == "application/json"
        self.asked.append(f"{method} {path}")
        where = urlsplit(path)
        if where.path == "/apis/metrics.k8s.io/v1beta1/pods":
            return answer(200, {"items": [self._metrics(name, cpu) for name, cpu in self.cpu.items()]})
        if where.path.endswith("/scale"):
            return self._scale(where.path.split("/")[-2], body)
        key = f"{where.path}?{'&'.join(f'{name}={text[0]}' for name, text in sorted(parse_qs(where.query).items()))}"
        if key.rstrip("?") in self.answers:
            return answer(200, self.answers[key.rstrip("?")])
        return answer(404, status(404, "the server could not find the requested resource"))

    def _metrics(self, name: str, cpu: str) -> JsonObject:
        meta = {"name": name, "namespace": SPACE}
        containers = [{"name": "app", "usage": {"cpu": cpu, "memory": "1Mi"}}]
        return {"metadata": meta, "timestamp": rfc3339(self.clock.now()), "window": "10s", "containers": containers}

    def _scale(self, name: str, body: bytes | None) -> HTTPResponse:
        if self.refused and body is not None:
            return answer(self.refused, status(self.refused, "no"))
        try:
            found = self.api.get(DEPLOYMENT, name, SPACE)
        except NotFound as error:
            return answer(404, status(404, str(error)))
        if body is not None:
            replicas = json.loads(body)["spec"]["replicas"]
            found = self.api.patch(DEPLOYMENT, name, SPACE, {"spec": {"replicas": replicas}})
        scale = scale_in(found)
        shown = {"replicas": scale.status_replicas, "selector": scale.selector}
        return answer(200, {"metadata": {"name": name}, "spec": {"replicas": scale.replicas}, "status": shown})


def answer(code: int, body: JsonObject) -> HTTPResponse:
    return HTTPResponse(json.dumps(body).encode(), status=code, preload_content=True)


def status(code: int, message: str) -> JsonObject:
    return {"kind": "Status", "status": "Failure", "code": code, "message": message, "reason": ""}


class Shop:
    """A cluster with one deployment, which an autoscaler scales."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.api = FakeApi(self.clock)
        self.server = Server(self.api, self.clock)
        self.registry = Registry()
        self.figures = AutoscalerFigures(self.registry)
        self.context: Context | None = None

    def begin(self) -> None:
        """Begin the controller, anew if there is one: it does what ``tick`` has it do, and nothing by itself."""
        self.end()
        recorder = EventRecorder(self.api, "c", clock=self.clock)
        context = self.context = Context(self.api, recorder, Informers(self.api), self.clock)
        self.controller = AutoscalerController(context, self.server, self.figures)
        recorder.start()
        context.informers.start()

    def end(self) -> None:
        """End the controller."""
        if self.context is not None:
            self.context.informers.stop()
            self.context.recorder.stop()
            self.context.pool.shutdown()
            self.context = None

    def tick(self) -> None:
        """Let one tick pass: the copies show what has been written, and who is due is decided on."""
        assert self.context is not None
        self.clock.advance(TICK_S)
        informers = self.context.informers
        for kind in (HORIZONTAL_POD_AUTOSCALER, DEPLOYMENT, POD):
            revision = max((int(objects.resource_version(each)) for each in self.api.list(kind).items), default=0)
            until(functools.partial(informers.of(kind).has_reached, revision))
        for key in self.controller.due():
            with contextlib.suppress(StatusError, TemporaryError):
                self.controller.sync(key)

    def deployment(self, replicas: int, *cpu: str, name: str = "web") -> None:
        """Make a deployment with pods that use so much."""
        selector = {"matchLabels": {"app": name}}
        meta = {"name": name, "namespace": SPACE}
        made = {"metadata": meta, "spec": {"replicas": replicas, "selector": selector}}
        self.api.create(DEPLOYMENT, {**made, "status": {"replicas": replicas}})
        for number, used in enumerate(cpu):
            self.pod(f"{name}-{number}", name)
            self.server.cpu[f"{name}-{number}"] = used

    def pod(self, name: str, app: str) -> None:
        """Make a ready pod."""
        meta = {"name": name, "namespace": SPACE, "labels": {"app": app}}
        containers = [{"name": "app", "resources": {"requests": {"cpu": "100m"}}}]
        since = "2020-01-01T00:00:00Z"
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": since}
        told = {"phase": "Running", "startTime": since, "conditions": [ready]}
        self.api.create(POD, {"metadata": meta, "spec": {"containers": containers}, "status": told})

    def autoscaler(self, *metrics: JsonObject, name: str = "hpa", target: str = "web", **spec: Any) -> None:
        """Make an autoscaler for a deployment; without metrics the CPU is held at half of what is requested."""
        half = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
        declared = {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target},
            "minReplicas": 1,
            "maxReplicas": 10,
            "metrics": [*metrics] or [{"type": "Resource", "resource": half}],
            **spec,
        }
        self.api.create(HORIZONTAL_POD_AUTOSCALER, {"metadata": {"name": name, "namespace": SPACE}, "spec": declared})

    def replicas(self, name: str = "web") -> int:
        """Return how many the deployment is to have."""
        return int(self.api.get(DEPLOYMENT, name, SPACE)["spec"]["replicas"])

    def status(self, name: str = "hpa") -> JsonObject:
        """Return the status of an autoscaler."""
        return objects.status(self.api.get(HORIZONTAL_POD_AUTOSCALER, name, SPACE))

    def reason(self, kind: str, name: str = "hpa") -> str:
        """Return the reason of a condition."""
        return str((objects.condition({"status": self.status(name)}, kind) or {}).get("reason"))

    def reasons(self) -> set[str]:
        """Return the reasons of all Events."""
        return {str(each["reason"]) for each in self.api.list(EVENT).items}

    def until(self, holds: Callable[[], bool]) -> None:
        """Let ticks pass until something holds, for ten minutes."""
        for _ in range(150):
            if holds():
                return
            self.tick()
        pytest.fail("it did not come true in ten minutes")


@pytest.fixture
def shop() -> Iterator[Shop]:
    shop = Shop()
    yield shop
    shop.end()


def test_what_is_used_scales_up_and_is_told(shop: Shop):
    shop.deployment(2, "90m", "60m")
    shop.autoscaler()
    shop.begin()
    shop.until(lambda: shop.replicas() == 3 and shop.status().get("desiredReplicas") == 3)
    current = shop.status()["currentMetrics"][0]["resource"]["current"]
    assert current == {"averageUtilization": 75, "averageValue": "75m"}
    until(lambda: "SuccessfulRescale" in shop.reasons())
    text = shop.registry.text()
    assert 'horizontal_pod_autoscaler_controller_reconciliations_total{action="scale_up",error="none"}' in text
    assert 'metric_computation_total{action="scale_up",error="none",metric_type="Resource"}' in text


def test_what_is_not_used_is_taken_away_once_the_window_has_passed(shop: Shop):
    shop.deployment(4, "10m", "10m", "10m", "10m")
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
    shop.deployment(4, "10m", "10m", "10m", "10m")
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
    shop.deployment(2, "50m", "50m")
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
    shop.deployment(2, "90m", "60m")
    shop.autoscaler()
    shop.server.refused = 403
    shop.begin()
    shop.until(lambda: shop.reason("AbleToScale") == "FailedUpdateScale")
    until(lambda: "FailedRescale" in shop.reasons())
    shop.server.refused = 0
    shop.until(lambda: shop.replicas() == 3)


def test_two_autoscalers_on_the_same_pods_scale_nothing(shop: Shop):
    shop.deployment(2, "90m", "90m")
    shop.server.refused = 403
    shop.autoscaler()
    shop.autoscaler(name="other")
    shop.begin()
    shop.until(lambda: all(shop.reason("ScalingActive", name) == "AmbiguousSelector" for name in ("hpa", "other")))
    shop.server.refused = 0
    told = objects.condition({"status": shop.status()}, "ScalingActive") or {}
    assert "controlled by multiple HPAs: [{hpa shop} {other shop}]" in told["message"]
    for _ in range(10):
        shop.tick()
    assert shop.replicas() == 2


def test_metrics_of_others_are_read_where_they_are_served(shop: Shop):
    shop.deployment(2, "50m", "50m")
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
    shop.deployment(2, "50m", "50m")
    queue = {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "1"}}
    shop.autoscaler({"type": "External", "external": queue})
    shop.begin()
    shop.until(lambda: shop.reason("ScalingActive") == "FailedGetExternalMetric")
    told = objects.condition({"status": shop.status()}, "ScalingActive") or {}
    assert told["message"] == (
        "the HPA was unable to compute the replica count: unable to get external metric shop/queue/nil: unable to "
        "fetch metrics from external metrics API: the server could not find the requested resource"
    )


def test_many_autoscalers_read_the_metrics_once_a_tick(shop: Shop):
    shop.deployment(1, "50m")
    for number in range(50):
        shop.deployment(1, name=f"d{number}")
        shop.autoscaler(name=f"h{number}", target=f"d{number}")
    shop.begin()
    for _ in range(20):
        shop.tick()
    assert all(shop.reason("ScalingActive", f"h{number}") == "FailedGetResourceMetric" for number in range(50))
    asked = sum("metrics.k8s.io" in each for each in shop.server.asked)
    assert asked <= shop.clock.monotonic() / TICK_S
