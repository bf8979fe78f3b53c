"""Resources as Envoy's messages, each with a version, a digest of what it says. Nothing else knows their Python types.

The types are gRPC's own build of Envoy's API (package xds-protos). They are imported where they are used by name in a
resource, too: what is not imported cannot be put into an ``Any``. It costs 36 MB, in this one daemon.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any, NamedTuple

from google.protobuf import any_pb2, json_format

from minik8s_modules.mesh.crowds import Led, Member, alone, crowd, crowds_of, member
from minik8s_modules.mesh.mapping import Mapped, Port
from minik8s_modules.mesh.resources import TYPES, Resource, version_of

for _name in (
    "config.cluster.v3.cluster",
    "config.endpoint.v3.endpoint",
    "config.listener.v3.listener",
    "config.route.v3.route",
    "extensions.access_loggers.stream.v3.stream",
    "extensions.filters.http.fault.v3.fault",
    "extensions.filters.http.on_demand.v3.on_demand",
    "extensions.filters.http.router.v3.router",
    "extensions.filters.listener.http_inspector.v3.http_inspector",
    "extensions.filters.listener.tls_inspector.v3.tls_inspector",
    "extensions.filters.network.http_connection_manager.v3.http_connection_manager",
    "extensions.filters.network.set_filter_state.v3.set_filter_state",
    "extensions.filters.network.tcp_proxy.v3.tcp_proxy",
    "extensions.http.early_header_mutation.header_mutation.v3.header_mutation",
    "extensions.matching.common_inputs.network.v3.network_inputs",
    "extensions.retry.host.previous_hosts.v3.previous_hosts",
    "extensions.transport_sockets.tls.v3.tls",
    "extensions.upstreams.http.v3.http_protocol_options",
):
    import_module(f"envoy.{_name}_pb2")


class Message(NamedTuple):
    """A resource ready to be sent; ``on_demand`` as there."""

    name: str
    version: str
    place: str
    packed: any_pb2.Any
    on_demand: str = ""


Snapshot = Mapping[str, Mapping[str, Message]]
"""What sidecars of a namespace are told: messages by type and name."""


_Messages = list[tuple[str, Message]]


class _Kept(NamedTuple):
    """What a port was packed as, and what of a crowd it is, if it is in one: what of it the others' messages say."""

    port: Port | Led
    member: Member | None
    messages: _Messages


class Packer:
    """Packs what sidecars of one namespace are told; what has not changed is kept as it was packed."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._kept: dict[str, _Kept] = {}
        self._crowds: dict[int, list[str]] = {}
        self._packed_crowds: dict[int, tuple[list[Member], _Messages]] = {}

    def pack(self, mapped: Mapped, led: Iterable[Led] = ()) -> Snapshot:
        """Return a decision on the namespace as messages, ports that HTTPRoutes lead as those say."""
        ports: dict[str, Port | Led] = {**mapped.ports, **{each.place: each for each in led}}
        if ports.keys() != self._kept.keys():
            self._crowds = crowds_of(ports)
        crowded = {place for of in self._crowds.values() for place in of}
        old = self._kept
        self._kept = {
            place: before
            if (before := old.get(place)) is not None
            and (before.port is port or before.port == port)
            and (before.member is not None) == (place in crowded)
            else self._of_port(place, port, in_crowd=place in crowded)
            for place, port in ports.items()
        }
        self._packed_crowds = {number: self._of_crowd(number, of) for number, of in self._crowds.items()}
        snapshot: dict[str, dict[str, Message]] = {kind: {} for kind in TYPES}
        of_ports = (kept.messages for kept in self._kept.values())
        for messages in (*of_ports, *(found for _members, found in self._packed_crowds.values())):
            for kind, message in messages:
                snapshot[kind][message.name] = message
        return snapshot

    def _of_port(self, place: str, port: Port | Led, *, in_crowd: bool) -> _Kept:
        if not in_crowd:
            return _Kept(port, None, _packed(alone(self._namespace, place, port)))
        found = member(self._namespace, place, port)
        return _Kept(port, found._replace(resources=()), _packed(found.resources))

    def _of_crowd(self, number: int, places: Iterable[str]) -> tuple[list[Member], _Messages]:
        members = [each for place in places if (each := self._kept[place].member) is not None]
        old = self._packed_crowds.get(number)
        if old is not None and old[0] == members:
            return old
        return members, _packed(crowd(self._namespace, number, members))


def _packed(made: Iterable[Resource]) -> _Messages:
    return [(each.type_url, message_of(each)) for each in made]


def message_of(resource: Resource) -> Message:
    """Return a resource packed."""
    packed: Any = json_format.ParseDict({"@type": resource.type_url, **resource.body}, any_pb2.Any())
    return Message(resource.name, version_of(resource.body), resource.place, packed, resource.on_demand)
