"""Spreading by default: over what Services and controllers select, as they are now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from minik8s_modules.api.selectors import from_map
from minik8s_modules.scheduler.cluster import cache as caching
from minik8s_modules.scheduler.deciding.cycle import explain
from minik8s_modules.scheduler.framework.snapshot import Snapshot, Workload
from minik8s_modules.scheduler.profiles.building import bench
from minik8s_modules.scheduler.profiles.configuration import ProfileSettings
from tests.unit.scheduler.worlds import node, pod


def test_what_services_select_now_counts_wherever_it_lies_in_memory(monkeypatch: pytest.MonkeyPatch):
    group = caching._by_namespace
    kept: dict[str, tuple[Workload, ...]] = {}

    def at_the_same_address(workloads: Iterable[Workload]) -> Mapping[str, tuple[Workload, ...]]:
        found = group(workloads)
        kept.clear()
        kept.update(found)
        return kept

    monkeypatch.setattr(caching, "_by_namespace", at_the_same_address)
    cache, snapshot, made = caching.ClusterCache(), Snapshot(), bench(ProfileSettings())
    for name in "ab":
        cache.update_node(None, node(name, labels={"kubernetes.io/hostname": name}))
    web = pod("web-0")
    web["metadata"]["labels"] = {"app": "web"}

    def is_spread() -> bool:
        return "PodTopologySpread" in explain(web, cache.update(snapshot), made)[0].scores

    service = Workload("Service", "default", "web", from_map({"app": "web"}))
    cache.update_workload(service._replace(selector=from_map({"app": "db"})), gone=False)
    assert not is_spread()
    cache.update_workload(service, gone=False)
    assert is_spread()
    cache.update_workload(service, gone=True)
    assert not is_spread()
