"""Keeps Gateways: each pilot has their Envoys told, and the one that leads writes conditions down.

It begins when all four definitions are there, and is one key: what is attached to a Gateway may be anywhere. A Secret
is asked for by its name, which a Gateway must have named; its successor is seen within ``_AGAIN_S``.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Conflict, Forbidden, Invalid, NotFound
from minik8s_modules.api.kind import Kind
from minik8s_modules.api.kinds import ENDPOINT_SLICE, NAMESPACE, ROLLING_UPDATE, SECRET, SERVICE
from minik8s_modules.api.network.gateway_api import GATEWAY_KINDS, GatewayKinds, is_ours, name_of_parts
from minik8s_modules.api.network.references import secrets_of
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.mesh.catalogue import Catalogue, Configuration
from minik8s_modules.mesh.gateways.certificates import Certificate, certificate_of
from minik8s_modules.mesh.gateways.deciding import Decision, Declared, decide_gateways
from minik8s_modules.mesh.gateways.parents import is_within
from minik8s_modules.mesh.gateways.statuses import class_status, gateway_status, route_status
from minik8s_modules.mesh.identities.peers import PeerCopies
from minik8s_modules.mesh.identities.securing import Peers, secured
from minik8s_modules.mesh.mapping import Declared as SpaceDeclared
from minik8s_modules.mesh.messages import Message, Snapshot, message_of
from minik8s_modules.mesh.resources import TYPES, Resource
from minik8s_modules.mesh.retained import Services
from minik8s_modules.runtime.controller import Context, Loop

_AGAIN_S, _SOON_S = 30.0, 0.1
_KEY = Key("", "gateways")


class Gateways:
    """Begins and ends with the definitions of the four kinds. Shared by threads.

    Args:
        context: of the process.
        catalogue: what Envoys are told from.
        peers: who speaks TLS.
    """

    def __init__(self, context: Context, catalogue: Catalogue, peers: PeerCopies) -> None:
        self._context = context
        self._catalogue = catalogue
        self._peers = peers
        peers.follow(lambda _namespaces: self.asked())
        self._lock = threading.Lock()
        self._known: dict[str, Kind] = {}
        self._keeper: _Keeper | None = None
        self._leads = False

    def start(self) -> None:
        """Begin to look for the definitions."""
        self._context.informers.custom.follow(self._changed)

    def stop(self) -> None:
        """End."""
        with self._lock:
            self._end()

    def lead(self, *, leads: bool) -> None:
        """Write conditions from now on, or no more."""
        with self._lock:
            self._leads = leads
            if self._keeper is not None:
                self._keeper.lead(leads=leads)

    def asked(self) -> None:
        """Decide again: an Envoy has come that nobody has decided for."""
        with self._lock:
            if self._keeper is not None:
                self._keeper.again()

    def _changed(self, kind: Kind, present: bool) -> None:  # noqa: FBT001 - a follower's signature
        wanted = {each.kind for each in GATEWAY_KINDS}
        if kind.group != GATEWAY_KINDS.gateways.group or kind.kind not in wanted:
            return
        with self._lock:
            if present:
                self._known[kind.kind] = kind
            else:
                self._known.pop(kind.kind, None)
                self._context.informers.forget(kind)
            self._end()
            if self._known.keys() == wanted:
                kinds = GatewayKinds(*(self._known[each.kind] for each in GATEWAY_KINDS))
                self._keeper = _Keeper(self._context, self._catalogue, self._peers, kinds)
                self._keeper.lead(leads=self._leads)
                self._keeper.start()

    def _end(self) -> None:
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.stop()


class _Packed(NamedTuple):
    body: JsonObject
    message: Message


class _Keeper:
    """The work while the definitions are there."""

    def __init__(self, context: Context, catalogue: Catalogue, peers: PeerCopies, kinds: GatewayKinds) -> None:
        self._context = context
        self._catalogue = catalogue
        self._peers = peers
        self._kinds = kinds
        self._leads = False
        self._told: set[str] = set()
        self._packed: dict[tuple[str, str], _Packed] = {}
        self._loop = Loop(context, "mesh-gateways", self._sync, workers=1)
        self._classes, self._gateways, self._routes, self._grants = (self._loop.watch(each, _one) for each in kinds)
        self._namespaces = self._loop.watch(NAMESPACE, self._if_any)
        self._services, self._slices, self._updates = (
            self._loop.watch(each, self._if_any) for each in (SERVICE, ENDPOINT_SLICE, ROLLING_UPDATE)
        )

    def start(self) -> None:
        """Begin."""
        self._loop.start()

    def stop(self) -> None:
        """End; what was told stays."""
        self._loop.stop()

    def again(self) -> None:
        """Decide soon."""
        self._loop.add(_KEY)

    def lead(self, *, leads: bool) -> None:
        """Write conditions, or do not."""
        self._leads = leads
        self.again()

    def _if_any(self, _old: JsonObject | None, _new: JsonObject | None) -> Iterable[Key]:
        return [_KEY] if self._gateways.list() or any(map(is_within, self._routes.list())) else []

    def _sync(self, _key: Key) -> None:
        """Decide, tell, and write what differs.

        Raises:
            StatusError: the API refused; it is tried again.
        """
        peers = self._peers.get()
        if peers is None:
            self._loop.add_after(_KEY, _SOON_S)
            return
        declared = self._declared()
        decision = decide_gateways(declared)
        parts = SpaceDeclared(declared.services, declared.slices, rolling_updates=declared.updates)
        self._tell(decision, Services([parts]), peers)
        if self._leads:
            self._write(declared, decision)
        if declared.certificates:
            self._loop.add_after(_KEY, _AGAIN_S)

    def _declared(self) -> Declared:
        gateways = self._gateways.list()
        return Declared(
            self._classes.list(),
            gateways,
            self._routes.list(),
            self._grants.list(),
            self._services.list(),
            self._slices.list(),
            self._updates.list(),
            {objects.name(each): objects.labels(each) for each in self._namespaces.list()},
            {key: self._certificate(key) for key in self._secrets(gateways)},
        )

    def _secrets(self, gateways: Iterable[JsonObject]) -> set[Key]:
        ours = {objects.name(each) for each in self._classes.list() if is_ours(each)}
        found = (each for each in gateways if objects.spec(each)["gatewayClassName"] in ours)
        return secrets_of(found, self._grants.list())

    def _certificate(self, key: Key) -> Certificate | str:
        try:
            return certificate_of(self._context.client.get(SECRET, key.name, key.namespace))
        except NotFound:
            return f"there is no Secret {key}"
        except objects.MISREAD as error:
            return f"Secret {key} cannot be read: {error!r:.200}"
        except Forbidden:
            # an API server that has not heard of the Gateway yet, or no more of the grant
            return f"Secret {key} may not be read for it (yet)"

    def _tell(self, decision: Decision, services: Services, peers: Peers) -> None:
        scopes = {f"{key.namespace}/{name_of_parts(key.name)}": (key, told) for key, told in decision.told.items()}
        packed: dict[tuple[str, str], _Packed] = {}
        for scope, (key, told) in scopes.items():
            snapshot = self._snapshot(scope, secured(told, peers, key.namespace), packed)
            self._catalogue.put(scope, Configuration(snapshot, {str(key): key.name}, services=services, peers=peers))
        for scope in self._told - scopes.keys():
            self._catalogue.put(scope, Configuration({kind: {} for kind in TYPES}, {}))
        self._told, self._packed = set(scopes), packed

    def _snapshot(self, scope: str, resources: list[Resource], packed: dict[tuple[str, str], _Packed]) -> Snapshot:
        snapshot: dict[str, dict[str, Message]] = {kind: {} for kind in TYPES}
        for each in resources:
            place = (scope, f"{each.type_url} {each.name}")
            old = self._packed.get(place)
            made = old if old is not None and old.body == each.body else _Packed(each.body, message_of(each))
            packed[place] = made
            snapshot[each.type_url][each.name] = made.message
        return snapshot

    def _write(self, declared: Declared, decision: Decision) -> None:
        now = self._context.clock.now()
        for each in declared.classes:
            if is_ours(each):
                self._put(self._kinds.classes, each, class_status(each, now))
        for each in declared.gateways:
            verdict = decision.gateways.get(objects.key(each))
            if verdict is not None:
                self._put(self._kinds.gateways, each, gateway_status(each, verdict, now))
        for each in declared.routes:
            decided = decision.routes.get(objects.key(each))
            if decided is not None or objects.status(each).get("parents"):
                self._put(self._kinds.routes, each, route_status(each, decided, now))

    def _put(self, kind: Kind, obj: JsonObject, status: JsonObject) -> None:
        if objects.status(obj) == status or objects.is_deleting(obj):
            return
        try:
            self._context.client.update(kind, {**obj, "status": status}, subresource="status")
        except (Conflict, NotFound):
            return  # our copy is older than the object; its change brings the key back
        except Invalid as error:  # the others are to have theirs all the same
            self._context.recorder.event(obj, "Warning", "StatusRefused", f"its conditions are older ones: {error}")


def _one(_old: JsonObject | None, _new: JsonObject | None) -> Iterable[Key]:
    return [_KEY]
