"""Reads a node's folder of static pods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.reconcile.housekeeping.job import Job, World
from minik8s_modules.reconcile.housekeeping.static_pods import parse_manifests

_LATER = 1.5
"""By so much a time between observations, less a fifth, exceeds any other (``jittered`` in main.py)."""


class StaticFiles(Job):
    """Reads it every ``every_s``; where that is 0, after each observation of the node, or where these fail.

    What runs modules on a node is there after an observation: to start it for this alone takes four times the CPU.
    """

    section = "static_pods"

    def __init__(self, node: str, world: World, folder: str, every_s: float, observe_s: Callable[[], float]) -> None:
        super().__init__()
        self._node = node
        self._world = world
        self._folder = folder
        self._every_s, self._observe_s = every_s, observe_s
        self._last_warning = ""

    def begin(self, _now_s: float) -> JsonObject | None:
        """Ask for the folder's files."""
        return {"path": self._folder} if self._folder else None

    def observed(self) -> None:
        """The node was observed just now."""
        if not self._every_s:
            self.due_s = 0.0

    def end(self, result: Mapping[str, Any], now_s: float) -> None:
        """Take over the pods; what cannot be read is an Event, once."""
        self.due_s = now_s + (self._every_s or _LATER * self._observe_s())
        files = [one for one in result.get("files") or [] if isinstance(one, dict)]
        parsed = parse_manifests(self._node, files)
        errors = {**{str(name): str(why) for name, why in (result.get("errors") or {}).items()}, **parsed.errors}
        text = "; ".join(f"{name}: {why}" for name, why in sorted(errors.items()))
        if text and text != self._last_warning:
            self._world.tell(self._node, "Warning", "FailedStaticPod", f"static pods in {self._folder}: {text}")
        self._last_warning = text
        self._world.static(self._node, parsed.pods)
