"""What a kubelet does beside its pods' lives: garbage collection, eviction, node conditions, static pods.

Decisions are pure (``garbage``, ``image_gc``, ``pressure``, ``eviction``, ``static_pods``); this shell holds what the
gateway last told of each node, asks the runner for items of its own (sections garbage, usage and static_pods), which
wait their turn behind those of the loop, and writes what came of it. One thread; it looks every second what is due.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import Clock
from minik8s_modules.reconcile.housekeeping import eviction, garbage, image_gc, pressure
from minik8s_modules.reconcile.housekeeping.eviction import Eviction, Used
from minik8s_modules.reconcile.housekeeping.garbage import ContainerPolicy
from minik8s_modules.reconcile.housekeeping.image_gc import Image, ImagePlan, Record
from minik8s_modules.reconcile.housekeeping.policies import Policies
from minik8s_modules.reconcile.housekeeping.pressure import Threshold
from minik8s_modules.reconcile.housekeeping.static_pods import parse_manifests
from minik8s_modules.reconcile.pods.observed import ObservedContainer
from minik8s_modules.reconcile.values.items import Outcome, Runner, SectionRequest, WorkItem

log = logging.getLogger(__name__)
GARBAGE, USAGE, STATIC = "garbage", "usage", "static_pods"
LOOK_S = 1.0
CONTAINERS_EVERY_S, IMAGES_EVERY_S, USAGE_EVERY_S, RETRY_S = 60.0, 300.0, 60.0, 10.0
EVICTED_REST_S = 10.0
"""After an eviction, the node's next reading shows what it brought."""
_GIB = 1024**3


class World(Protocol):
    """What is read and written; the service's parts."""

    def containers(self, node: str) -> list[ObservedContainer] | None:
        """Return the node's containers of ours; None while they are not known."""

    def ready(self) -> bool:
        """Return whether the pods are known; before, none may count as gone."""

    def pods(self, node: str) -> list[JsonObject]:
        """Return the node's pods."""

    def node(self, name: str) -> JsonObject | None:
        """Return the Node."""

    def tell(self, node: str, kind: str, reason: str, message: str) -> None:
        """Record an Event of the node."""

    def evict(self, eviction: Eviction) -> None:
        """Fail the pod and say why."""

    def pressed(self, node: str, found: frozenset[str]) -> None:
        """Write the node's conditions and taints."""

    def images(self, node: str, images: list[Image]) -> None:
        """Write which images the node has."""

    def static(self, node: str, pods: list[JsonObject]) -> None:
        """Take over the static pods of a node's folder."""

    def keep_mirrors(self, node: str) -> None:
        """Make the mirrors that are missing."""


