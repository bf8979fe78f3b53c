"""Random RollingUpdates: in the order in which a plan says that Pods go and come, the controller replaces them."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import NODE, POD, ROLLING_UPDATE, SERVICE, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import SystemClock
from minik8s_modules.controllers.simulation.deciders import DECIDERS, LOOKED_AT
from minik8s_modules.controllers.workloads.rollingupdates import RollingUpdateController
from minik8s_modules.reconcile.planning.simulated_rollouts import Change, simulated_rollout
from tests.support.load.storms import Manager, StormyApi
from tests.support.waiting import until
from tests.support.workloads import SPACE, ago
from tests.unit.reconcile.planning.test_random_rollouts import Machines, node

READY = [{"type": "Ready", "status": "True", "lastTransitionTime": ago(9)}]


class Shop:
    """A Service's Pods on an API in memory, with the controller and what plays nodes."""

    def __init__(self, seed: int) -> None:
        dice = random.Random(seed)
        self.api, self.nodes = StormyApi(seed, stormy=False), [node(f"n{number}", 20) for number in range(2)]
        spec = {"selector": {"app": "web"}, "ports": [{"port": 80}]}
        self.api.create(SERVICE, {"metadata": {"name": "web", "namespace": SPACE}, "spec": spec})
        for each in self.nodes:
            self.api.create(NODE, each)
        self.total = dice.randint(1, 6)
        for number in range(self.total):
            meta: JsonObject = {"name": f"web-{number}", "namespace": SPACE, "labels": {"app": "web"}}
            pod_spec = {"nodeName": f"n{number % 2}", "containers": [{"name": "app", "image": "web:1"}]}
            status = {"phase": "Running", "podIP": f"10.244.0.{number + 1}", "conditions": READY}
            self.api.create(POD, {"metadata": meta, "spec": pod_spec})
            self.api.patch(POD, meta["name"], SPACE, {"status": status}, subresource="status")
        self.alive = dice.randint(0, self.total)

    def update(self, state: str) -> JsonObject:
        """Return the update."""
        spec = {"serviceRef": "web", "port": 80, "minimumAlive": self.alive, "interval": 0, "state": state}
        new: JsonObject = {"containers": [{"name": "app", "image": "web:2"}]}
        return {
            "apiVersion": "v1",
            "kind": "RollingUpdate",
            "metadata": {"name": "to-2", "namespace": SPACE, "generation": 1},
            "spec": {**spec, "newPodSpec": new},
        }

    def planned(self, operation: str, state: str) -> list[str]:
        """Return in which order a plan says that Pods go and come, batch by batch."""
        known = [obj for kind in (*DECIDERS, *LOOKED_AT) for obj in self.api.list(kind).items]
        pods = [{"apiVersion": "v1", "kind": "Pod", **each} for each in self.api.list(POD).items]
        found = simulated_rollout([Change(operation, self.update(state))], known, pods, self.nodes, SystemClock().now())
        return batches((f"{each['action']} {each['pod'].partition('/')[2]}", each["turn"]) for each in found.order)

    def images(self) -> set[str]:
        """Return the images of the Pods that are ready."""
        pods = [pod for pod in self.api.list(POD).items if objects.condition(pod, "Ready")]
        return {pod["spec"]["containers"][0]["image"] for pod in pods} if len(pods) == self.total else set()


def batches(happened: Iterable[tuple[str, int]]) -> list[str]:
    """Return what happens, sorted within a turn."""
    return [what for _turn, what in sorted((turn, what) for what, turn in happened)]


@pytest.mark.parametrize("seed", range(10))
def test_what_a_plan_says_of_a_rolling_update_is_what_happens(seed: int):
    shop = Shop(seed)
    planned = shop.planned("create", "Running")
    seen: list[list[str]] = []

    def written(kind: Kind, _verb: str) -> None:
        for each in shop.api.list(ROLLING_UPDATE).items if kind == ROLLING_UPDATE else ():
            withheld = objects.status(each).get("withheld") or []
            if withheld and (not seen or not set(withheld) <= set(seen[-1])):
                seen.append(withheld)

    def is_over() -> bool:
        phase = objects.status(shop.api.get(ROLLING_UPDATE, "to-2", SPACE)).get("phase")
        return phase == "Finished" and shop.images() == {"web:2"} if shop.alive < shop.total else phase == "Pending"

    shop.api.seen = written
    manager, machines = Manager(shop.api, RollingUpdateController), Machines(shop.api, shop.nodes)
    manager.start()
    try:
        shop.api.create(ROLLING_UPDATE, {**shop.update("Running"), "status": {"phase": "Pending"}})
        until(is_over)
        replaced = [name for each in seen for name in each]
        if shop.alive < shop.total:
            spec = shop.update("Undone")["spec"]
            back = shop.planned("update", "Undone")
            assert sorted(back) == sorted(planned)
            shop.api.patch(ROLLING_UPDATE, "to-2", SPACE, {"spec": spec})
            until(lambda: shop.images() == {"web:1"})
    finally:
        machines.stop()
        manager.stop()
    deleted = [name.removeprefix("delete ") for name in planned if name.startswith("delete")]
    assert deleted == replaced
    assert sorted(deleted) == sorted(name.removeprefix("create ") for name in planned if name.startswith("create"))
    assert bool(planned) == (shop.alive < shop.total)
