"""Has a node's dead containers and unused images removed, by ``garbage`` and ``image_gc``."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import Clock
from minik8s_modules.reconcile.housekeeping import garbage, image_gc
from minik8s_modules.reconcile.housekeeping.garbage import ContainerPolicy
from minik8s_modules.reconcile.housekeeping.image_gc import ImagePlan, ImagePolicy, Record
from minik8s_modules.reconcile.housekeeping.job import RETRY_S, Job, World
from minik8s_modules.reconcile.housekeeping.node_figures import NodeFigures
from minik8s_modules.reconcile.pods.observed import ObservedContainer

log = logging.getLogger(__name__)
CONTAINERS_EVERY_S, IMAGES_EVERY_S = 60.0, 300.0
_ALL = {"min_age_s": 0, "max_per_container": 0, "max_containers": -1}


class Collection(Job):
    """Collects the garbage of one node; a policy that is None leaves its part alone."""

    section = "garbage"
    fenced = True

    def __init__(
        self,
        figures: NodeFigures,
        world: World,
        containers: ContainerPolicy | None,
        images: ImagePolicy | None,
        clock: Clock,
    ) -> None:
        super().__init__()
        self._figures = figures
        self._world = world
        self._containers = containers
        self._images = images
        self._clock = clock
        self._records: dict[str, Record] = {}
        self._images_due_s = 0.0
        self._plan = ImagePlan()
        self._prepared: JsonObject | None = None

    def begin(self, now_s: float) -> JsonObject | None:
        """Ask for what the policies say, or for what was prepared."""
        prepared, self._prepared = self._prepared, None
        if prepared is None:
            return self._choose(now_s, self._containers, everything=False)
        self.due_s = now_s + CONTAINERS_EVERY_S
        return prepared

    def prepare_all(self, now_s: float) -> bool:
        """Have all dead containers and unused images go at once; return whether there are any."""
        policy = (self._containers or ContainerPolicy())._replace(**_ALL)
        self._prepared = self._choose(now_s, policy, everything=True)
        if self._prepared is not None:
            self.due_s = now_s
        return self._prepared is not None

    def _choose(self, now_s: float, policy: ContainerPolicy | None, *, everything: bool) -> JsonObject | None:
        self.due_s = now_s + CONTAINERS_EVERY_S
        node = self._figures.name
        seen = self._world.containers(node)
        if seen is None:
            self.due_s = now_s + RETRY_S
            return None
        living = frozenset(objects.uid(pod) for pod in self._world.pods(node))
        dead = garbage.plan_containers(seen, living, policy, self._clock.now()) if policy is not None else []
        self._plan = self._choose_images(seen, now_s, everything=everything)
        by_id = {image.id: image for image in self._figures.images}
        images = [by_id[one]._asdict() for one in self._plan.delete]
        if not dead and not images:
            return None
        return {"node": node, "containers": dead, "images": images, "to_free_bytes": self._plan.to_free_bytes}

    def _choose_images(self, seen: Iterable[ObservedContainer], now_s: float, *, everything: bool) -> ImagePlan:
        now, figures = self._clock.now(), self._figures
        self._records = image_gc.detect(self._records, figures.images, frozenset(one.image_id for one in seen), now)
        disk = (figures.machine or {}).get("disk")
        if self._images is None or disk is None or not (now_s >= self._images_due_s or everything):
            return ImagePlan()
        self._images_due_s = now_s + IMAGES_EVERY_S
        capacity, free = int(disk["capacity_bytes"]), int(disk["available_bytes"])
        plan = image_gc.plan_images(
            figures.images, self._records, capacity, capacity - free, self._images, now, everything=everything
        )
        if plan.problem is not None:
            self._world.tell(figures.name, "Warning", *plan.problem)
        elif plan.to_free_bytes and not plan.delete and not everything:
            self._tell_shortfall(plan, 0)
        return plan

    def _tell_shortfall(self, plan: ImagePlan, freed: int) -> None:
        problem = image_gc.shortfall(plan, freed)
        if problem is not None:
            self._world.tell(self._figures.name, "Warning", *problem)

    def end(self, result: Mapping[str, Any], now_s: float) -> None:
        """Go on at once where the node did not get to all of it; what was freed is judged."""
        if result.get("unfinished"):
            self.due_s = now_s
        elif self._plan.delete:
            self._tell_shortfall(self._plan, int(result.get("freed_bytes") or 0))
        for one, why in (result.get("errors") or {}).items():
            log.info("node %s: %s stays: %s", self._figures.name, one, why)
