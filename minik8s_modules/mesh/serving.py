"""Keeps the catalogue: decides on the namespaces that have sidecars, at each change in them."""

from __future__ import annotations

from collections.abc import Iterable

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.mesh.catalogue import Catalogue, Configuration
from minik8s_modules.mesh.copies import Copies
from minik8s_modules.mesh.gateways.controller import Gateways
from minik8s_modules.mesh.mapping import decide_mapping
from minik8s_modules.mesh.messages import Packer
from minik8s_modules.runtime.controller import Context, Loop, Looping


class ServingController(Looping):
    """Keeps it; a key is a namespace. Every pilot has one. Scopes with a slash are those of Gateways."""

    def __init__(self, context: Context) -> None:
        self._loop = Loop(context, "mesh-serving", self.sync, workers=1)
        self.catalogue = Catalogue(self._ask)
        self.gateways = Gateways(context, self.catalogue)
        self._packers: dict[str, Packer] = {}
        self._copies = Copies(self._loop)
        self._copies.listen(self._touched, self._touched)

    def sync(self, key: Key) -> None:
        """Decide on a namespace, or forget it when it has no sidecars any more."""
        if not self.catalogue.has_sidecars(key.namespace):
            self._packers.pop(key.namespace, None)
            return
        mapped = decide_mapping(self._copies.of(key.namespace))
        packer = self._packers.setdefault(key.namespace, Packer(key.namespace))
        self.catalogue.put(key.namespace, Configuration(packer.pack(mapped), mapped.split_by, mapped.withholdings))

    def _ask(self, scope: str) -> None:
        if "/" in scope:
            self.gateways.asked()
        else:
            self._loop.add(Key(scope, ""))

    def _touched(self, old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
        namespace = objects.namespace(new if new is not None else old or {})
        return [Key(namespace, "")] if namespace in self._packers or self.catalogue.has_sidecars(namespace) else []
