"""``simulated`` runs nothing: its Pods live by declared stages, thousands of nodes and Pods in one process.

All nodes of a process share one thread that wakes when the next stage of some Pod is due. Environments are not
resolved. Its configuration, all of it optional:

    cpu: "32"                       capacity of the node, also memory and pods
    others: {nvidia.com/gpu: "8"}
    stages:                         see ``stages``; those of states that none begins with are as KWOK's
      - {when: created, next: running, delay: 0.5, jitter: 2}
      - {when: running, next: failed, delay: 60, jitter: 600, weight: 1, always: true}
    pod_cidr: 10.202.0.0/16         Pods get addresses of it, each node from a part of its own
    random_seed: 1
"""

from __future__ import annotations

import heapq
import ipaddress
import itertools
import logging
import random
import threading
import zlib
from collections.abc import Callable
from typing import NamedTuple

import orjson

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.base.clock import Clock, SystemClock, rfc3339
from minik8s_modules.base.config import Configuration
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.virtual.errors import NotFound
from minik8s_modules.virtual.provider import InitConfig, PodCallback, Provider
from minik8s_modules.virtual.providers.stages import Stage, State, next_stage, parse_stages, status_in

log = logging.getLogger(__name__)


class _Item(NamedTuple):
    due_s: float
    ticket: int
    act: Callable[[], None]


class Timeline:
    """One thread that does things when they are due; for all simulated nodes of a process."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._changed = threading.Condition()
        self._items: list[_Item] = []
        self._tickets = itertools.count()
        self._users = 0
        self._thread: threading.Thread | None = None

    def use(self) -> None:
        """Run as long as somebody uses it."""
        with self._changed:
            self._users += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="simulated", daemon=True)
                self._thread.start()

    def leave(self) -> None:
        """End with the last user."""
        with self._changed:
            self._users -= 1
            self._changed.notify()

    def after(self, delay_s: float, act: Callable[[], None]) -> None:
        """Do ``act`` in ``delay_s`` seconds."""
        with self._changed:
            heapq.heappush(self._items, _Item(self._clock.monotonic() + delay_s, next(self._tickets), act))
            self._changed.notify()

    def _run(self) -> None:
        while (act := self._take()) is not None:
            try:
                act()
            except Exception:
                log.exception("a simulated Pod")

    def _take(self) -> Callable[[], None] | None:
        with self._changed:
            while self._users > 0:
                wait_s = self._items[0].due_s - self._clock.monotonic() if self._items else None
                if wait_s is not None and wait_s <= 0:
                    return heapq.heappop(self._items).act
                self._changed.wait(wait_s)
            self._thread = None
            self._items.clear()
            return None


SHARED = Timeline()


class _Life:
    """A Pod and the state it is in; ``turn`` counts states, so that what was due in a former one is not done.

    The Pod is kept as JSON, a fifth of its parsed form: there may be 100,000 of them. Each look at it is a copy.
    """

    __slots__ = ("_said", "state", "turn", "uid")

    def __init__(self, pod: JsonObject) -> None:
        self.pod, self.turn = pod, 0
        self.state: State = "created"
        self.uid = objects.uid(pod)

    @property
    def pod(self) -> JsonObject:
        """The Pod, the reader's own."""
        found: JsonObject = orjson.loads(self._said)
        return found

    @pod.setter
    def pod(self, pod: JsonObject) -> None:
        said = orjson.dumps(pod)
        self._said = memoryview(said).tobytes()  # orjson's own bytes hold the whole buffer they were written into


