"""Resources as Envoy's messages, each with a version, a digest of what it says. Nothing else knows their Python types.

The types are gRPC's own build of Envoy's API (package xds-protos). They are imported where they are used by name in a
resource, too: what is not imported cannot be put into an ``Any``. It costs 36 MB, in this one daemon.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any, NamedTuple, Protocol

from google.protobuf import any_pb2, json_format

from minik8s_modules.mesh.mapping import Mapped, Port
from minik8s_modules.mesh.resources import TYPES, Resource, resources, version_of

for _name in (
    "config.cluster.v3.cluster",
    "config.endpoint.v3.endpoint",
    "config.listener.v3.listener",
    "config.route.v3.route",
    "extensions.access_loggers.stream.v3.stream",
    "extensions.filters.http.fault.v3.fault",
    "extensions.filters.http.router.v3.router",
    "extensions.filters.listener.http_inspector.v3.http_inspector",
    "extensions.filters.listener.tls_inspector.v3.tls_inspector",
    "extensions.filters.network.http_connection_manager.v3.http_connection_manager",
    "extensions.filters.network.tcp_proxy.v3.tcp_proxy",
    "extensions.retry.host.previous_hosts.v3.previous_hosts",
    "extensions.transport_sockets.tls.v3.tls",
    "extensions.upstreams.http.v3.http_protocol_options",
):
    import_module(f"envoy.{_name}_pb2")


class Message(NamedTuple):
    """A resource ready to be sent."""

    name: str
    version: str
    place: str
    packed: any_pb2.Any


Snapshot = Mapping[str, Mapping[str, Message]]
"""What sidecars of a namespace are told: messages by type and name."""


class Led(Protocol):
    """A port that is told of otherwise than a Service's own; equal to one that gives the same resources."""

    @property
    def place(self) -> str:
        """Return ADDRESS:PORT."""

    def resources(self) -> list[Resource]:
        """Return what sidecars are told of it."""


_Kept = tuple[Port | Led, list[tuple[str, Message]]]


class Packer:
    """Packs what sidecars of one namespace are told; what has not changed is kept as it was packed."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._kept: dict[str, _Kept] = {}

    def pack(self, mapped: Mapped, led: Iterable[Led] = ()) -> Snapshot:
        """Return a decision on the namespace as messages, ports that HTTPRoutes lead as those say."""
        ports: dict[str, Port | Led] = {**mapped.ports, **{each.place: each for each in led}}
        self._kept = {place: self._of_port(place, port) for place, port in ports.items()}
        snapshot: dict[str, dict[str, Message]] = {kind: {} for kind in TYPES}
        for _port, messages in self._kept.values():
            for kind, message in messages:
                snapshot[kind][message.name] = message
        return snapshot

    def _of_port(self, place: str, port: Port | Led) -> _Kept:
        old = self._kept.get(place)
        if old is not None and old[0] == port:
            return old
        made = resources(self._namespace, place, port) if isinstance(port, Port) else port.resources()
        return port, [(each.type_url, message_of(each)) for each in made]


def message_of(resource: Resource) -> Message:
    """Return a resource packed."""
    packed: Any = json_format.ParseDict({"@type": resource.type_url, **resource.body}, any_pb2.Any())
    return Message(resource.name, version_of(resource.body), resource.place, packed)
