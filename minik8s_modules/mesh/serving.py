"""Keeps the catalogue: decides on the namespaces that have sidecars, at each change in them.

A namespace's sidecars are also told of Services of other namespaces whose requests HTTPRoutes lead: what it was decided
from is noted, so that changes there are changes of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.network.authorization import needs_http
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.mesh.authorizations.following import PolicyCopies
from minik8s_modules.mesh.authorizations.guards import NO_POLICIES, Policies, http_ports_of
from minik8s_modules.mesh.catalogue import Catalogue, Configuration
from minik8s_modules.mesh.copies import Copies
from minik8s_modules.mesh.crowds import owners
from minik8s_modules.mesh.gateways.controller import Gateways
from minik8s_modules.mesh.gateways.following import RouteCopies
from minik8s_modules.mesh.gateways.meshing import decide_led
from minik8s_modules.mesh.identities.peers import PeerCopies
from minik8s_modules.mesh.mapping import Memory, decide_mapping
from minik8s_modules.mesh.messages import Packer, try_to_enforce
from minik8s_modules.mesh.retained import Services
from minik8s_modules.runtime.controller import Context, Loop, Looping

_AGAIN_S = 0.1


class _Space(NamedTuple):
    """What is kept of a namespace, so that a change costs little."""

    packer: Packer
    memory: Memory


class ServingController(Looping):
    """Keeps it; a key is a namespace. Every pilot has one. Scopes with a slash are those of Gateways."""

    def __init__(self, context: Context) -> None:
        self._loop = Loop(context, "mesh-serving", self.sync, workers=1)
        self.catalogue = Catalogue(self._ask)
        self.peers = PeerCopies(context)
        self.peers.follow(self._speak_otherwise)
        self.gateways = Gateways(context, self.catalogue, self.peers)
        self.routes = RouteCopies(context)
        self.routes.follow(self._others)
        self.policies = PolicyCopies(context, try_to_enforce)
        self.policies.follow(self._speak_otherwise)
        self._spaces: dict[str, _Space] = {}
        self._read: dict[str, set[str]] = {}
        self._copies = Copies(self._loop)
        self._copies.listen(self._touched, self._touched)

    def start(self) -> None:
        """Begin when the copies are complete; returns at once."""
        self.routes.start()
        self.peers.start()
        self.policies.start()
        super().start()

    def stop(self) -> None:
        """End; waits for the syncs under way."""
        self.routes.stop()
        self.peers.stop()
        self.policies.stop()
        super().stop()

    def sync(self, key: Key) -> None:
        """Decide on a namespace, or forget it when it has no sidecars any more."""
        space = key.namespace
        if not self.catalogue.has_sidecars(space):
            self._spaces.pop(space, None)
            self._read.pop(space, None)
            return
        peers = self.peers.get()
        # while it is not known who is strict, and who may call whom, nobody is told anything
        if peers is None or not self.routes.ready or not self.policies.ready:
            self._loop.add_after(key, _AGAIN_S)
            return
        routes = self.routes.get()
        # noted before anything is read: what changes meanwhile is decided again
        self._read[space] = routes.namespaces(space)
        declared = {each: self._copies.of(each) for each in self._read[space]}
        own, led = declared[space], []
        if routes.routes:
            own = own._replace(led=routes.producers(own, space))
            led = decide_led(routes, space, [*declared.values()])
        kept = self._spaces.setdefault(space, _Space(Packer(space), Memory()))
        mapped = decide_mapping(own, kept.memory)
        packed = kept.packer.pack(mapped, led, peers)
        if kept.packer.due_in_s is not None:
            self._loop.add_after(key, kept.packer.due_in_s)
        behind = {**mapped.split_by, **{each.place: each.led_by for each in led}}
        behind |= owners(kept.packer.crowds, {**mapped.ports, **{each.place: each for each in led}}, behind)
        services = Services([*declared.values()])
        policies = self._policies(space, own.slices)
        self.catalogue.put(space, Configuration(packed, behind, mapped.withholdings, services, peers, policies))

    def _policies(self, space: str, slices: Iterable[JsonObject]) -> Policies:
        declared = self.policies.get().get(space)
        if not declared:
            return NO_POLICIES
        return Policies(declared, http_ports_of(slices) if needs_http(declared) else {})

    def _ask(self, scope: str) -> None:
        if "/" in scope:
            self.gateways.asked()
        else:
            self._loop.add(Key(scope, ""))

    def _others(self) -> None:
        for each in {*list(self._spaces), *self.catalogue.awaited()}:
            if "/" not in each:
                self._loop.add(Key(each, ""))

    def _speak_otherwise(self, namespaces: Set[str] | None) -> None:
        if namespaces is None:
            self._others()
        for each in namespaces or ():
            for key in self._readers(each):
                self._loop.add(key)

    def _touched(self, old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
        return self._readers(objects.namespace(new if new is not None else old or {}))

    def _readers(self, namespace: str) -> list[Key]:
        """Return the namespaces that are decided on by what is in one."""
        found = {each for each, read in list(self._read.items()) if namespace in read}
        if namespace in self._spaces or self.catalogue.has_sidecars(namespace):
            found.add(namespace)
        return [Key(each, "") for each in found]
