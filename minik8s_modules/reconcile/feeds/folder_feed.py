"""Keeps the section ``folders`` of all nodes, and tells volumes what became of their folders.

That a folder is deleted stands in its volume's status (``reason: FolderDeleted``), where the controller of volumes
reads it and lets the volume go. A node that says so was asked to: nothing is remembered here, so a reconciler that is
new asks again and is told again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import PERSISTENT_VOLUME
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.storage import claims
from minik8s_modules.base.clock import Clock
from minik8s_modules.client.informer import Informer
from minik8s_modules.reconcile.storage.folders import folders, is_to_go
from minik8s_modules.reconcile.values.items import Outcome
from minik8s_modules.reconcile.values.values import Entries
from minik8s_modules.runtime.queue import WorkQueue
from minik8s_modules.runtime.workers import Workers

SECTION = "folders"
FAILED, OVER = "FailedToMakeFolder", "FolderMade"
"""Reasons of Events: the machine could not make the folder, and could after all."""


class Recorder(Protocol):
    """Records Events."""

    def event(self, obj: JsonObject, kind: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        """Record one."""


class FolderFeed:
    """Thread-safe.

    Args:
        api: an ``ApiClient``.
        nodes: those that the reconciler attends. What others say of themselves, such as an address, draws no folder.
        recorder: of Events.
        on_change: called when the folders of a node may have changed, and when the first list is complete.
        clock: of the queue of writes.
        active: False where the reconciler may not read all volumes: a node's own.
    """

    def __init__(
        self,
        api: Any,
        nodes: Callable[[], list[JsonObject]],
        recorder: Recorder,
        on_change: Callable[[], None],
        clock: Clock,
        *,
        active: bool,
    ) -> None:
        self._api, self._nodes, self._recorder, self._on_change = api, nodes, recorder, on_change
        self._active = active
        self._volumes = Informer(api, PERSISTENT_VOLUME, on_synced=on_change)
        self._volumes.add_handler(self._on_volume)
        self._queue: WorkQueue[str] = WorkQueue(clock)
        self._workers = Workers(self._queue, self._tell_deleted, "folders")
        self._lock = threading.Lock()
        self._stale = True
        self._known: Mapping[str, Entries] = {}
        self._reported: dict[str, str] = {}

    def start(self) -> None:
        """List and watch; returns at once."""
        if self._active:
            self._volumes.start()
            self._workers.start()

    def stop(self) -> None:
        """End."""
        if self._active:
            self._workers.stop()
            self._volumes.stop()

    def wait_synced(self, timeout_s: float) -> bool:
        """Return whether the volumes were listed once."""
        return not self._active or self._volumes.wait_synced(timeout_s)

    def of(self) -> Mapping[str, Entries]:
        """Return the section of each node that has folders, as things stand now."""
        with self._lock:
            stale, self._stale = self._stale, False
        if stale:  # outside the lock: handlers of the copies take it under their own
            self._known = folders(self._volumes.list(), self._nodes()) if self._active else {}
        return self._known

    def volume(self, name: str) -> JsonObject | None:
        """Return a volume, None when there is none."""
        return self._volumes.get("", name)

    def on_nodes(self, old: JsonObject | None, new: JsonObject | None) -> None:
        """Handle a change of a Node: its name, labels and addresses count."""
        if _read_of_node(old) != _read_of_node(new):
            self._note()

    def look_again(self) -> None:
        """Take over that other nodes are attended than before."""
        with self._lock:
            self._stale = True

    def on_outcome(self, outcome: Outcome) -> None:
        """Take over what a node answered; the runner's callback."""
        result = outcome.sections.get(SECTION)
        if result is None or not isinstance(result.get("errors"), dict):
            return
        for key, seen in (result.get("status") or {}).items():
            if (seen or {}).get("state") == "absent":
                self._queue.add(key)
            if key not in result["errors"] and self._reported.pop(key, ""):
                self._tell_over(outcome.node, key)
        for key, error in result["errors"].items():
            self._tell_error(outcome.node, key, str(error.get("message")))

    def _tell_error(self, node: str, key: str, message: str) -> None:
        volume = self.volume(key)
        if volume is None or self._reported.get(key) == message:
            return
        self._reported[key] = message
        reason = "VolumeFailedDelete" if objects.is_deleting(volume) else FAILED
        self._recorder.event(volume, "Warning", reason, f"node {node}: {message}")

    def _tell_over(self, node: str, key: str) -> None:
        volume = self.volume(key)
        if volume is not None and not objects.is_deleting(volume):
            self._recorder.event(volume, "Normal", OVER, f"node {node}: the folder is there")

    def _tell_deleted(self, name: str) -> None:
        """Write into a volume's status that its folder is deleted. Raises as the API does."""
        volume = self.volume(name)
        if volume is None or not is_to_go(volume) or objects.status(volume).get("reason") == claims.FOLDER_DELETED:
            return
        status = {"reason": claims.FOLDER_DELETED, "message": None}
        body = {"metadata": {"uid": objects.uid(volume)}, "status": status}
        try:
            self._api.patch(PERSISTENT_VOLUME, name, "", body, subresource="status")
        except NotFound:
            return

    def _on_volume(self, old: JsonObject | None, new: JsonObject | None) -> None:
        if any(side is not None and claims.is_ours(side) for side in (old, new)):
            self._note()

    def _note(self) -> None:
        with self._lock:
            self._stale = True
        self._on_change()


def _read_of_node(node: JsonObject | None) -> tuple[Any, ...]:
    return (node is None, objects.labels(node or {}), objects.status(node or {}).get("addresses"))
