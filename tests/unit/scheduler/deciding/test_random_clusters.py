"""2,000 random clusters: no node overcommitted, no hard constraint broken, nothing pending that fits.

Each decision is compared with the oracle's plain reading of the rules, on a snapshot that followed the cluster by its
changes all along: pods come, are placed, go; nodes come, change and go.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.scheduler.cluster.cache import ClusterCache
from minik8s_modules.scheduler.deciding.cycle import decide
from minik8s_modules.scheduler.framework.infos import PodInfo
from minik8s_modules.scheduler.framework.snapshot import Snapshot
from minik8s_modules.scheduler.profiles.building import bench
from minik8s_modules.scheduler.profiles.configuration import ProfileSettings
from tests.unit.scheduler.deciding.oracle import fits
from tests.unit.scheduler.worlds import node, pod

CLUSTERS, BATCHES, PODS = 2000, 20, 8
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class World:
    """One cluster with its dice."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.cache, self.snapshot, self.bench = ClusterCache(), Snapshot(), bench(ProfileSettings())
        self.nodes: dict[str, JsonObject] = {}
        self.placed: dict[str, JsonObject] = {}
        self.numbers = iter(range(10_000))
        for number in range(self.dice.randint(1, 6)):
            self.put_node(f"n{number}")

    def put_node(self, name: str) -> None:
        """Make a node, or make it another."""
        dice = self.dice
        labels = {"host": name, **({"zone": dice.choice("xy")} if dice.random() < 0.85 else {})}
        taints = [{"key": "t", "effect": dice.choice(["NoSchedule", "PreferNoSchedule"])}]
        fields: dict[str, Any] = {"labels": labels, "cpu": str(dice.randint(1, 3)), "pods": dice.randint(2, 6)}
        if dice.random() < 0.2:
            fields["taints"] = taints
        if dice.random() < 0.1:
            fields["unschedulable"] = True
        made = node(name, **fields)
        self.cache.update_node(self.nodes.get(name), made)
        self.nodes[name] = made

    def pod(self) -> JsonObject:
        """Return a pod with wishes."""
        dice = self.dice
        spec: dict[str, Any] = {}
        if dice.random() < 0.7:
            amounts = {"cpu": f"{dice.choice([100, 500, 1000])}m", "memory": dice.choice(["64Mi", "2Gi"])}
            spec["containers"] = [{"name": "c", "resources": {"requests": amounts}}]
        if dice.random() < 0.15:
            spec["nodeSelector"] = {"zone": dice.choice("xy")}
        if dice.random() < 0.2:
            spec["tolerations"] = [{"operator": "Exists"}]
        term = {"labelSelector": {"matchLabels": {"app": dice.choice("ab")}}}
        if dice.random() < 0.35:
            kind = dice.choice(["podAffinity", "podAntiAffinity"])
            spec["affinity"] = {kind: {_REQUIRED: [{**term, "topologyKey": dice.choice(["host", "zone"])}]}}
        if dice.random() < 0.25:
            rule = {"maxSkew": dice.randint(1, 2), "whenUnsatisfiable": "DoNotSchedule"}
            spec["topologySpreadConstraints"] = [{**term, **rule, "topologyKey": dice.choice(["host", "zone"])}]
        made = pod(f"p{next(self.numbers)}", **spec)
        made["metadata"]["labels"] = {"app": dice.choice("ab")}
        return made

    def disturb(self) -> None:
        """Let something else happen."""
        dice = self.dice
        if self.placed and dice.random() < 0.3:
            gone = self.placed.pop(dice.choice(sorted(self.placed)))
            self.cache.update_pod(gone, None)
        if dice.random() < 0.15:
            self.put_node(f"n{dice.randint(0, 7)}")

    def place(self, new: JsonObject) -> None:
        """Decide for a pod, and hold the decision against the oracle."""
        decision = decide(new, self.cache.update(self.snapshot), self.bench)
        nodes, placed = list(self.nodes.values()), list(self.placed.values())
        fitting = {one["metadata"]["name"] for one in nodes if fits(new, one, nodes, placed)}
        if not decision.node:
            assert fitting == set(), (new, decision.message)
            assert set(decision.reasons) == set(self.nodes)
            return
        assert decision.node in fitting, new
        self.cache.assume(PodInfo.of(new), decision.node)
        bound = {**new, "spec": {**new["spec"], "nodeName": decision.node}}
        self.placed[new["metadata"]["name"]] = bound
        if self.dice.random() < 0.7:
            self.cache.update_pod(new, bound)
        self.snapshot.turn += 1


@pytest.mark.parametrize("batch", range(BATCHES))
def test_every_decision_is_one_that_the_plain_rules_allow(batch: int):
    for number in range(CLUSTERS // BATCHES):
        world = World(batch * CLUSTERS + number)
        for _ in range(PODS):
            world.place(world.pod())
            world.disturb()
