"""What else decisions depend on: Services and controllers of pods (spreading by default), disruption budgets."""

from __future__ import annotations

from functools import partial

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import (
    POD_DISRUPTION_BUDGET,
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    SERVICE,
    STATEFUL_SET,
)
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.selectors import as_label_selector, from_map
from minik8s_modules.base.clock import Clock
from minik8s_modules.client.informer import Informer
from minik8s_modules.client.interface import Api
from minik8s_modules.scheduler.cluster.cache import ClusterCache
from minik8s_modules.scheduler.framework.snapshot import Workload
from minik8s_modules.scheduler.framework.terms import selector

_WORKLOADS = (SERVICE, REPLICATION_CONTROLLER, REPLICA_SET, STATEFUL_SET)


class Sources:
    """Keeps them in the cache; a scheduler does not wait for them."""

    def __init__(self, client: Api, cache: ClusterCache, clock: Clock) -> None:
        self._informers = [Informer(client, kind, clock=clock, transform=_selecting) for kind in _WORKLOADS]
        for kind, informer in zip(_WORKLOADS, self._informers, strict=True):
            informer.add_handler(partial(_take, cache, kind.kind))
        budgets = Informer(client, POD_DISRUPTION_BUDGET, clock=clock)
        budgets.add_handler(cache.update_budget)
        self._informers.append(budgets)

    def start(self) -> None:
        """Follow them."""
        for informer in self._informers:
            informer.start()

    def stop(self) -> None:
        """End following."""
        for informer in self._informers:
            informer.stop()


def _selecting(obj: JsonObject) -> JsonObject:
    """Return what is kept: who it is, and what it selects."""
    meta = {name: value for name, value in objects.metadata(obj).items()
            if name in {"name", "namespace", "uid", "resourceVersion"}}  # fmt: skip
    return {"metadata": meta, "spec": {"selector": objects.spec(obj).get("selector")}}


def _take(cache: ClusterCache, kind: str, old: JsonObject | None, new: JsonObject | None) -> None:
    obj = new or old or {}
    declared = objects.spec(obj).get("selector")
    selects = from_map(declared) if kind == SERVICE.kind else selector(as_label_selector(declared))
    cache.update_workload(Workload(kind, objects.namespace(obj), objects.name(obj), selects), gone=new is None)
