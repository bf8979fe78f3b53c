"""Relieves a node under pressure: tells of it, has garbage go, and then one pod after another, by ``eviction``."""

from __future__ import annotations

from minik8s_modules.reconcile.housekeeping import eviction, pressure
from minik8s_modules.reconcile.housekeeping.collection import IMAGES_EVERY_S, Collection
from minik8s_modules.reconcile.housekeeping.job import World
from minik8s_modules.reconcile.housekeeping.node_figures import NodeFigures
from minik8s_modules.reconcile.housekeeping.pressure import Threshold

EVICTED_REST_S = 10.0
"""After an eviction, the node's next reading shows what it brought."""
_WORDS = {pressure.MEMORY: "memory", pressure.PIDS: "pids"}


class Relief:
    """Judges each new reading of one node."""

    def __init__(
        self,
        figures: NodeFigures,
        world: World,
        thresholds: tuple[Threshold, ...],
        transition_s: float,
        collection: Collection,
    ) -> None:
        self._figures = figures
        self._world = world
        self._thresholds = thresholds
        self._transition_s = transition_s
        self._collection = collection
        self._last_met_s: dict[str, float] = {}
        self._rests_until_s = 0.0
        self._reclaimed_s: float | None = None

    def judge(self, now_s: float) -> None:
        """Write what presses the node, and relieve it of the first threshold that is met."""
        if not self._thresholds:
            return
        found, node = pressure.signals(self._figures.machine), self._figures.name
        met = pressure.met(self._thresholds, found)
        self._last_met_s |= {one.signal: now_s for one in met}
        pressed = pressure.under_pressure(self._last_met_s, now_s, self._transition_s)
        if pressed != self._figures.pressure:
            self._figures.pressure = pressed
            self._world.pressed(node, pressed)
        if not met or now_s < self._rests_until_s:
            return
        threshold = met[0]
        self._rests_until_s = now_s + EVICTED_REST_S
        word = _WORDS.get(threshold.signal, "ephemeral-storage")
        self._world.tell(node, "Warning", "EvictionThresholdMet", f"Attempting to reclaim {word}")
        if threshold.signal in {pressure.DISK, pressure.INODES} and self._reclaims(now_s):
            return
        pods = self._world.pods(node)
        used = self._figures.used(self._world.containers(node) or (), pods)
        chosen = eviction.choose(pods, used, threshold, found[threshold.signal])
        if chosen is not None:
            self._world.evict(chosen)

    def _reclaims(self, now_s: float) -> bool:
        """Have garbage go before any pod does; return whether that is being tried."""
        if self._collection.item_id:
            return True
        if self._reclaimed_s is not None and now_s - self._reclaimed_s < IMAGES_EVERY_S:
            return False
        self._reclaimed_s = now_s
        return self._collection.prepare_all(now_s)
