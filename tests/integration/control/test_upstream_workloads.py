"""Upstream's own workloads of scheduler_perf, in their smallest size, against the real API server and scheduler.

The YAML comes from the Go module proxy with the version that is named there; nothing of it is kept here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.benchmarks.deciding.scheduler_perf.operations import NotUnderstood, read
from tests.benchmarks.deciding.scheduler_perf.workload import Workload
from tests.benchmarks.scheduler_peer import UPSTREAM, ours
from tests.support.gotools import module_path

PATIENCE_S = 120.0
CASES = (
    ("misc", "SchedulingBasic"), ("misc", "TopologySpreading"), ("misc", "PreferredTopologySpreading"),
    ("misc", "PreemptionBasic"), ("misc", "Unschedulable"), ("misc", "SchedulingWithMixedChurn"),
    ("misc", "SchedulingWhileGated"), ("misc", "SchedulingDaemonset"), ("misc", "SchedulingWithNodeInclusionPolicy"),
    ("affinity", "SchedulingPodAffinity"), ("affinity", "SchedulingPodAntiAffinity"),
    ("affinity", "SchedulingPreferredPodAffinity"), ("affinity", "SchedulingNodeAffinity"),
    ("affinity", "SchedulingRequiredPodAntiAffinityWithNSSelector"),
    ("affinity", "SchedulingGatedPodsWithPodAffinityImpactForThroughput"),
    ("event_handling", "EventHandlingPodDelete"), ("event_handling", "EventHandlingPodUpdate"),
    ("event_handling", "EventHandlingPodAdd"), ("event_handling", "EventHandlingNodeAdd"),
    ("event_handling", "EventHandlingNodeUpdate"), ("volumes", "SchedulingCSIPVs"),
)  # fmt: skip
REFUSED = {
    ("dra", "SchedulingWithResourceClaimTemplate"): "createResourceDriver is not understood",
}


def configuration(topic: str) -> Path:
    return module_path(*UPSTREAM) / "test" / "integration" / "scheduler_perf" / topic / "performance-config.yaml"


def smallest(file: Path, name: str) -> str:
    """Return the workload of a case with the smallest numbers."""
    (case,) = (one for one in yaml.safe_load(file.read_text(encoding="utf-8")) if one["name"] == name)
    found: list[Any] = case["workloads"]
    return str(min(found, key=lambda one: sum(value for value in one["params"].values() if type(value) is int))["name"])


@pytest.mark.parametrize(("topic", "name"), CASES)
def test_upstreams_workload_runs_to_its_end(tmp_path: Path, topic: str, name: str):
    file = configuration(topic)
    case = read(file, name, smallest(file, name))
    with ours(tmp_path) as cluster:
        workload = Workload(cluster.client, case, PATIENCE_S)
        workload.run()
        cluster.client.close()
    assert any(sampler.average > 0 for sampler in workload.samplers)


@pytest.mark.parametrize(("topic", "name"), REFUSED)
def test_what_upstream_asks_for_besides_is_refused_by_name(topic: str, name: str):
    file = configuration(topic)
    with pytest.raises(NotUnderstood, match=REFUSED[topic, name]):
        read(file, name, smallest(file, name))