class Simulated(Provider):
    """One node; see the top of this file. Thread-safe."""

    resolves_environment = False
    tells_success = False

    def __init__(self, config: InitConfig, timeline: Timeline = SHARED, clock: Clock | None = None) -> None:
        said = Configuration(dict(config.config), config.config_path or "the provider's configuration")
        others = said.mapping("others") if said.has("others") else {}
        self._capacity = {
            "cpu": said.text("cpu", "32"),
            "memory": said.text("memory", "128Gi"),
            "pods": said.text("pods", "250"),
            **{name: str(amount) for name, amount in others.items()},
        }
        self._stages: tuple[Stage, ...] = parse_stages(said.rows("stages") if said.has("stages") else [], said.file)
        self._network = ipaddress.IPv4Network(said.network("pod_cidr", "", may_be_empty=True) or "0.0.0.0/0")
        self._addressed = said.has("pod_cidr")
        # crc32: each node has chances of its own, and the same ones in every run
        self._seed = zlib.crc32(config.node_name.encode())
        self._random = random.Random(said.number("random_seed", 1) ^ self._seed)  # noqa: S311 - no secret
        if unknown := said.unread():
            raise ConfigurationError(f"{said.file}: {', '.join(unknown)} is not a setting of the provider simulated")
        self._address = config.internal_ip
        self._clock = clock or SystemClock()
        self._timeline = timeline
        self._lock = threading.Lock()
        self._lives: dict[Key, _Life] = {}
        self._given = itertools.count()
        self._notify: PodCallback = lambda _: None
        timeline.use()

    def create_pod(self, pod: JsonObject) -> None:
        """Let the Pod's life begin."""
        with self._lock:
            known = self._lives.get(objects.key(pod))
            if known is not None and known.uid == objects.uid(pod):
                return
            if self._addressed and not objects.status(pod).get("podIP"):
                pod = {**pod, "status": {**objects.status(pod), "podIP": self._next_address()}}
            life = self._lives[objects.key(pod)] = _Life(pod)
            # one that ran before this process began goes on where it was
            life.state = "running" if objects.status(pod).get("phase") == "Running" else "created"
        self._plan(life, pod)

    def update_pod(self, pod: JsonObject) -> None:
        """Take over what the Pod says now."""
        with self._lock:
            life = self._find(objects.namespace(pod), objects.name(pod))
            life.pod = {**pod, "status": life.pod.get("status") or {}}

    def delete_pod(self, pod: JsonObject) -> None:
        """Let the Pod's end begin."""
        with self._lock:
            life = self._find(objects.namespace(pod), objects.name(pod))
            if life.state == "deleted":
                return
            self._turn(life, "deleted")
            known = life.pod
        self._plan(life, known)

    def get_pod(self, namespace: str, name: str) -> JsonObject:
        """Return a copy of the Pod."""
        with self._lock:
            return self._find(namespace, name).pod

    def get_pod_status(self, namespace: str, name: str) -> JsonObject:
        """Return a copy of its status."""
        with self._lock:
            return objects.status(self._find(namespace, name).pod)

    def get_pods(self) -> list[JsonObject]:
        """Return copies of all Pods."""
        with self._lock:
            return [life.pod for life in self._lives.values()]

    def notify_pods(self, notify: PodCallback) -> None:
        """Tell ``notify`` of every change from now on."""
        self._notify = notify

    def configure_node(self, node: JsonObject) -> JsonObject:
        """Give the node the capacity of the configuration."""
        status = {**objects.status(node), "capacity": dict(self._capacity), "allocatable": dict(self._capacity)}
        return {**node, "status": status}

    def close(self) -> None:
        """Let go of the timeline."""
        self._timeline.leave()

    def _find(self, namespace: str, name: str) -> _Life:
        found = self._lives.get(Key(namespace, name))
        if found is None:
            raise NotFound(f'pod "{namespace}/{name}" is not simulated here')
        return found

    def _turn(self, life: _Life, state: State) -> None:
        life.state = state
        life.turn += 1

    def _plan(self, life: _Life, pod: JsonObject) -> None:
        """Have the next stage of ``pod``'s life come when it is due."""
        due = next_stage(pod, life.state, self._stages, self._random.random)
        if due is not None:
            turn = life.turn
            self._timeline.after(due.after_s, lambda: self._advance(life, turn, due.stage))

    def _advance(self, life: _Life, turn: int, stage: Stage) -> None:
        with self._lock:
            if life.turn != turn:
                return
            state: State = "succeeded" if stage.next == "gone" else stage.next
            pod = life.pod
            status = status_in(pod, state, rfc3339(self._clock.now()), self._address, stage.exit_code)
            life.pod = pod = {**pod, "status": status}
            self._turn(life, stage.next)
            if stage.next == "gone":
                self._lives.pop(objects.key(pod), None)
        self._plan(life, pod)
        self._notify(pod)

    def _next_address(self) -> str:
        """Return the next address of the node's part, which its name chooses; parts of many nodes may overlap."""
        offset = (self._seed * 256 + next(self._given) % 254 + 1) % self._network.num_addresses
        return str(self._network[offset])


def make(config: InitConfig) -> Simulated:
    """Return the provider; raises ConfigurationError."""
    return Simulated(config)
