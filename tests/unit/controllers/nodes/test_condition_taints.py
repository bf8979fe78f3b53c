"""Nodes have a NoSchedule taint for each condition that says so; a machine's taints of pressure are left alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from minik8s_modules.api.kinds import NODE
from minik8s_modules.base.clock import FakeClock
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.controllers.nodes.condition_taints import ConditionTaintController, decide_condition_taints
from minik8s_modules.controllers.nodes.nodes import STALE_AFTER_S, stale_after_s
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.informers import Informers
from tests.support.waiting import until

FOREIGN = {"key": "virtual-kubelet.io/provider", "value": "mock", "effect": "NoSchedule"}
EVICTING = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
MEASURED = {"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}


def _node(*taints: dict[str, str], type_: str = "virtual-kubelet", cordoned: bool = False, **message: str) -> Any:
    conditions = [{"type": kind, "status": status} for kind, status in message.items()]
    return {
        "metadata": {"name": "far", "labels": {"type": type_}},
        "spec": {"taints": [*taints], **({"unschedulable": True} if cordoned else {})},
        "status": {"conditions": conditions},
    }


def _names(taints: list[Any] | None) -> list[str] | None:
    return None if taints is None else [f"{each['key'].rpartition('/')[2]}:{each['effect']}" for each in taints]


@pytest.mark.parametrize(
    ("node", "wanted"),
    [
        (_node(Ready="True"), None),
        (_node(Ready="False"), ["not-ready:NoSchedule"]),
        (_node(FOREIGN, EVICTING, Ready="Unknown"), [
            "provider:NoSchedule", "unreachable:NoExecute", "unreachable:NoSchedule",
        ]),
        (_node(Ready="True", MemoryPressure="True", DiskPressure="False"), ["memory-pressure:NoSchedule"]),
        (_node(Ready="True", NetworkUnavailable="True"), ["network-unavailable:NoSchedule"]),
        (_node(Ready="True", cordoned=True), ["unschedulable:NoSchedule"]),
        (_node({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}, Ready="True"), []),
        (_node(Ready="Unknown", type_="kwok"), ["unreachable:NoSchedule"]),
        (_node(Ready="Unknown", type_="worker"), ["unreachable:NoSchedule"]),
        (_node(Ready="True", type_="worker", cordoned=True), ["unschedulable:NoSchedule"]),
        (_node(Ready="True", MemoryPressure="True", type_="worker"), None),
        (_node(MEASURED, Ready="True", type_="worker"), None),
        (_node({"key": "not-ready", "effect": "NoSchedule"}, Ready="True", type_="worker"), None),
    ],
)  # fmt: skip
def test_conditions_become_taints(node: Any, wanted: list[str] | None) -> None:
    taints = decide_condition_taints(node)
    assert _names(taints) == wanted
    if taints is not None:
        assert decide_condition_taints({**node, "spec": {**node["spec"], "taints": taints}}) is None


@pytest.fixture
def api(clock: FakeClock) -> Iterator[FakeApi]:
    api = FakeApi()
    context = Context(api, EventRecorder(api, "c", clock=clock), Informers(api, clock=clock), clock)
    controller = ConditionTaintController(context)
    context.informers.start()
    controller.start()
    yield api
    api.cut_watches()
    controller.stop()
    context.informers.stop()


def test_the_controller_follows_the_conditions(api: FakeApi) -> None:
    api.create(NODE, _node(FOREIGN, Ready="Unknown"))
    until(lambda: len(api.get(NODE, "far")["spec"]["taints"]) == 2)
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    api.patch(NODE, "far", "", {"status": ready}, subresource="status")
    until(lambda: api.get(NODE, "far")["spec"]["taints"] == [FOREIGN])


@pytest.mark.parametrize(
    ("type_", "asked", "wanted"),
    [("virtual-kubelet", 240, 240.0), ("virtual-kubelet", 10, 40.0), ("kwok", 10**9, 600.0), ("worker", 240, 40.0)],
)
def test_only_a_virtual_node_may_renew_more_rarely(type_: str, asked: int, wanted: float) -> None:
    lease = {"spec": {"leaseDurationSeconds": asked}}
    assert stale_after_s(_node(type_=type_), lease) == wanted
    assert stale_after_s(_node(type_=type_), None) == STALE_AFTER_S
