"""The errors of a node's section as Events: each once, and once more when its key was looked at and is well again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container
from typing import Any

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.reconcile.events.pod_events import Recorder

log = logging.getLogger(__name__)

Concerned = Callable[[str, str], list[JsonObject | None]]
"""Returns the objects that a key (its node, the key) is of; empty, or all None, where they are gone."""


class SectionErrors:
    """Keeps one section's errors by node and key; the runner's one thread calls it.

    Args:
        recorder: of Events.
        section: its name.
        reasons: of the Event of an error, and of the one of its end.
        healthy: what the latter says.
        whole: the key of what concerns the whole section, which every pass looks at.
        concerned: see ``Concerned``.
    """

    def __init__(
        self,
        recorder: Recorder,
        section: str,
        reasons: tuple[str, str],
        healthy: str,
        whole: str,
        concerned: Concerned,
    ) -> None:
        self._recorder, self._section, self._healthy = recorder, section, healthy
        self._failed, self._recovered = reasons
        self._whole, self._concerned = whole, concerned
        self._messages: dict[tuple[str, str], str] = {}

    def take(self, node: str, result: JsonObject | None) -> None:
        """Take over what a node answered about the section; None, or an answer without errors, says nothing."""
        if result is None or not isinstance(result.get("errors"), dict):
            return
        errors = {key: str(error.get("message")) for key, error in result["errors"].items()}
        for key, message in errors.items():
            if self._messages.get((node, key)) != message:
                self._messages[node, key] = message
                log.warning("node %s: %s: %s: %s", node, self._section, key, message)
                self._record(node, key, "Warning", self._failed, message)
        self._end(node, errors, {*(result.get("status") or ()), self._whole})

    def _end(self, node: str, errors: Container[str], looked_at: Container[str]) -> None:
        for where in [each for each in self._messages if each[0] == node and each[1] not in errors]:
            if where[1] in looked_at:
                del self._messages[where]
                self._record(node, where[1], "Normal", self._recovered, self._healthy)

    def _record(self, node: str, key: str, kind: Any, reason: str, message: str) -> None:
        for obj in self._concerned(node, key):
            if obj is not None:
                self._recorder.event(obj, kind, reason, f"node {node}: {message}")
