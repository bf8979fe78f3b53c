"""What a plan says of an autoscaler is what the controller does: random loads, and what cannot be said."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from minik8s_modules.api.kinds import DEPLOYMENT, HORIZONTAL_POD_AUTOSCALER, POD, REPLICA_SET
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.metrics import Registry
from minik8s_modules.controllers.autoscaling.controller import AutoscalerController
from minik8s_modules.controllers.autoscaling.figures import AutoscalerFigures
from minik8s_modules.controllers.autoscaling.readings import Readings
from minik8s_modules.reconcile.planning.simulated_autoscalers import SimulatedScaling, simulated_scaling
from minik8s_modules.runtime.controller import Context
from tests.support.servers.autoscaled import SPACE, Server, Shop


@pytest.fixture
def shop() -> Iterator[Shop]:
    figures = AutoscalerFigures(Registry())

    def made(context: Context, server: Server) -> AutoscalerController:
        return AutoscalerController(context, server, Readings(server, context.clock), figures)

    shop = Shop(DEPLOYMENT, HORIZONTAL_POD_AUTOSCALER, made)
    yield shop
    shop.end()


class Reading:
    """What a plan reads with: lists of the API, and raw requests."""

    def __init__(self, shop: Shop) -> None:
        self.list, self.raw = shop.api.list, shop.server.raw


def foretold(shop: Shop, *applied: JsonObject, gone: tuple[JsonObject, ...] = ()) -> SimulatedScaling:
    return simulated_scaling(applied, gone, shop.api.list(POD).items, Reading(shop), shop.clock)


def noted(shop: Shop, *also: JsonObject) -> str:
    (note,) = foretold(shop, *also, shop.api.list(HORIZONTAL_POD_AUTOSCALER).items[0]).notes
    assert {"HorizontalPodAutoscaler"} <= {about.kind for about in note.about}
    return note.text.removeprefix(f"HorizontalPodAutoscaler {SPACE}/hpa: ")


@pytest.mark.parametrize("seed", range(30))
def test_what_is_foretold_is_what_the_controller_does(shop: Shop, seed: int):
    dice = random.Random(seed)
    current, least = dice.randint(1, 6), dice.randint(1, 3)
    shop.workload(current, *(f"{dice.randint(1, 150)}m" for _ in range(current)))
    shop.autoscaler(minReplicas=least, maxReplicas=least + dice.randint(0, 4))
    result = noted(shop)
    shop.begin()
    shop.tick()
    after = shop.replicas()
    if after == current:
        assert result.startswith(f"Deployment web would keep its {current} replicas")
    else:
        assert result.startswith(f"Deployment web would have {after} replicas instead of {current}: ")


def test_the_reason_is_told(shop: Shop):
    shop.workload(2, "90m", "60m")
    shop.autoscaler()
    above = "cpu resource utilization (percentage of request) above target"
    assert noted(shop) == f"Deployment web would have 3 replicas instead of 2: {above}"


def test_what_windows_hold_back_is_told(shop: Shop):
    shop.workload(4, "10m", "10m", "10m", "10m")
    shop.autoscaler()
    held = "its metrics ask for 1, which windows, policies or bounds hold back"
    assert noted(shop) == f"Deployment web would keep its 4 replicas; {held}"


def test_a_workload_of_the_same_plan_is_the_target(shop: Shop):
    shop.autoscaler(minReplicas=2)
    planned: Any = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": SPACE}}
    planned["spec"] = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}}
    assert noted(shop) == "Deployment web does not exist: nothing would be scaled"
    below = "Current number of replicas below Spec.MinReplicas"
    assert noted(shop, planned) == f"Deployment web would have 2 replicas instead of 1: {below}"
    planned["spec"]["replicas"] = 2
    assert "there are no Pods to measure yet" in noted(shop, planned)


METRIC = {"name": "requests"}
PER_POD = {"type": "AverageValue", "averageValue": "1"}
ITEM = {"describedObject": {"kind": "Pod", "name": "web-0"}, "timestamp": "2020-01-01T00:00:00Z", "value": "4"}
DESCRIBED = {"apiVersion": "v1", "kind": "Service", "name": "web"}
CUSTOM_PATH = f"/apis/custom.metrics.k8s.io/v1beta1/namespaces/{SPACE}"


@pytest.mark.parametrize(
    ("metric", "path", "items", "group"),
    [
        ({"type": "Pods", "pods": {"metric": METRIC, "target": PER_POD}},
         f"{CUSTOM_PATH}/pods/*/requests?labelSelector=app=web",
         [ITEM, {**ITEM, "describedObject": {"kind": "Pod", "name": "web-1"}}], "custom"),
        ({"type": "Object", "object": {"describedObject": DESCRIBED, "metric": METRIC, "target": PER_POD}},
         f"{CUSTOM_PATH}/services/web/requests", [{**ITEM, "value": "8"}], "custom"),
        ({"type": "External", "external": {"metric": METRIC, "target": PER_POD}},
         f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{SPACE}/requests", [{"value": "8"}], "external"),
    ],
)  # fmt: skip
def test_other_metrics_are_told_where_an_api_answers(
    shop: Shop, metric: JsonObject, path: str, items: list[JsonObject], group: str
):
    shop.workload(2, "90m", "60m")
    shop.autoscaler(metric, maxReplicas=8)
    assert "as what it uses is not known" in noted(shop)
    shop.server.answers[path] = {"items": items}
    assert noted(shop).startswith("Deployment web would have 4 replicas instead of 2: ")  # at most twice as many
    (note,) = foretold(shop, shop.api.list(HORIZONTAL_POD_AUTOSCALER).items[0]).notes
    assert (f"{group}.metrics.k8s.io/v1beta1", "*", SPACE, "") in note.about


def test_the_controller_decides_the_same_by_other_metrics(shop: Shop):
    shop.workload(2, "90m", "60m")
    shop.autoscaler({"type": "External", "external": {"metric": METRIC, "target": PER_POD}})
    path = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{SPACE}/requests"
    shop.server.answers[path] = {"items": [{"value": "3"}]}
    result = noted(shop)
    shop.begin()
    shop.tick()
    assert result.startswith(f"Deployment web would have {shop.replicas()} replicas instead of 2: ")


def declared(shop: Shop, **spec: Any) -> JsonObject:
    live = shop.api.list(DEPLOYMENT).items[0]
    return {**live, "spec": {**live["spec"], **spec}}


def test_a_workload_that_is_applied_with_other_replicas_is_scaled_by_the_autoscaler_there_is(shop: Shop):
    shop.workload(4, "90m", "60m", "60m", "60m")
    shop.autoscaler(minReplicas=3)
    found = foretold(shop, declared(shop, replicas=1))
    below = "would have 3 replicas instead of 1: Current number of replicas below Spec.MinReplicas"
    assert [note.text for note in found.notes] == [f"HorizontalPodAutoscaler {SPACE}/hpa: Deployment web {below}"]
    assert [one["spec"]["replicas"] for one in found.scaled] == [3]


def test_nothing_is_told_of_a_workload_that_keeps_its_replicas_nor_of_an_autoscaler_that_goes(shop: Shop):
    shop.workload(4, "90m", "60m", "60m", "60m")
    shop.autoscaler(minReplicas=3)
    assert foretold(shop, declared(shop, paused=True)) == SimulatedScaling()
    gone = (shop.api.list(HORIZONTAL_POD_AUTOSCALER).items[0],)
    assert foretold(shop, declared(shop, replicas=1), gone=gone) == SimulatedScaling()


def test_what_metrics_ask_for_is_told_and_scales_nothing_in_a_plan(shop: Shop):
    shop.workload(2, "90m", "60m")
    shop.autoscaler()
    found = foretold(shop, shop.api.list(HORIZONTAL_POD_AUTOSCALER).items[0])
    assert (len(found.notes), found.scaled) == (1, ())


def test_bounds_of_an_autoscaler_of_the_original_are_certain(shop: Shop):
    selector = {"matchLabels": {"app": "old"}}
    made = {"metadata": {"name": "old", "namespace": SPACE}, "spec": {"replicas": 1, "selector": selector}}
    shop.api.create(REPLICA_SET, made)
    spec = {"scaleTargetRef": {"kind": "ReplicaSet", "name": "old"}, "maxReplicas": 5}
    spec["metrics"] = [{"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}]
    meta = {"name": "hpa", "namespace": SPACE}
    original: JsonObject = {"apiVersion": "v1", "kind": "HorizontalPodAutoscaler", "metadata": meta, "spec": spec}
    found = foretold(shop, {**original, "spec": {**spec, "minReplicas": 2}})
    below = "ReplicaSet old would have 2 replicas instead of 1: Current number of replicas below Spec.MinReplicas"
    assert [note.text for note in found.notes] == [f"HorizontalPodAutoscaler {SPACE}/hpa: {below}"]
    assert [one["spec"]["replicas"] for one in found.scaled] == [2]
    (note,) = foretold(shop, original).notes
    assert "it decides by averages over its windows" in note.text


def test_a_target_that_is_no_workload_is_for_the_controllers(shop: Shop):
    shop.autoscaler(scaleTargetRef={"apiVersion": "example.com/v1", "kind": "Web", "name": "web"})
    assert noted(shop) == "Web web: only the controllers can say how many replicas it would have"


def test_nothing_is_read_where_no_autoscaler_and_no_workload_is_planned():
    nobody: Any = None
    assert simulated_scaling([{"apiVersion": "v1", "kind": "Pod"}], [], [], nobody, nobody) == SimulatedScaling()
