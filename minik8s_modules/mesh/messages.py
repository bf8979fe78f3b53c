"""Resources as Envoy's messages, each with a version, a digest of what it says. Nothing else knows their Python types.

The types are gRPC's own build of Envoy's API (package xds-protos). They are imported where they are used by name in a
resource, too: what is not imported cannot be put into an ``Any``. It costs 36 MB, in this one daemon.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple

from google.protobuf import any_pb2, json_format

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.mesh.authorizations.filters import http_filter, network_filters
from minik8s_modules.mesh.authorizations.guards import Guard, guard_of
from minik8s_modules.mesh.crowds import (
    CROWD,
    FEW,
    Led,
    Member,
    alone,
    by_number,
    crowd_listener,
    crowd_routes,
    is_urgent,
    member,
    own_places,
)
from minik8s_modules.mesh.identities.securing import NOBODY, SOCKETS, Peers, inbound, secured
from minik8s_modules.mesh.mapping import Mapped, Port
from minik8s_modules.mesh.pacing import DRAIN_S, Paces
from minik8s_modules.mesh.resources import CLUSTER, ENDPOINTS, TYPES, Resource, version_of
from minik8s_modules.mesh.retained import Weights
from minik8s_modules.mesh.wording import weights_of

for _name in (
    "config.cluster.v3.cluster",
    "config.endpoint.v3.endpoint",
    "config.listener.v3.listener",
    "config.route.v3.route",
    "extensions.access_loggers.stream.v3.stream",
    "extensions.filters.http.fault.v3.fault",
    "extensions.filters.http.lua.v3.lua",
    "extensions.filters.http.on_demand.v3.on_demand",
    "extensions.filters.http.rbac.v3.rbac",
    "extensions.filters.http.router.v3.router",
    "extensions.filters.listener.http_inspector.v3.http_inspector",
    "extensions.filters.listener.tls_inspector.v3.tls_inspector",
    "extensions.filters.network.http_connection_manager.v3.http_connection_manager",
    "extensions.filters.network.rbac.v3.rbac",
    "extensions.filters.network.set_filter_state.v3.set_filter_state",
    "extensions.filters.network.tcp_proxy.v3.tcp_proxy",
    "extensions.http.early_header_mutation.header_mutation.v3.header_mutation",
    "extensions.matching.common_inputs.network.v3.network_inputs",
    "extensions.filters.listener.original_dst.v3.original_dst",
    "extensions.retry.host.previous_hosts.v3.previous_hosts",
    "extensions.router.cluster_specifiers.lua.v3.lua",
    "extensions.transport_sockets.raw_buffer.v3.raw_buffer",
    "extensions.transport_sockets.tls.v3.tls",
    "extensions.upstreams.http.v3.http_protocol_options",
):
    import_module(f"envoy.{_name}_pb2")
_ANY_PORT = 80


class Message(NamedTuple):
    """A resource ready to be sent; ``on_demand`` as there. ``by_tls`` is of a cluster with Pods that are called so."""

    name: str
    version: str
    place: str
    packed: any_pb2.Any
    on_demand: bool = False
    by_tls: bool = False


Snapshot = Mapping[str, Mapping[str, Message]]
"""What sidecars of a namespace are told: messages by type and name."""


_Messages = list[tuple[str, Message]]


class _Kept(NamedTuple):
    """What a port was packed as, and what of a crowd it is, if it is in one: what of it the others' messages say."""

    port: Port | Led
    member: Member | None
    messages: _Messages


class _Crowd(NamedTuple):
    """A crowd as it was packed; ``listening`` are those of whom the listener knows."""

    members: list[Member]
    listening: list[Member]
    listener: _Messages
    routes: _Messages


