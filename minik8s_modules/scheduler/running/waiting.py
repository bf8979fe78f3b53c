"""Pods that wait for their permission; none holds a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.scheduler.framework.infos import PodInfo

Done = Callable[[str, str], None]
"""Called once with ("", "") when the pod may go, else with the plugin that kept it and why."""


class _Waiting:
    """One pod that waits."""

    def __init__(self, pod: PodInfo, node: str, until: dict[str, float], done: Done, room: WaitingPods) -> None:
        self.pod, self.node, self.until, self.done, self._room = pod, node, until, done, room

    def allow(self, plugin: str) -> None:
        """Let it go, as far as ``plugin`` is concerned."""
        self._room.allow(self, plugin)

    def reject(self, plugin: str, reason: str) -> None:
        """Keep it from its node."""
        self._room.end(self, plugin, reason)


class WaitingPods:
    """All pods that wait for their permission."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pods: dict[tuple[Key, str], _Waiting] = {}

    def add(self, pod: PodInfo, node: str, until: dict[str, float], done: Done) -> None:
        """Let a pod wait for each plugin until its time."""
        with self._lock:
            self._pods[_identity(pod.pod)] = _Waiting(pod, node, dict(until), done, self)

    def list(self) -> Sequence[_Waiting]:
        """Return them."""
        with self._lock:
            return tuple(self._pods.values())

    def get(self, pod: JsonObject) -> _Waiting | None:
        """Return the wait of this pod; one of the same name is another."""
        with self._lock:
            return self._pods.get(_identity(pod))

    def allow(self, one: _Waiting, plugin: str) -> None:
        """Take one plugin's permission; with the last the pod goes."""
        with self._lock:
            one.until.pop(plugin, None)
            over = not one.until
        if over:
            self.end(one, "", "")

    def end(self, one: _Waiting, plugin: str, reason: str) -> None:
        """End the wait, once."""
        identity = _identity(one.pod.pod)
        with self._lock:
            if self._pods.get(identity) is not one:
                return
            del self._pods[identity]
        one.done(plugin, reason)

    def expire(self, now: float) -> None:
        """End the waits whose time is over: that is a refusal."""
        for one in self.list():
            late = next((plugin for plugin, until in dict(one.until).items() if until <= now), None)
            if late is not None:
                self.end(one, late, f"pod {one.pod.key} waited too long for the permission of plugin {late}")


def _identity(pod: JsonObject) -> tuple[Key, str]:
    return objects.key(pod), objects.uid(pod)
