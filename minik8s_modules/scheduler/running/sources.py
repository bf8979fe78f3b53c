"""What else decisions depend on: Services and controllers of pods (spreading by default), budgets, storage."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import (
    CSI_DRIVER,
    CSI_NODE,
    CSI_STORAGE_CAPACITY,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD_DISRUPTION_BUDGET,
    STORAGE_CLASS,
    Kind,
)
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import Clock
from minik8s_modules.client.informer import Handler, Informer
from minik8s_modules.client.interface import Api
from minik8s_modules.scheduler.cluster.cache import ClusterCache
from minik8s_modules.scheduler.framework.points import Event
from minik8s_modules.scheduler.framework.snapshot import Workload
from minik8s_modules.scheduler.framework.storage import Storage
from minik8s_modules.scheduler.profiles.deciding import SPREAD_BY

Move = Callable[[Event, JsonObject | None, JsonObject | None], None]


class Sources:
    """Keeps them in the cache; a scheduler does not wait for them."""

    def __init__(self, client: Api, cache: ClusterCache, clock: Clock) -> None:
        self._informers = [Informer(client, kind, clock=clock, transform=_selecting) for kind in SPREAD_BY]
        for kind, informer in zip(SPREAD_BY, self._informers, strict=True):
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


def storage_informers(client: Api, storage: Storage, clock: Clock, move: Move) -> tuple[Informer, ...]:
    """Return what keeps claims, volumes and the like in ``storage``, and tells ``move`` what has changed."""
    takers = {
        PERSISTENT_VOLUME_CLAIM: storage.take_claim,
        PERSISTENT_VOLUME: storage.take_volume,
        STORAGE_CLASS: storage.take_class,
        CSI_NODE: storage.take_csi_node,
        CSI_DRIVER: storage.take_csi_driver,
        CSI_STORAGE_CAPACITY: storage.take_capacity,
    }
    return tuple(_subscribed(Informer(client, kind, clock=clock), kind, take, move) for kind, take in takers.items())


def _subscribed(informer: Informer, kind: Kind, take: Handler, move: Move) -> Informer:
    def handler(old: JsonObject | None, new: JsonObject | None) -> None:
        take(old, new)
        action = "Add" if old is None else "Update" if new is not None else "Delete"
        move(Event(kind.kind, action), old, new)

    informer.add_handler(handler)
    return informer


def _selecting(obj: JsonObject) -> JsonObject:
    """Return what is kept: who it is, and what it selects."""
    meta = {name: value for name, value in objects.metadata(obj).items()
            if name in {"name", "namespace", "uid", "resourceVersion"}}  # fmt: skip
    return {"metadata": meta, "spec": {"selector": objects.spec(obj).get("selector")}}


def _take(cache: ClusterCache, kind: str, old: JsonObject | None, new: JsonObject | None) -> None:
    cache.update_workload(Workload.of({**(new or old or {}), "kind": kind}), gone=new is None)
