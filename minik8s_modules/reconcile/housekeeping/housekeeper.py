"""What a kubelet does beside its pods' lives: one thread that looks every second which job of which node is due.

Each job asks the runner for items of its own (sections static_pods, usage, garbage and plugins), which wait their turn
behind those of the loop; what the gateway tells of a node is kept in its ``NodeFigures``, and judged by ``Relief``.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import Clock
from minik8s_modules.module_utils.minik8s.core.sections import SECTIONS
from minik8s_modules.reconcile.housekeeping.collection import Collection
from minik8s_modules.reconcile.housekeeping.driver_registration import DriverRegistration
from minik8s_modules.reconcile.housekeeping.job import Job, World
from minik8s_modules.reconcile.housekeeping.local_storage import LocalStorage
from minik8s_modules.reconcile.housekeeping.node_figures import NodeFigures
from minik8s_modules.reconcile.housekeeping.policies import Policies
from minik8s_modules.reconcile.housekeeping.relief import Relief
from minik8s_modules.reconcile.housekeeping.static_files import StaticFiles
from minik8s_modules.reconcile.housekeeping.volume_room import VolumeRoom
from minik8s_modules.reconcile.values.items import Outcome, Runner, SectionRequest, WorkItem

log = logging.getLogger(__name__)
LOOK_S = 1.0


class _Node:
    """One node's figures and jobs."""

    def __init__(
        self, name: str, world: World, policies: Policies, observe_s: Callable[[], float], clock: Clock
    ) -> None:
        self.figures = NodeFigures(name)
        self.fresh = False
        """Whether the figures have a reading that was not judged."""
        self.files = StaticFiles(name, world, policies.manifests, policies.manifests_every_s, observe_s)
        self.storage = LocalStorage(self.figures, world)
        self.drivers = DriverRegistration(name, world)
        self.room = VolumeRoom(name, world)
        self.collection = Collection(self.figures, world, policies.containers, policies.images, clock)
        self.relief = Relief(self.figures, world, policies.thresholds, policies.transition_s, self.collection)

    @property
    def jobs(self) -> tuple[Job, ...]:
        return (self.files, self.storage, self.collection, self.drivers, self.room)


class Housekeeper:
    """Keeps the nodes ``names``; ``observe_s()`` is the jittered rate of observations."""

    def __init__(
        self,
        names: Iterable[str],
        world: World,
        runner: Callable[[], Runner],
        token: tuple[int, int],
        policies: Policies,
        observe_s: Callable[[], float],
        clock: Clock,
    ) -> None:
        self._make = partial(_Node, world=world, policies=policies, observe_s=observe_s, clock=clock)
        self._nodes = {name: self._make(name) for name in names}
        self._world = world
        self._runner = runner
        self._token = token
        self._clock = clock
        self._lock = threading.Lock()
        self._ids = itertools.count(1)
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._outcomes: list[Outcome] = []
        self._mirrorless: set[str] = set()
        self._observed: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="housekeeping", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(5.0)

    def use(self, names: Iterable[str]) -> None:
        """Keep exactly the nodes ``names`` from now on."""
        with self._lock:
            self._nodes = {name: self._nodes.get(name) or self._make(name) for name in names}

    # what others tell: noted, and dealt with by the thread

    def on_gateway(self, message: Mapping[str, Any]) -> bool:
        """Take over what the gateway says about figures; return whether it was about them."""
        op, node = message.get("op"), self._nodes.get(str(message.get("node") or ""))
        if op == "stats" and node is not None:
            with self._lock:
                node.figures.on_stats(message)
                node.fresh = True
        elif op == "image-list" and node is not None:
            with self._lock:
                changed = node.figures.on_images(message)
            if changed:
                self._world.images(node.figures.name, node.figures.images)
        return op in {"stats", "image-list"}

    def on_outcome(self, outcome: Outcome) -> None:
        """Take over the outcome of an item of housekeeping."""
        with self._lock:
            self._outcomes.append(outcome)
        self._wake.set()

    def on_item(self, outcome: Outcome) -> None:
        """Take note of the outcome of an item of the loop, which may have observed the whole node."""
        if outcome.status == "ok" and len(outcome.sections) == len(SECTIONS):
            with self._lock:
                self._observed.add(outcome.node)
            self._wake.set()

    def keep_mirrors(self, node: str) -> None:
        """Look at a node's mirror pods soon."""
        with self._lock:
            self._mirrorless.add(node)
        self._wake.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.look()
            except Exception:
                log.exception("housekeeping failed; going on")
            self._clock.wait(self._wake, LOOK_S)
            self._wake.clear()

    def look(self) -> None:
        """Deal with what was told, and begin what is due."""
        with self._lock:
            outcomes, self._outcomes = self._outcomes, []
            mirrorless, self._mirrorless = self._mirrorless, set()
            observed, self._observed = self._observed, set()
        for name in mirrorless & self._nodes.keys():
            self._world.keep_mirrors(name)
        for name in observed & self._nodes.keys():
            self._nodes[name].files.observed()
        for outcome in outcomes:
            self._take_back(outcome)
        for node in [*self._nodes.values()]:
            if self._stop.is_set():
                return
            if self._world.node(node.figures.name) is not None:
                self._look_at(node)

    def _look_at(self, node: _Node) -> None:
        now_s = self._clock.monotonic()
        self._begin(node, node.files, now_s)
        if not self._world.ready():
            return
        with self._lock:
            fresh, node.fresh = node.fresh, False
        if fresh:
            node.relief.judge(now_s)
        self._begin(node, node.collection, now_s)
        self._begin(node, node.storage, now_s)
        self._begin(node, node.drivers, now_s)
        self._begin(node, node.room, now_s)

    def _begin(self, node: _Node, job: Job, now_s: float) -> None:
        """Ask for the job's section if it is due and has something to ask for."""
        options = job.begin(now_s) if job.due(now_s) else None
        if options is None:
            return
        name = node.figures.name
        job.item_id = f"{name}-{self._token[1]}-keep{next(self._ids)}"
        token: JsonObject = {"token": list(self._token)} if job.fenced else {}
        request = {job.section: SectionRequest(options | token)}
        item = WorkItem(job.item_id, name, False, self._token if job.fenced else (), request, "housekeeping")  # noqa: FBT003
        self._runner().submit(item)

    def _take_back(self, outcome: Outcome) -> None:
        node = self._nodes.get(outcome.node)
        job = next((one for one in node.jobs if one.item_id == outcome.id), None) if node is not None else None
        if job is None:
            return
        job.item_id = ""
        now_s = self._clock.monotonic()
        result = outcome.sections.get(job.section)
        if outcome.status != "ok" or not isinstance(result, Mapping) or result.get("failed"):
            log.warning("node %s: %s %s: %s", outcome.node, job.section, outcome.status, outcome.message)
            job.failed(now_s)
        else:
            job.end(result, now_s)
