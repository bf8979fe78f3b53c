"""The objects that the mesh is made of, by namespace."""

from __future__ import annotations

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import ENDPOINT_SLICE, ROLLING_UPDATE, SERVICE, SUBSET, VIRTUAL_SERVICE
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.mesh.mapping import Declared
from minik8s_modules.runtime.controller import KeysOf, Loop
from minik8s_modules.runtime.informers import BY_NAMESPACE


class Copies:
    """One loop's view of them."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        kinds = (SERVICE, ENDPOINT_SLICE, VIRTUAL_SERVICE, SUBSET, ROLLING_UPDATE)
        self._services, self._slices, self._virtual, self._subsets, self._updates = (
            loop.reads(kind, BY_NAMESPACE) for kind in kinds
        )

    def listen(self, keys_of: KeysOf, of_virtual_services: KeysOf) -> None:
        """Queue at every change what these return, the second for VirtualServices."""
        self._loop.watch(VIRTUAL_SERVICE, of_virtual_services, BY_NAMESPACE)
        for kind in (SERVICE, ENDPOINT_SLICE, SUBSET, ROLLING_UPDATE):
            self._loop.watch(kind, keys_of, BY_NAMESPACE)

    def of(self, namespace: str) -> Declared:
        """Return those of a namespace."""
        return Declared(
            list(self._services.by_index(BY_NAMESPACE, namespace)),
            list(self._slices.by_index(BY_NAMESPACE, namespace)),
            self.virtual_services(namespace),
            list(self._subsets.by_index(BY_NAMESPACE, namespace)),
            list(self._updates.by_index(BY_NAMESPACE, namespace)),
        )

    def virtual_services(self, namespace: str) -> list[JsonObject]:
        """Return the VirtualServices of a namespace."""
        return list(self._virtual.by_index(BY_NAMESPACE, namespace))

    def split_namespaces(self) -> set[str]:
        """Return the namespaces that have VirtualServices."""
        return {objects.namespace(each) for each in self._virtual.list()}
