"""What a plan says of an autoscaler is what the controller does: random loads, and what cannot be said."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from minik8s_modules.api.kinds import DEPLOYMENT, HORIZONTAL_POD_AUTOSCALER, POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.metrics import Registry
from minik8s_modules.controllers.autoscaling.controller import AutoscalerController
from minik8s_modules.controllers.autoscaling.figures import AutoscalerFigures
from minik8s_modules.controllers.autoscaling.readings import Readings
from minik8s_modules.reconcile.planning.foretold_autoscalers import autoscaler_notes
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


def noted(shop: Shop, *also: JsonObject) -> str:
    applied = [*also, shop.api.list(HORIZONTAL_POD_AUTOSCALER).items[0]]
    (note,) = autoscaler_notes(applied, shop.api.list(POD).items, Reading(shop), shop.clock)
    assert {"HorizontalPodAutoscaler"} <= {about.kind for about in note.about}
    return note.text.removeprefix(f"HorizontalPodAutoscaler {SPACE}/hpa: ")


@pytest.mark.parametrize("seed", range(30))
def test_what_is_foretold_is_what_the_controller_does(shop: Shop, seed: int):
    dice = random.Random(seed)
    current, least = dice.randint(1, 6), dice.randint(1, 3)
    shop.workload(current, *(f"{dice.randint(1, 150)}m" for _ in range(current)))
    shop.autoscaler(minReplicas=least, maxReplicas=least + dice.randint(0, 4))
    told = noted(shop)
    shop.begin()
    shop.tick()
    after = shop.replicas()
    if after == current:
        assert told.startswith(f"Deployment web would keep its {current} replicas")
    else:
        assert told.startswith(f"Deployment web would have {after} replicas instead of {current}: ")


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


def test_what_cannot_be_said_is_told(shop: Shop):
    shop.workload(2, "90m", "60m")
    metric = {"name": "requests"}
    shop.autoscaler(
        {"type": "Pods", "pods": {"metric": metric, "target": {"type": "AverageValue", "averageValue": "1"}}}
    )
    assert "as what it uses is not known" in noted(shop)
    assert "read by the controllers alone" in noted(shop)


def test_a_target_that_is_no_workload_is_for_the_controllers(shop: Shop):
    shop.autoscaler(scaleTargetRef={"apiVersion": "example.com/v1", "kind": "Web", "name": "web"})
    assert noted(shop) == "Web web: how many replicas it would have only the controllers can say"


def test_nothing_is_read_where_no_autoscaler_is_planned():
    nobody: Any = None
    assert autoscaler_notes([{"apiVersion": "v1", "kind": "Pod"}], [], nobody, nobody) == ()