class Packer:
    """Packs what sidecars of one namespace are told; what has not changed is kept as it was packed."""

    def __init__(self, namespace: str, now: Callable[[], float] = time.monotonic) -> None:
        self._namespace = namespace
        self._kept: dict[str, _Kept] = {}
        self._paces: dict[int, Paces] = {}
        self.crowds: dict[int, list[str]] = {}
        """The places of Services that share a listener, by the number of their port."""
        self._packed_crowds: dict[int, _Crowd] = {}
        self._moved: dict[str, float] = {}
        self._peers = NOBODY
        self._now = now
        self.due_in_s: float | None = None
        """In how long to pack again, as something waits for its time; None for never."""

    def pack(self, mapped: Mapped, led: Iterable[Led] = (), peers: Peers = NOBODY) -> Snapshot:
        """Return a decision on the namespace as messages, ports that HTTPRoutes lead as those say."""
        ports: dict[str, Port | Led] = {**mapped.ports, **{each.place: each for each in led}}
        self.due_in_s = None
        others, self._peers = peers.other_addresses(self._peers), peers
        self.crowds = self._choose_crowds(own_places(self._namespace, ports))
        crowded = {place for of in self.crowds.values() for place in of}
        old = self._kept
        self._kept = {
            place: before
            if (before := old.get(place)) is not None
            and (before.port is port or before.port == port)
            and (before.member is not None) == (place in crowded)
            and not self._speaks_otherwise(port, others)
            else self._of_port(place, port, in_crowd=place in crowded)
            for place, port in ports.items()
        }
        self._note_moved(old)
        self._packed_crowds = {number: self._of_crowd(number, of) for number, of in self.crowds.items()}
        snapshot: dict[str, dict[str, Message]] = {kind: {} for kind in TYPES}
        of_ports = (kept.messages for kept in self._kept.values())
        of_crowds = ([*each.listener, *each.routes] for each in self._packed_crowds.values())
        for messages in (*self._of_moved(), *of_ports, *of_crowds):
            for kind, message in messages:
                snapshot[kind][message.name] = message
        return snapshot

    def _choose_crowds(self, places: Iterable[str]) -> dict[int, list[str]]:
        """Return which Services share a listener: many, and those that did until they are few and it was long ago.

        Envoy keeps the listeners of before for its drain time at each change to that, and back.
        """
        now_s = self._now()
        self._paces = {
            number: paces for number, paces in self._paces.items() if number in self.crowds or not paces.is_quiet(now_s)
        }
        found: dict[int, list[str]] = {}
        for number, of in by_number(places).items():
            form = self._paces.get(number, Paces()).form
            if number in self.crowds and len(of) <= FEW and (left_s := form.due_in_s(now_s)):
                self._wait(left_s)
                found[number] = of
            elif len(of) > (FEW if number in self.crowds else CROWD):
                found[number] = of
        for number in found.keys() ^ self.crowds.keys():
            self._paces.setdefault(number, Paces()).form.told(now_s)
        return found

    def _wait(self, left_s: float) -> None:
        self.due_in_s = min(left_s, self.due_in_s or left_s)

    def _note_moved(self, old: Mapping[str, _Kept]) -> None:
        """Note which ports have come into a crowd, or left one: connections that are open lead on as they did."""
        until_s = self._now() + DRAIN_S
        for place, kept in self._kept.items():
            before = old.get(place)
            if before is not None and (before.member is None) != (kept.member is None):
                self._moved[place] = until_s

    def _of_moved(self) -> Iterator[_Messages]:
        """Yield the clusters that ports had before, while Envoy ends the connections of their former listener."""
        now_s = self._now()
        self._moved = {place: due for place, due in self._moved.items() if due > now_s and place in self._kept}
        for place, until_s in self._moved.items():
            port, member_now = self._kept[place][:2]
            before = self._made(place, port, in_crowd=member_now is None)[0]
            yield self._secured(each for each in before if each.type_url in {CLUSTER, ENDPOINTS})
            self._wait(until_s - now_s)

    def _of_port(self, place: str, port: Port | Led, *, in_crowd: bool) -> _Kept:
        made, found = self._made(place, port, in_crowd=in_crowd)
        return _Kept(port, found, self._secured(made))

    def _made(self, place: str, port: Port | Led, *, in_crowd: bool) -> tuple[Sequence[Resource], Member | None]:
        """Return what is told of a port itself, and what of a crowd it is if it is in one."""
        if not in_crowd:
            return alone(self._namespace, place, port), None
        found = member(self._namespace, place, port)
        return found.resources, found._replace(resources=())

    def _speaks_otherwise(self, port: Port | Led, others: frozenset[tuple[str, str]] | None) -> bool:
        """Return whether Pods of a port may be among ``others``: addresses with Namespaces, None for all there are."""
        if not others:
            return others is None
        if not isinstance(port, Port):
            return any(namespace == port.namespace for namespace, _address in others)
        branches = [*port.branches, *filter(None, [port.mirror])]
        return any((self._namespace, each.ip) in others for branch in branches for each in branch.endpoints)

    def _secured(self, made: Iterable[Resource]) -> _Messages:
        return _packed(secured(made, self._peers, self._namespace))

    def _of_crowd(self, number: int, places: Iterable[str]) -> _Crowd:
        """Return what is told of a crowd: its routes as they are, its listener as it was while a change has to wait."""
        members = [each for place in places if (each := self._kept[place].member) is not None]
        old, now_s, pace = self._packed_crowds.get(number), self._now(), self._paces[number].listener
        is_new = old is None
        if old is None:
            old = _Crowd([], [], [], [])
        elif old.members == members == old.listening:
            return old
        listening, listener = old.listening, old.listener
        urgent = is_urgent(listening, members)
        # one that has become a crowd has no other listener any more
        left_s = 0.0 if is_new else pace.due_in_s(now_s, urgent=urgent)
        if listening != members and not left_s:
            pace.told(now_s, urgent=urgent)
            listening, listener = members, _packed([crowd_listener(self._namespace, number, members)])
        elif listening != members:
            self._wait(left_s)
        is_same = old.members == members
        routes = old.routes if is_same else _packed([crowd_routes(self._namespace, number, members)])
        return _Crowd(members, listening, listener, routes)


def _packed(made: Iterable[Resource]) -> _Messages:
    return [(each.type_url, message_of(each)) for each in made]


def message_of(resource: Resource) -> Message:
    """Return a resource packed."""
    packed: Any = json_format.ParseDict({"@type": resource.type_url, **resource.body}, any_pb2.Any())
    by_tls = SOCKETS in resource.body
    return Message(resource.name, version_of(resource.body), resource.place, packed, resource.on_demand, by_tls)


@lru_cache(maxsize=4096)
def inbound_message(mode: str, ipv6: bool, guard: Guard | None = None) -> Message:  # noqa: FBT001 - one of two listeners
    """Return the listener of what comes in to a Pod at its address of a family."""
    return message_of(inbound(mode, ipv6=ipv6, guard=guard))


def try_to_enforce(policy: JsonObject) -> None:
    """Make the filters that enforce one policy; raises whatever would end the streams of its Pods."""
    _try_to_enforce(guard_of([policy], [_ANY_PORT]))


@lru_cache(maxsize=4096)
def _try_to_enforce(guard: Guard) -> None:
    http = [http_filter(guard, "application")] if guard.http_ports else []
    for each in (*network_filters(guard), *http):
        json_format.ParseDict(each["typed_config"], any_pb2.Any())


def endpoints_in(message: Message) -> Weights:
    """Return the endpoints that a message has."""
    found = json_format.MessageToDict(message.packed, preserving_proto_field_name=True)
    return {(at.ip, at.port): weight for at, weight in weights_of({"endpoints": [], **found}).items()}
