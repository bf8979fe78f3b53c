"""A configuration with something wrong anywhere is refused with file and line, or means something; nothing else."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.scheduler.profiles.building import benches
from minik8s_modules.scheduler.profiles.configuration import settings
from minik8s_modules.scheduler.profiles.located import parse

WHOLE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
percentageOfNodesToScore: 50
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 10
leaderElection: {leaderElect: true, resourceName: x}
clientConnection: {kubeconfig: /x}
profiles:
- schedulerName: default-scheduler
- schedulerName: pack
  percentageOfNodesToScore: 30
  plugins:
    multiPoint: {enabled: [{name: ImageLocality, weight: 3}]}
    score:
      disabled: [{name: NodeResourcesBalancedAllocation}]
      enabled: [{name: NodeResourcesFit, weight: 5}]
  pluginConfig:
  - name: NodeResourcesFit
    args:
      ignoredResources: [a.b/c]
      scoringStrategy:
        type: RequestedToCapacityRatio
        resources: [{name: cpu, weight: 1}]
        requestedToCapacityRatio: {shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]}
  - name: PodTopologySpread
    args:
      defaultingType: List
      defaultConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]
  - {name: InterPodAffinity, args: {hardPodAffinityWeight: 5, ignorePreferredTermsOfExistingPods: true}}
  - name: NodeAffinity
    args:
      addedAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In, values: [b]}]}]
  - {name: DefaultPreemption, args: {minCandidateNodesPercentage: 10, minCandidateNodesAbsolute: 100}}
  - {name: VolumeBinding, args: {bindTimeoutSeconds: 10}}
  - {name: NodeResourcesBalancedAllocation, args: {resources: [{name: cpu, weight: 1}]}}
"""
VALUES: tuple[Any, ...] = (
    None, "", "x", 0, -1, 1.5, 10**30, True, [], {}, [None], {"a": None}, "*", float("nan"), [[]], {"name": {}},
    [{"name": "PrioritySort"}], "0",
)  # fmt: skip


def paths(fields: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where something stands."""
    entries = fields.items() if isinstance(fields, dict) else enumerate(fields) if isinstance(fields, list) else ()
    for key, value in entries:
        yield (*path, key)
        yield from paths(value, (*path, key))


def spoil(fields: Any, dice: random.Random) -> None:
    """Set, remove, rename or repeat something."""
    path = dice.choice([*paths(fields)])
    parent = fields
    for step in path[:-1]:
        parent = parent[step]
    way = dice.choice(["set", "set", "set", "remove", "again"])
    if way == "set":
        parent[path[-1]] = dice.choice(VALUES)
    elif way == "remove":
        del parent[path[-1]]
    elif isinstance(parent, list):
        parent.append(copy.deepcopy(parent[path[-1]]))
    else:
        parent[f"{path[-1]}s"] = parent.pop(path[-1])


@pytest.mark.parametrize("seed", range(4))
def test_what_is_spoilt_anywhere_is_refused_with_its_line_or_means_something(seed: int):
    dice, refused = random.Random(seed), 0
    for _ in range(25):
        document = yaml.safe_load(WHOLE)
        spoil(document, dice)
        try:
            benches(settings(parse(yaml.safe_dump(document), "f.yml")))
        except ConfigurationError as error:
            refused += 1
            assert re.match(r"f\.yml:\d+: ", str(error))  # noqa: PT017 - it need not be refused
    assert refused > 8
