"""Watching one node: is it alive, which containers and images has it, what happens to them.

Two threads, so that neither waits for the other. The *life* thread opens the link, pings Docker every 10 s
and touches the attended file every 30 s. The *event* thread, while the node answers, opens the event stream
first and lists second, so that nothing falls between; it then answers each event with a fresh inspection.
Every message is made under the node's lock: of one container a later message never tells something older.
"""

from __future__ import annotations

import logging
import random as random_module
import threading
from collections.abc import Callable
from typing import NamedTuple, Protocol

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.backoff import RECONNECT, Backoff
from minik8s_modules.base.clock import Clock, SystemClock
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.gateway import messages
from minik8s_modules.gateway.engine import CONTAINER_ACTIONS, DockerEvent, Engine, EventStream
from minik8s_modules.gateway.last_words import with_cause, with_message
from minik8s_modules.gateway.links import Link
from minik8s_modules.gateway.metrics_sources import Source
from minik8s_modules.module_utils.minik8s.core.memory_events import ENDED

log = logging.getLogger(__name__)

Publish = Callable[[JsonObject], None]

PING_S = 10.0
TOUCH_S = 30.0
# No answer for this long makes a node dead; a restart of dockerd takes 2 s and is not worth telling
DEAD_AFTER_S = 5.0
# a node that is back has what was moved elsewhere ended within 10 s, most of which is Ansible's
_RETRY = Backoff(initial_s=1.0, maximum_s=2.0)


class NodeEngine(Protocol):
    """The part of ``Engine`` that watching needs."""

    def ping(self) -> float | None:
        """Return the node's time in whole seconds, if told, when Docker answers; else ``DockerUnavailable``."""

    def containers(self) -> list[JsonObject]:
        """Return all observations."""

    def container(self, container_id: str) -> JsonObject | None:
        """Return one observation; None when it is gone."""

    def log_end(self, container_id: str, lines: int) -> bytes:
        """Return the last lines of a container's log."""

    def images(self) -> list[str]:
        """Return the names and ids of the images present."""

    def events(self, since_ns: int) -> EventStream:
        """Return the events after ``since_ns``."""

    def close(self) -> None:
        """Close the idle connections."""


def ahead_s(told_s: float | None, began_s: float, ended_s: float) -> float:
    """Return by how many seconds at least a node's clock is ahead (below 0: behind), from an answer with its time.

    Args:
        told_s: what the node's clock showed, cut to whole seconds, between the other two.
        began_s: when it was asked, by this machine.
        ended_s: when the answer came, by this machine.
    """
    if told_s is None:
        return 0.0
    return max(0.0, told_s - ended_s) or min(0.0, told_s + 1 - began_s)


class _Seen(NamedTuple):
    containers: dict[str, JsonObject]
    images: list[str]


