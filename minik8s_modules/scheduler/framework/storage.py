"""Claims, persistent volumes, storage classes, and what CSI drivers say of themselves, as plugins ask for them.

The scheduler's informers keep one (``running/sources.py``), a question makes one of objects (``Storage.of``). What a
pod with a node is to get counts at once (*assumed*), before the API says so: until the object comes again by the watch,
or the assumption is taken back. Reads and writes come from several threads.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import TypeVar

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.api.storage.claims import class_of

K = TypeVar("K")


class Storage:
    """All of it, as the API has it and as it is assumed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._claims: dict[Key, JsonObject] = {}
        self._volumes: dict[str, JsonObject] = {}
        self._by_class: dict[str, dict[str, JsonObject]] = {}
        self._classes: dict[str, JsonObject] = {}
        self._limits: dict[str, dict[str, int]] = {}
        self._drivers: dict[str, JsonObject] = {}
        self._capacities: dict[Key, JsonObject] = {}
        self._assumed_claims: dict[Key, JsonObject] = {}
        self._assumed_volumes: dict[str, JsonObject] = {}

    @classmethod
    def of(
        cls,
        claims: Iterable[JsonObject] = (),
        volumes: Iterable[JsonObject] = (),
        classes: Iterable[JsonObject] = (),
        csi_nodes: Iterable[JsonObject] = (),
        csi_drivers: Iterable[JsonObject] = (),
        capacities: Iterable[JsonObject] = (),
    ) -> Storage:
        """Return a storage of these objects."""
        made = cls()
        for each in claims:
            made.take_claim(None, each)
        for each in volumes:
            made.take_volume(None, each)
        for each in classes:
            made.take_class(None, each)
        for each in csi_nodes:
            made.take_csi_node(None, each)
        for each in csi_drivers:
            made.take_csi_driver(None, each)
        for each in capacities:
            made.take_capacity(None, each)
        return made

    def take_claim(self, old: JsonObject | None, new: JsonObject | None) -> None:
        """Take a watch event of a claim; what was assumed of it ends."""
        key = objects.key(new or old or {})
        with self._lock:
            self._assumed_claims.pop(key, None)
            self._claims.pop(key, None)
            if new is not None:
                self._claims[key] = new

    def take_volume(self, old: JsonObject | None, new: JsonObject | None) -> None:
        """Take a watch event of a volume; what was assumed of it ends."""
        name = objects.name(new or old or {})
        with self._lock:
            self._assumed_volumes.pop(name, None)
            known = self._volumes.pop(name, None)
            if known is not None:
                self._by_class[class_of(known)].pop(name, None)
            if new is not None:
                self._volumes[name] = new
                self._by_class.setdefault(class_of(new), {})[name] = new

    def take_csi_node(self, old: JsonObject | None, new: JsonObject | None) -> None:
        """Take a watch event of a CSINode: how many volumes of each driver its node can have."""
        name = objects.name(new or old or {})
        drivers = objects.spec(new or {}).get("drivers") or []
        counts = {str(one.get("name")): (one.get("allocatable") or {}).get("count") for one in drivers}
        with self._lock:
            self._limits[name] = {driver: int(count) for driver, count in counts.items() if count is not None}

    def limits(self, node: str) -> Mapping[str, int]:
        """Return how many volumes of each driver a node can have; drivers that say nothing are left out."""
        return self._limits.get(node, {})

    def take_csi_driver(self, old: JsonObject | None, new: JsonObject | None) -> None:
        """Take a watch event of a CSIDriver."""
        with self._lock:
            self._drivers.pop(objects.name(new or old or {}), None)
            if new is not None:
                self._drivers[objects.name(new)] = new

    def take_capacity(self, old: JsonObject | None, new: JsonObject | None) -> None:
        """Take a watch event of a CSIStorageCapacity."""
        with self._lock:
            self._capacities.pop(objects.key(new or old or {}), None)
            if new is not None:
                self._capacities[objects.key(new)] = new

    def capacities(self, storage_class: JsonObject) -> list[JsonObject] | None:
        """Return what room there is for volumes of a class; None where its driver does not say it (storageCapacity)."""
        driver = self._drivers.get(str(storage_class.get("provisioner") or ""), {})
        if not objects.spec(driver).get("storageCapacity"):
            return None
        with self._lock:
            known = [*self._capacities.values()]
        return [one for one in known if one.get("storageClassName") == objects.name(storage_class)]

    def take_class(self, old: JsonObject | None, new: JsonObject | None) -> None:
        """Take a watch event of a storage class."""
        with self._lock:
            self._classes.pop(objects.name(new or old or {}), None)
            if new is not None:
                self._classes[objects.name(new)] = new

    def claim(self, key: Key) -> JsonObject | None:
        """Return a claim, with what is assumed of it."""
        return self._assumed_claims.get(key) or self._claims.get(key)

    def volume(self, name: str) -> JsonObject | None:
        """Return a persistent volume, with what is assumed of it."""
        return self._assumed_volumes.get(name) or self._volumes.get(name)

    def storage_class(self, name: str) -> JsonObject | None:
        """Return a storage class."""
        return self._classes.get(name)

    def volumes_of(self, name: str) -> list[JsonObject]:
        """Return the volumes of a class ("": of none), with what is assumed of them."""
        with self._lock:
            return [self._assumed_volumes.get(each, known) for each, known in self._by_class.get(name, {}).items()]

    def stored_claim(self, key: Key) -> JsonObject | None:
        """Return a claim as the API has it."""
        return self._claims.get(key)

    def stored_volume(self, name: str) -> JsonObject | None:
        """Return a volume as the API has it."""
        return self._volumes.get(name)

    def assume_claim(self, claim: JsonObject) -> None:
        """Count a claim as it is about to be written."""
        with self._lock:
            self._assumed_claims[objects.key(claim)] = claim

    def assume_volume(self, volume: JsonObject) -> None:
        """Count a volume as it is about to be written."""
        with self._lock:
            self._assumed_volumes[objects.name(volume)] = volume

    def forget(self, claims: Iterable[JsonObject], volumes: Iterable[JsonObject]) -> None:
        """Take assumptions back; those that others have made since stay."""
        with self._lock:
            _drop(self._assumed_claims, {objects.key(each): each for each in claims})
            _drop(self._assumed_volumes, {objects.name(each): each for each in volumes})


def _drop(known: dict[K, JsonObject], gone: Mapping[K, JsonObject]) -> None:
    for key, one in gone.items():
        if known.get(key) is one:
            del known[key]