@dataclass
class _Node:
    name: str
    machine: JsonObject | None = None
    memory: dict[str, int] = field(default_factory=dict)
    images: list[Image] = field(default_factory=list)
    records: dict[str, Record] = field(default_factory=dict)
    storage: dict[str, int] = field(default_factory=dict)
    volumes: dict[str, int] = field(default_factory=dict)
    last_met_s: dict[str, float] = field(default_factory=dict)
    pressure: frozenset[str] | None = None
    due_s: dict[str, float] = field(default_factory=dict)
    asked: dict[str, str] = field(default_factory=dict)
    """Section under way: item id."""
    plan: ImagePlan = field(default_factory=ImagePlan)
    fresh: bool = False
    manifest_errors: str = ""


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
        self._nodes = {name: _Node(name) for name in names}
        self._world = world
        self._runner = runner
        self._token = token
        self._policies = policies
        self._observe_s = observe_s
        self._clock = clock
        self._lock = threading.Lock()
        self._ids = itertools.count(1)
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._outcomes: list[Outcome] = []
        self._mirrorless: set[str] = set()
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
            self._nodes = {name: self._nodes.get(name) or _Node(name) for name in names}

    # what others tell: noted, and dealt with by the thread

    def on_gateway(self, message: Mapping[str, Any]) -> bool:
        """Take over what the gateway says about figures; return whether it was about them."""
        op, state = message.get("op"), self._nodes.get(str(message.get("node") or ""))
        if op == "stats" and state is not None:
            with self._lock:
                state.machine = message.get("machine")
                state.memory = {str(one): int(size) for one, size in (message.get("containers") or {}).items()}
                state.fresh = True
        elif op == "image-list" and state is not None:
            found = [_image(one) for one in message.get("images") or []]
            with self._lock:
                changed, state.images = found != state.images, found
            if changed:
                self._world.images(state.name, found)
        return op in {"stats", "image-list"}

    def on_outcome(self, outcome: Outcome) -> None:
        """Take over the outcome of an item of housekeeping."""
        with self._lock:
            self._outcomes.append(outcome)
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
        for node in mirrorless & self._nodes.keys():
            self._world.keep_mirrors(node)
        for outcome in outcomes:
            self._take_back(outcome)
        for state in [*self._nodes.values()]:
            if self._stop.is_set():
                return
            self._look_at(state)

    def _look_at(self, state: _Node) -> None:
        if self._world.node(state.name) is None:
            return
        now_s = self._clock.monotonic()
        if self._policies.manifests and self._due(state, STATIC, now_s):
            self._ask(state, STATIC, {"path": self._policies.manifests})
        if not self._world.ready():
            return
        with self._lock:
            fresh, state.fresh = state.fresh, False
        if fresh and self._policies.thresholds:
            self._judge(state, now_s)
        if self._due(state, USAGE, now_s):
            self._count(state, now_s)
        if self._due(state, GARBAGE, now_s):
            self._collect(state, now_s)

    def _due(self, state: _Node, section: str, now_s: float) -> bool:
        return section not in state.asked and now_s >= state.due_s.get(section, 0.0)

    def _ask(self, state: _Node, section: str, options: JsonObject) -> None:
        item_id = f"{state.name}-{self._token[1]}-keep{next(self._ids)}"
        state.asked[section] = item_id
        token = {"token": list(self._token)} if section == GARBAGE else {}
        request = {section: SectionRequest(options | token)}
        item = WorkItem(item_id, state.name, False, self._token if token else (), request, "housekeeping")  # noqa: FBT003
        self._runner().submit(item)

    # pressure and eviction

    def _judge(self, state: _Node, now_s: float) -> None:
        found = pressure.signals(state.machine)
        met = pressure.met(self._policies.thresholds, found)
        state.last_met_s |= {one.signal: now_s for one in met}
        pressed = pressure.under_pressure(state.last_met_s, now_s, self._policies.transition_s)
        if pressed != state.pressure:
            state.pressure = pressed
            self._world.pressed(state.name, pressed)
        if not met or now_s < state.due_s.get("eviction", 0.0):
            return
        threshold = met[0]
        state.due_s["eviction"] = now_s + EVICTED_REST_S
        self._world.tell(state.name, "Warning", "EvictionThresholdMet", f"Attempting to reclaim {_word(threshold)}")
        if threshold.signal in {pressure.DISK, pressure.INODES} and self._reclaims(state):
            return
        pods = self._world.pods(state.name)
        chosen = eviction.choose(pods, self._used(state, pods), threshold, found[threshold.signal])
        if chosen is not None:
            self._world.evict(chosen)

    def _reclaims(self, state: _Node) -> bool:
        """Have all dead containers and unused images go before any pod does; return whether that is being tried."""
        if GARBAGE in state.asked:
            return True
        tried_s, now_s = state.due_s.get("reclaimed", -_GIB), self._clock.monotonic()
        if now_s - tried_s < IMAGES_EVERY_S:
            return False
        state.due_s["reclaimed"] = now_s
        policy = self._policies.containers or ContainerPolicy()
        self._collect(
            state, now_s, policy._replace(min_age_s=0, max_per_container=0, max_containers=-1), everything=True
        )
        return GARBAGE in state.asked

    def _used(self, state: _Node, pods: Iterable[JsonObject]) -> dict[str, Used]:
        """Return what each pod uses, by UID."""
        memory: dict[str, dict[str, int]] = {}
        for one in self._world.containers(state.name) or ():
            if one.type != "sandbox" and one.id in state.memory:
                memory.setdefault(one.pod_uid, {})[one.container] = state.memory[one.id]
        return {
            uid: Used(memory.get(uid, {}), _below(uid, state.storage), _below(uid, state.volumes))
            for uid in map(objects.uid, pods)
        }

    # local storage

    def _count(self, state: _Node, now_s: float) -> None:
        """Ask what pods with limits use; under disk pressure, what every pod uses."""
        state.due_s[USAGE] = now_s + USAGE_EVERY_S
        wanted = "DiskPressure" in (state.pressure or ())
        pods = [pod for pod in self._world.pods(state.name) if wanted or eviction.is_limited(pod)]
        pods = [pod for pod in pods if eviction.may_go(pod)]
        if pods:
            volumes = [f"{objects.uid(pod)}/{volume}" for pod in pods for volume in _on_disk(pod)]
            options = {"node": state.name, "pods": [objects.uid(pod) for pod in pods], "volumes": volumes}
            self._ask(state, USAGE, options)

    def _on_usage(self, state: _Node, result: Mapping[str, Any]) -> None:
        state.storage = _numbers(result.get("containers"))
        state.volumes = _numbers(result.get("volumes"))
        pods = self._world.pods(state.name)
        used = self._used(state, pods)
        for pod in pods:
            found = eviction.over_limits(pod, used[objects.uid(pod)])
            if found is not None:
                self._world.evict(found)

    # garbage

    def _collect(
        self, state: _Node, now_s: float, policy: ContainerPolicy | None = None, *, everything: bool = False
    ) -> None:
        state.due_s[GARBAGE] = now_s + CONTAINERS_EVERY_S
        seen = self._world.containers(state.name)
        if seen is None:
            state.due_s[GARBAGE] = now_s + RETRY_S
            return
        policy = policy or self._policies.containers
        living = frozenset(objects.uid(pod) for pod in self._world.pods(state.name))
        now = self._clock.now()
        dead = garbage.plan_containers(seen, living, policy, now) if policy is not None else []
        state.plan = self._plan_images(state, seen, now_s, everything=everything)
        by_id = {image.id: image for image in state.images}
        images = [by_id[one]._asdict() for one in state.plan.delete]
        if dead or images:
            options = {"node": state.name, "containers": dead, "images": images}
            self._ask(state, GARBAGE, options | {"to_free_bytes": state.plan.to_free_bytes})

    def _plan_images(
        self, state: _Node, seen: Iterable[ObservedContainer], now_s: float, *, everything: bool
    ) -> ImagePlan:
        now, used = self._clock.now(), frozenset(one.image_id for one in seen)
        state.records = image_gc.detect(state.records, state.images, used, now)
        due = now_s >= state.due_s.get("images", 0.0)
        disk = (state.machine or {}).get("disk")
        if self._policies.images is None or disk is None or not (due or everything):
            return ImagePlan()
        state.due_s["images"] = now_s + IMAGES_EVERY_S
        capacity, free = int(disk["capacity_bytes"]), int(disk["available_bytes"])
        plan = image_gc.plan_images(
            state.images, state.records, capacity, capacity - free, self._policies.images, now, everything=everything
        )
        if plan.problem is not None:
            self._world.tell(state.name, "Warning", *plan.problem)
        elif plan.to_free_bytes and not plan.delete and not everything:
            self._tell_shortfall(state, plan, 0)
        return plan

    def _tell_shortfall(self, state: _Node, plan: ImagePlan, freed: int) -> None:
        problem = image_gc.shortfall(plan, freed)
        if problem is not None:
            self._world.tell(state.name, "Warning", *problem)

    def _on_garbage(self, state: _Node, result: Mapping[str, Any]) -> None:
        if result.get("unfinished"):
            state.due_s[GARBAGE] = 0.0
        elif state.plan.delete:
            self._tell_shortfall(state, state.plan, int(result.get("freed_bytes") or 0))
        for one, why in (result.get("errors") or {}).items():
            log.info("node %s: %s stays: %s", state.name, one, why)

    # what came back

    def _take_back(self, outcome: Outcome) -> None:
        state = self._nodes.get(outcome.node)
        section = next((name for name, one in state.asked.items() if one == outcome.id), "") if state else ""
        if state is None or not section:
            return
        del state.asked[section]
        now_s = self._clock.monotonic()
        result = outcome.sections.get(section)
        if outcome.status != "ok" or not isinstance(result, Mapping) or result.get("failed"):
            log.warning("node %s: %s %s: %s", state.name, section, outcome.status, outcome.message)
            state.due_s[section] = now_s + RETRY_S
            return
        if section == STATIC:
            state.due_s[STATIC] = now_s + (self._policies.manifests_every_s or self._observe_s())
            self._on_manifests(state, result)
        elif section == USAGE:
            self._on_usage(state, result)
        else:
            self._on_garbage(state, result)

    def _on_manifests(self, state: _Node, result: Mapping[str, Any]) -> None:
        files = [one for one in result.get("files") or [] if isinstance(one, dict)]
        parsed = parse_manifests(state.name, files)
        errors = {**{str(name): str(why) for name, why in (result.get("errors") or {}).items()}, **parsed.errors}
        told = "; ".join(f"{name}: {why}" for name, why in sorted(errors.items()))
        if told and told != state.manifest_errors:
            self._world.tell(
                state.name, "Warning", "FailedStaticPod", f"static pods in {self._policies.manifests}: {told}"
            )
        state.manifest_errors = told
        self._world.static(state.name, parsed.pods)


def _image(raw: Mapping[str, Any]) -> Image:
    return Image(str(raw["id"]), tuple(map(str, raw["names"])), int(raw["size_bytes"]))


def _word(threshold: Threshold) -> str:
    return {"memory.available": "memory", "pid.available": "pids"}.get(threshold.signal, "ephemeral-storage")


def _below(uid: str, found: Mapping[str, int]) -> dict[str, int]:
    return {key.partition("/")[2]: size for key, size in found.items() if key.startswith(f"{uid}/")}


def _on_disk(pod: JsonObject) -> list[str]:
    """Return the emptyDir volumes that lie on disk."""
    volumes = objects.spec(pod).get("volumes") or []
    return [one["name"] for one in volumes if "emptyDir" in one and (one["emptyDir"] or {}).get("medium") != "Memory"]


def _numbers(raw: Any) -> dict[str, int]:
    rows = raw.items() if isinstance(raw, Mapping) else ()
    return {str(key): int(size) for key, size in rows if isinstance(size, int)}
