"""Tells claims that their node has made a file system as large as its volume: the end of a resize.

The driver's external-resizer makes the volume larger and leaves the condition ``FileSystemResizePending``, or
``NodeResizePending`` in ``allocatedResourceStatuses``; the node's driver does the rest. ``finished`` decides about one
claim, ``ClaimSizes`` writes. Source: kubernetes ``pkg/volume/util/resize_util.go`` (MarkFSResizeFinished,
MarkNodeExpansionFinishedWithRecovery).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Conflict, NotFound
from minik8s_modules.api.kinds import PERSISTENT_VOLUME_CLAIM
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.api.pods.pod_claims import claim_of
from minik8s_modules.api.quantities import to_bytes
from minik8s_modules.base.clock import Clock
from minik8s_modules.client.interface import Api
from minik8s_modules.reconcile.values.values import PodInputs
from minik8s_modules.runtime.events import KUBELET, EventRecorder
from minik8s_modules.runtime.queue import WorkQueue
from minik8s_modules.runtime.workers import Workers

_RESIZES = frozenset({"Resizing", "FileSystemResizePending", "ControllerResizeError", "NodeResizeError"})


def finished(pod: JsonObject, inputs: PodInputs, sizes: Mapping[str, int]) -> Iterator[tuple[JsonObject, JsonObject]]:
    """Yield each claim of a pod that is as large as its volume now and does not say so, with its new status' fields.

    ``sizes`` are those that the node has told of the pod's volumes, in bytes by the volumes' names.
    """
    for volume in objects.spec(pod).get("volumes") or []:
        size_bytes = sizes.get(str(volume.get("name")))
        claim = inputs.claims.get(f"{objects.namespace(pod)}/{claim_of(pod, volume)}")
        if size_bytes is None or claim is None:
            continue
        held = inputs.volumes.get(str(objects.spec(claim).get("volumeName") or ""))
        capacity = objects.dig(held or {}, "spec", "capacity", "storage")
        # another size is on its way, and the node is told of it
        if capacity is not None and to_bytes(capacity) == size_bytes and (status := _changes(claim, capacity)):
            yield claim, status


def _changes(claim: JsonObject, capacity: str) -> JsonObject:
    status = objects.status(claim)
    if status.get("phase") != "Bound":
        return {}
    changes: JsonObject = {}
    before = (status.get("capacity") or {}).get("storage")
    if before is None or to_bytes(before) != to_bytes(capacity):
        changes["capacity"] = {"storage": capacity}
    conditions = status.get("conditions") or []
    left = [one for one in conditions if one.get("type") not in _RESIZES]
    if left != conditions:
        changes["conditions"] = left or None
    if str((status.get("allocatedResourceStatuses") or {}).get("storage") or "").startswith("NodeResize"):
        changes["allocatedResourceStatuses"] = {"storage": None}
    return changes


class ClaimSizes:
    """Writes what ``finished`` yields; a claim that has changed meanwhile is decided about again by whoever watches."""

    def __init__(self, api: Api, recorder: EventRecorder, clock: Clock) -> None:
        self._api, self._recorder = api, recorder
        self._lock = threading.Lock()
        self._wanted: dict[Key, tuple[JsonObject, JsonObject, str]] = {}
        self._queue: WorkQueue[Key] = WorkQueue(clock)
        self._workers = Workers(self._queue, self.write, "claim-sizes")

    def start(self) -> None:
        """Start the writing thread."""
        self._workers.start()

    def stop(self) -> None:
        """Write what is queued, then end."""
        self._workers.stop()

    def tell(self, claim: JsonObject, status: JsonObject, node: str) -> None:
        """Have a claim's status changed; returns at once."""
        with self._lock:
            self._wanted[objects.key(claim)] = claim, status, node
        self._queue.add(objects.key(claim))

    def write(self, key: Key) -> None:
        """Write one claim's status; raises as the API does."""
        with self._lock:
            found = self._wanted.get(key)
        if found is None:
            return
        claim, status, node = found
        meta = {"uid": objects.uid(claim), "resourceVersion": objects.resource_version(claim)}
        body = {"metadata": meta, "status": status}
        try:
            self._api.patch(PERSISTENT_VOLUME_CLAIM, key.name, key.namespace, body, subresource="status")
        except (NotFound, Conflict):
            pass
        else:
            message = f"NodeExpandVolume succeeded for volume {objects.spec(claim).get('volumeName')}"
            self._recorder.event(claim, "Normal", "FileSystemResizeSuccessful", message, component=KUBELET, host=node)
        with self._lock:
            if self._wanted.get(key) is found:
                del self._wanted[key]