class NodeWatcher:
    """Watches node ``name`` behind ``link`` and publishes what the gateway's socket tells of it."""

    def __init__(
        self,
        name: str,
        link: Link,
        publish: Publish,
        engine: Callable[[str, str], NodeEngine] = Engine,
        clock: Clock | None = None,
        random: Callable[[], float] = random_module.random,
    ) -> None:
        self.name = name
        self._link = link
        self._publish = publish
        self._make_engine = engine
        self._clock = clock or SystemClock()
        self._random = random
        self._lock = threading.RLock()
        self._seen: _Seen | None = None
        self._alive: bool | None = None
        self._silence = ""
        self._socket_path = ""
        self._engine: NodeEngine | None = None
        self._stream: EventStream | None = None
        self._since_ns = 0
        self._failures = 0
        self._failing_since = 0.0
        self._answered_at: float | None = None
        self.clock_ahead_s = 0.0
        self._touched_at: float | None = None
        self._stop = threading.Event()
        self._up = threading.Event()
        self._poke = threading.Event()
        self._relist_wanted = False
        self._threads = [
            threading.Thread(target=self._live, name=f"life-{name}", daemon=True),
            threading.Thread(target=self._follow, name=f"docker-{name}", daemon=True),
        ]

    def start(self) -> None:
        """Start watching; returns at once."""
        for thread in self._threads:
            thread.start()

    def stop(self, timeout_s: float = 3.0) -> None:
        """End both threads and the link; a thread in a call to a dead node is left behind after ``timeout_s``."""
        self._stop.set()
        self._poke.set()
        self._up.set()
        with self._lock:
            if self._stream is not None:
                self._stream.close()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout_s)
        self._link.close()
        if self._engine is not None:
            self._engine.close()

    def relist(self) -> None:
        """Publish a fresh state soon; returns at once."""
        self._relist_wanted = True
        self._poke.set()

    def tell(self, publish: Publish) -> None:
        """Give ``publish`` what is known: the node's life and its last state."""
        with self._lock:
            if self._alive is not None:
                publish(messages.alive(self.name, alive=self._alive, message=self._silence))
            if self._seen is not None:
                publish(self._state(self._seen))

    def answered_within(self, seconds: float) -> bool:
        """Return whether Docker answered a ping within the last ``seconds``."""
        answered = self._answered_at
        return answered is not None and self._clock.monotonic() - answered <= seconds

    def source(self) -> Source | None:
        """Return what the node's figures are read from; None before the link was first open."""
        if not self._socket_path:
            return None
        return Source(self.name, self._socket_path, self._link.cadvisor(), self._link)

    @property
    def link(self) -> Link:
        """The way to the node."""
        return self._link

    @property
    def socket_path(self) -> str:
        """The local path of the node's Docker socket; empty before the link was first open."""
        return self._socket_path

    def probe(self) -> bool:
        """Open the link, ping, and tell a change of life; return whether the node answers."""
        try:
            path = self._link.open()
            if self._engine is None:
                self._engine = self._make_engine(path, self.name)
                self._socket_path = path
            began_s = self._clock.now().timestamp()
            told_s = self._engine.ping()
            self.clock_ahead_s = ahead_s(told_s, began_s, self._clock.now().timestamp())
        except TemporaryError as error:
            self._on_failure(error)
            return False
        self._failures = 0
        self._answered_at = self._clock.monotonic()
        self._set_alive(alive=True)
        self._up.set()
        return True

    def touch_if_due(self) -> None:
        """Touch the attended file when 30 s have passed since it last worked."""
        now = self._clock.monotonic()
        if self._touched_at is not None and now - self._touched_at < TOUCH_S:
            return
        try:
            self._link.touch_attended()
        except TemporaryError as error:
            level = logging.DEBUG if self._touched_at is None and self._failures else logging.WARNING
            log.log(level, "%s: %s", self.name, error)
        else:
            self._touched_at = now

    def follow_once(self) -> None:
        """Follow the node's events until the stream ends.

        Raises:
            DockerUnavailable: Docker does not answer, or the stream was cut.
        """
        engine = self._engine
        if engine is None:
            return
        engine.ping()  # the SDK leaks a socket for each connection that is refused
        stream = engine.events(self._since_ns)
        with self._lock:
            self._stream = stream
        try:
            if not self._stop.is_set():
                self._list(engine)
                for event in stream:
                    self._on_event(engine, event)
        finally:
            with self._lock:
                self._stream = None
                stream.release()

    def _live(self) -> None:
        while not self._stop.is_set():
            try:
                answers = self.probe()
                if answers:
                    self.touch_if_due()
                    self._relist_if_wanted()
            except Exception:
                answers = False
                log.exception("%s: watching its liveness failed", self.name)
            jitter = 0.75 + 0.5 * self._random()
            self._clock.wait(self._poke, PING_S if answers else jitter * _RETRY.delay_s(max(1, self._failures)))
            self._poke.clear()

    def _relist_if_wanted(self) -> None:
        if self._relist_wanted and self._engine is not None:
            self._relist_wanted = False
            try:
                self._list(self._engine)
            except TemporaryError as error:
                self._relist_wanted = True
                self._on_failure(error)

    def _follow(self) -> None:
        failures = 0
        while not self._stop.is_set():
            self._up.wait()
            if self._stop.is_set():
                return
            began = self._clock.monotonic()
            try:
                self.follow_once()
            except TemporaryError as error:
                log.info("%s: %s", self.name, error)
            except Exception:
                log.exception("%s: following its events failed", self.name)
            # a stream that lived for a while was sound; only one that breaks at once is slowed down
            failures = 1 if self._clock.monotonic() - began > RECONNECT.maximum_s else failures + 1
            self._poke.set()
            self._clock.wait(self._stop, RECONNECT.delay_s(failures) * (0.5 + self._random()))

    def _list(self, engine: NodeEngine) -> None:
        with self._lock:
            begun_s = self._clock.monotonic()
            listed = [self._spoken(engine, each) for each in engine.containers()]
            seen = _Seen({each["id"]: each for each in listed}, engine.images())
            self._seen = seen
            self._publish(self._state(seen, self._clock.monotonic() - begun_s))

    def _on_event(self, engine: NodeEngine, event: DockerEvent) -> None:
        if event.time_ns:
            self._since_ns = event.time_ns + 1
        with self._lock:
            if self._seen is None:
                return
            if event.id and event.action in CONTAINER_ACTIONS:
                self._on_container(engine, event, self._seen)
            elif not event.id:
                self._on_image(engine, self._seen)

    def _on_container(self, engine: NodeEngine, event: DockerEvent, seen: _Seen) -> None:
        observation = None if event.action == "destroy" else engine.container(event.id)
        if observation is None:
            seen.containers.pop(event.id, None)
        else:
            observation = self._spoken(engine, observation)
            if event.action == "oom" and observation["state"] in ENDED:  # the end overtook it
                observation = {**observation, "oom_killed": True}
            seen.containers[event.id] = observation
        self._publish(messages.event(self.name, event.action, event.id, observation))

    def _spoken(self, engine: NodeEngine, observation: JsonObject) -> JsonObject:
        """Return the observation with the container's last words and what ended it, which are read once."""
        known = self._seen.containers.get(observation["id"]) if self._seen else None
        if known is not None and known["state"] == observation["state"]:
            observation = {**observation, "oom_killed": known["oom_killed"] or observation["oom_killed"]}
            if known.get("message") is not None:
                return {**observation, "message": known["message"]}
        return with_message(with_cause(observation, self._link.read), self._link.read, engine.log_end)

    def _on_image(self, engine: NodeEngine, seen: _Seen) -> None:
        images = engine.images()
        if images != seen.images:
            self._seen = seen._replace(images=images)
            self._publish(messages.images(self.name, images))

    def _on_failure(self, error: Exception) -> None:
        self._failures += 1
        self._touched_at = None  # a node that has booted meanwhile knows nothing of earlier touches
        if self._failures == 1:
            self._failing_since = self._clock.monotonic()
        level = logging.WARNING if self._failures == 1 else logging.DEBUG
        log.log(level, "%s: %s", self.name, error)
        if self._clock.monotonic() - self._failing_since >= DEAD_AFTER_S:
            self._up.clear()
            self._set_alive(alive=False, silence=str(error))

    def _set_alive(self, *, alive: bool, silence: str = "") -> None:
        with self._lock:
            if self._alive is not alive:
                self._alive, self._silence = alive, silence
                log.info("%s is %s", self.name, "alive" if alive else "dead")
                self._publish(messages.alive(self.name, alive=alive, message=silence))

    def _state(self, seen: _Seen, took_s: float | None = None) -> JsonObject:
        return messages.state(self.name, [*seen.containers.values()], seen.images, took_s)
