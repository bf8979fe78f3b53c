"""Writes down what was decided: the SidecarMapping of a namespace, and conditions of its VirtualServices.

Only the pilot that holds the Lease does. A namespace without VirtualServices has no SidecarMapping.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from minik8s_modules.api import objects
from minik8s_modules.api.errors import AlreadyExists, Conflict, NotFound
from minik8s_modules.api.kinds import SIDECAR_MAPPING, VIRTUAL_SERVICE
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.base.clock import rfc3339
from minik8s_modules.mesh.copies import Copies
from minik8s_modules.mesh.gateways.following import RouteCopies
from minik8s_modules.mesh.mapping import ACCEPTED, RESOLVED, Mapped, Memory, Verdict, decide_mapping, mapping_spec
from minik8s_modules.runtime.controller import Context, Loop, Looping

MAPPING = "mesh"
"""The name of the SidecarMapping that the pilot keeps in a namespace."""
MANAGED_BY, PILOT = "app.kubernetes.io/managed-by", "minik8s-pilot"
"""The label, and its value, of what the pilot keeps; one without it is somebody's own, and is left alone."""
_TAKEN = f"it has no label {MANAGED_BY}: {PILOT}, so the pilot does not write shares of VirtualServices into it"
_AGAIN_S = 0.1


def decide_status(verdict: Verdict, status: JsonObject, now: datetime) -> JsonObject:
    """Return the status of a VirtualService: Accepted and ResolvedRefs, as Gateway API's routes have them."""
    before = status.get("conditions") or ()
    found = ((ACCEPTED, verdict.refused), (RESOLVED, verdict.broken))
    told = ((kind, "False" if why else "True", why or (kind, "")) for kind, why in found)
    return {"conditions": [objects.condition_since(*each, before, rfc3339(now)) for each in told]}


class StatusController(Looping):
    """Keeps them; a key is a namespace."""

    def __init__(self, context: Context, routes: RouteCopies) -> None:
        self._context = context
        self._routes = routes
        self._loop = Loop(context, "mesh-statuses", self.sync, workers=1)
        self._memories: dict[str, Memory] = {}
        self._copies = Copies(self._loop)
        self._mappings = self._loop.reads(SIDECAR_MAPPING)
        self._copies.listen(self._of_split, _own)
        self._loop.watch(SIDECAR_MAPPING, _own)

    def start(self) -> None:
        """Begin when the copies are complete; returns at once."""
        self._routes.follow(self._led_otherwise)
        super().start()

    def stop(self) -> None:
        """End; waits for the syncs under way."""
        self._routes.leave(self._led_otherwise)
        super().stop()

    def sync(self, key: Key) -> None:
        """Decide, and write what differs.

        Raises:
            StatusError: the API refused; it is tried again.
        """
        if not self._routes.ready:
            self._loop.add_after(key, _AGAIN_S)
            return
        declared = self._copies.of(key.namespace)
        declared = declared._replace(led=self._routes.get().producers(declared, key.namespace))
        if not declared.virtual_services:
            self._memories.pop(key.namespace, None)
            self._keep(key.namespace, None)
            return
        mapped = decide_mapping(declared, self._memories.setdefault(key.namespace, Memory()))
        self._keep(key.namespace, mapped)
        now = self._context.clock.now()
        for each in declared.virtual_services:
            self._tell(each, decide_status(mapped.verdicts[objects.name(each)], objects.status(each), now))

    def _keep(self, namespace: str, mapped: Mapped | None) -> None:
        old, client = self._mappings.get(namespace, MAPPING), self._context.client
        try:
            if old is not None and objects.labels(old).get(MANAGED_BY) != PILOT:
                old = client.get(SIDECAR_MAPPING, MAPPING, namespace)  # our copy does not say who wrote it
                if not _is_ours(old):
                    if mapped is not None:
                        self._context.recorder.event(old, "Warning", "NameTaken", _TAKEN)
                    return
            if mapped is None:
                if old is not None:
                    client.delete(SIDECAR_MAPPING, MAPPING, namespace)
                return
            spec = mapping_spec(mapped)
            if old is None:
                meta = {"name": MAPPING, "namespace": namespace, "labels": {MANAGED_BY: PILOT}}
                client.create(SIDECAR_MAPPING, {"metadata": meta, "spec": spec})
            elif objects.spec(old) != spec or objects.labels(old).get(MANAGED_BY) != PILOT:
                meta = {**objects.metadata(old), "labels": {**objects.labels(old), MANAGED_BY: PILOT}}
                client.update(SIDECAR_MAPPING, {**old, "metadata": meta, "spec": spec})
        except (AlreadyExists, Conflict, NotFound):
            return  # our copy is older than the object; its change brings the key back

    def _tell(self, virtual: JsonObject, status: JsonObject) -> None:
        if objects.status(virtual) == status or objects.is_deleting(virtual):
            return
        try:
            self._context.client.update(VIRTUAL_SERVICE, {**virtual, "status": status}, subresource="status")
        except (Conflict, NotFound):
            return  # likewise

    def _led_otherwise(self) -> None:
        for each in self._copies.split_namespaces():
            self._loop.add(Key(each, MAPPING))

    def _of_split(self, old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
        """Queue a namespace that has VirtualServices: what else changes in others is written nowhere."""
        return [key for key in _own(old, new) if self._copies.virtual_services(key.namespace)]


def _is_ours(mapping: JsonObject) -> bool:
    """Return whether a mapping is the pilot's: by its label, or, of a release that set none, by who alone wrote it."""
    writers = {each.get("manager") for each in objects.metadata(mapping).get("managedFields") or []}
    return objects.labels(mapping).get(MANAGED_BY) == PILOT or writers == {PILOT}


def _own(old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
    return [Key(objects.namespace(new if new is not None else old or {}), MAPPING)]
