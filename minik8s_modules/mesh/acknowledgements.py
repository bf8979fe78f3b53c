"""Writes down whose sidecars send no requests any more to what a RollingUpdate withholds.

Every pilot does so for the sidecars that it serves; what is written of a batch stays true until the batch is over. Only
updates that withhold something are written to.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Conflict, NotFound
from minik8s_modules.api.kinds import ROLLING_UPDATE
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.mesh.identity import Sidecar
from minik8s_modules.mesh.mapping import Withholding
from minik8s_modules.runtime.controller import Context, Loop, Looping
from minik8s_modules.runtime.informers import BY_NAMESPACE

_TOGETHER_S = 0.1
"""How long is waited for the answers of other sidecars, so that fifty of them are one write."""


def batch_of(update: JsonObject) -> Withholding:
    """Return the batch at work of an update."""
    return Withholding(objects.name(update), objects.uid(update), objects.status(update).get("batch") or 0)


def decide_acknowledged(update: JsonObject, heard: Iterable[tuple[str, frozenset[Withholding]]]) -> JsonObject | None:
    """Return the status of an update with the Pods whose sidecars were heard; None if there is nothing new."""
    status = objects.status(update)
    batch = batch_of(update)
    if not status.get("withheld"):
        return None
    known = set(status.get("acknowledged") or [])
    found = {pod for pod, withholdings in heard if batch in withholdings} | known
    return {**status, "acknowledged": sorted(found)} if found != known else None


class Acknowledgements(Looping):
    """Writes them; a key is a namespace. Shared by threads."""

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._lock = threading.Lock()
        self._heard: dict[str, dict[str, frozenset[Withholding]]] = {}
        self._loop = Loop(context, "mesh-acknowledgements", self.sync, workers=1)
        self._updates = self._loop.watch(ROLLING_UPDATE, self._changed, BY_NAMESPACE)

    def settled(self, sidecar: Sidecar, withholdings: frozenset[Withholding]) -> None:
        """Note what the sidecar of a Pod has taken."""
        with self._lock:
            heard = self._heard.setdefault(sidecar.namespace, {})
            if heard.get(sidecar.pod, frozenset()) == withholdings:
                return
            if withholdings:
                heard[sidecar.pod] = withholdings
            else:
                del heard[sidecar.pod]
        if withholdings:
            self._loop.add_after(Key(sidecar.namespace, ""), _TOGETHER_S)

    def sync(self, key: Key) -> None:
        """Write what is new of a namespace."""
        updates = list(self._updates.by_index(BY_NAMESPACE, key.namespace))
        heard = self._current(key.namespace, updates)
        for update in updates if heard else ():
            status = decide_acknowledged(update, heard)
            if status is None:
                continue
            try:
                self._client.update(ROLLING_UPDATE, {**update, "status": status}, subresource="status")
            except (Conflict, NotFound):
                continue  # our copy is older than the object; its change brings the key back

    def _current(self, namespace: str, updates: Iterable[JsonObject]) -> list[tuple[str, frozenset[Withholding]]]:
        """Return what was heard of batches that are at work, and forget the rest."""
        batches = {batch_of(each) for each in updates if objects.status(each).get("withheld")}
        with self._lock:
            heard = self._heard.get(namespace, {})
            for pod in [pod for pod, withholdings in heard.items() if not withholdings & batches]:
                del heard[pod]
            if not heard:
                self._heard.pop(namespace, None)
            return list(heard.items())

    def _changed(self, old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
        namespace = objects.namespace(new if new is not None else old or {})
        with self._lock:
            heard = bool(self._heard.get(namespace))
        return [Key(namespace, "")] if heard else []
