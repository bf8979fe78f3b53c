"""What the gateway tells of a node, taken over into what is remembered of it; each answers which pods to look at."""

from __future__ import annotations

from collections.abc import Callable, Set

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import Clock
from minik8s_modules.reconcile.events.pod_events import PodEvents
from minik8s_modules.reconcile.loop.image_pulls import Pulls
from minik8s_modules.reconcile.loop.nodestate import NodeState
from minik8s_modules.reconcile.pods.observed import observation

_CHANGES, _CHANGED = frozenset({"update", "pause"}), frozenset({"sandboxes", "containers"})
"""What somebody does to a container with Docker that leaves it alive, and the sections to look at then."""
Heard = Callable[[NodeState, JsonObject], set[str]]


def is_urgent(state: NodeState, message: JsonObject, touched: Set[str]) -> bool:
    """Return whether the node is to be looked at for a message that told something of the pods ``touched``.

    The item that works on a pod is heard of soon. Until then nobody is told of a container between its create and its
    start, of one that has ended and is gone, nor of the sandbox (status/writer.py, ``View.busy``).
    """
    if message["op"] != "event" or message["action"] in _CHANGES:
        return True
    raw = message["container"]
    tells = raw is not None and raw["type"] != "sandbox" and (raw["state"] != "created" or bool(raw["error"]))
    return bool(touched) and (tells or not all(state.works_on(uid) for uid in touched))


class GatewayEvents:
    """``life_changed(node)`` is called when a node was said to live or not. One caller at a time."""

    def __init__(
        self, clock: Clock, event_writer: PodEvents, pulls: Pulls, life_changed: Callable[[str], None]
    ) -> None:
        self._clock = clock
        self._event_writer = event_writer
        self._pulls = pulls
        self._life_changed = life_changed
        self._known: dict[str, Heard] = {
            "alive": self._on_alive,
            "state": self._on_state,
            "event": self._on_event,
            "images": self._on_images,
            "pulled": self._on_pulled,
            "checked": self._on_checked,
        }

    def understands(self, message: JsonObject) -> bool:
        """Return whether the message is one about a node."""
        return str(message.get("op") or "") in self._known

    def take(self, state: NodeState, message: JsonObject) -> set[str]:
        """Take a message over; return the UIDs of the pods it tells something about.

        Raises:
            KeyError, TypeError, ValueError: it is not of its shape.
        """
        return self._known[message["op"]](state, message)

    def _on_alive(self, state: NodeState, message: JsonObject) -> set[str]:
        alive = bool(message["alive"])
        if alive and not state.alive:
            state.on_return()
        state.alive, state.silence = alive, str(message.get("message") or "")
        self._life_changed(state.name)
        return set()

    def _on_state(self, state: NodeState, message: JsonObject) -> set[str]:
        now = self._clock.now()
        seen = [observation(raw, now) for raw in message["containers"]]
        first = not state.known
        images = map(str, message["images"])
        changed = state.on_state(seen, images, self._clock.monotonic(), self._event_writer.happened)
        if first:
            self._life_changed(state.name)  # nothing was said of its life before
        return changed

    def _on_event(self, state: NodeState, message: JsonObject) -> set[str]:
        raw = message["container"]
        seen = observation(raw, self._clock.now()) if raw is not None else None
        if seen is not None and message["action"] in _CHANGES:
            state.on_changed(_CHANGED, self._clock.monotonic())
        return state.on_event(str(message["id"]), seen, self._clock.monotonic(), self._event_writer.happened)

    def _on_images(self, state: NodeState, message: JsonObject) -> set[str]:
        return set(state.decisions) if state.on_images(map(str, message["images"])) else set()

    def _on_pulled(self, state: NodeState, message: JsonObject) -> set[str]:
        return self._pulls.on_pulled(state, message, self._clock.now())

    def _on_checked(self, state: NodeState, message: JsonObject) -> set[str]:
        uid = str(message["pod"])
        return {uid} if state.checking.on_checked(uid, message["results"]) else set()
