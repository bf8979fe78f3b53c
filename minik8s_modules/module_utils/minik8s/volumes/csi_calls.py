"""What a node asks of CSI drivers and their registrars: gRPC over Unix sockets.

A registrar (kubernetes-csi/node-driver-registrar) puts a socket into ``plugins_registry`` and tells by it where its
driver listens. Nothing is remembered of that: it is asked again whenever a driver is called, so that a driver that
moved, or went, is never called where it was. Sources: ``csi.proto`` 1.11, kubelet ``pluginregistration/v1/api.proto``.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ..core.faults import KeyFault
from ..core.paths import PLUGINS_REGISTRY
from ..rpc import http2
from ..rpc.protobuf import Field, Malformed, Message, decode, encode

REGISTER_S = 2.0  # a registrar answers from memory
CALL_S = (
    15.0  # a mount over the network took 1.2 s at load 35; the call is repeated, and drivers take it up where it was
)
CODES = (  # of gRPC, by their numbers
    "OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists", "PermissionDenied",
    "ResourceExhausted", "FailedPrecondition", "Aborted", "OutOfRange", "Unimplemented", "Internal", "Unavailable",
    "DataLoss", "Unauthenticated",
)  # fmt: skip
STAGES, STATS, EXPANDS, GROUPS = 1, 2, 3, 6  # NodeServiceCapability.RPC.Type

_TOPOLOGY: Message = {"segments": Field(1, "map")}
_MOUNT: Message = {"fs_type": Field(1, "str"), "mount_flags": Field(2, "str", many=True), "group": Field(3, "str")}
_CAPABILITY: Message = {"mount": Field(2, _MOUNT), "access_mode": Field(3, {"mode": Field(1, "int")})}
_USAGE: Message = {
    "available": Field(1, "int"), "total": Field(2, "int"), "used": Field(3, "int"), "unit": Field(4, "int"),
}  # fmt: skip
_NOTHING: Message = {}
_VOLUME: Message = {"volume_id": Field(1, "str")}
_PAIRS: Mapping[str, tuple[Message, Message]] = {
    "pluginregistration.Registration/GetInfo": (
        _NOTHING,
        {"type": Field(1, "str"), "name": Field(2, "str"), "endpoint": Field(3, "str")},
    ),
    "pluginregistration.Registration/NotifyRegistrationStatus": (
        {"plugin_registered": Field(1, "bool"), "error": Field(2, "str")},
        _NOTHING,
    ),
    "csi.v1.Node/NodeGetInfo": (
        _NOTHING,
        {"node_id": Field(1, "str"), "max_volumes_per_node": Field(2, "int"), "topology": Field(3, _TOPOLOGY)},
    ),
    "csi.v1.Node/NodeGetCapabilities": (
        _NOTHING,
        {"capabilities": Field(1, {"rpc": Field(1, {"type": Field(1, "int")})}, many=True)},
    ),
    "csi.v1.Node/NodeStageVolume": (
        {
            **_VOLUME,
            "publish_context": Field(2, "map"),
            "staging_target_path": Field(3, "str"),
            "volume_capability": Field(4, _CAPABILITY),
            "secrets": Field(5, "map"),
            "volume_context": Field(6, "map"),
        },
        _NOTHING,
    ),
    "csi.v1.Node/NodeUnstageVolume": ({**_VOLUME, "staging_target_path": Field(2, "str")}, _NOTHING),
    "csi.v1.Node/NodePublishVolume": (
        {
            **_VOLUME,
            "publish_context": Field(2, "map"),
            "staging_target_path": Field(3, "str"),
            "target_path": Field(4, "str"),
            "volume_capability": Field(5, _CAPABILITY),
            "readonly": Field(6, "bool"),
            "secrets": Field(7, "map"),
            "volume_context": Field(8, "map"),
        },
        _NOTHING,
    ),
    "csi.v1.Node/NodeUnpublishVolume": ({**_VOLUME, "target_path": Field(2, "str")}, _NOTHING),
    "csi.v1.Node/NodeExpandVolume": (
        {
            **_VOLUME,
            "volume_path": Field(2, "str"),
            "capacity_range": Field(3, {"required_bytes": Field(1, "int")}),
            "staging_target_path": Field(4, "str"),
            "volume_capability": Field(5, _CAPABILITY),
            "secrets": Field(6, "map"),
        },
        {"capacity_bytes": Field(1, "int")},
    ),
    "csi.v1.Node/NodeGetVolumeStats": (
        {**_VOLUME, "volume_path": Field(2, "str"), "staging_target_path": Field(3, "str")},
        {"usage": Field(1, _USAGE, many=True)},
    ),
}


class Refused(Exception):
    """A driver or registrar did not do what it was asked: its own words, or why it cannot be reached."""


class Plugin(NamedTuple):
    """What a registrar tells: its socket, the driver's name, and where the driver listens."""

    path: str
    name: str
    endpoint: str


calls: list[dict[str, Any]] = []
"""What drivers were asked since somebody took note: ``driver``, ``method``, ``code`` of gRPC, ``seconds``."""


class Caller:
    """One connection to a driver or registrar; calls to a driver of a ``name`` are noted."""

    def __init__(self, path: str, timeout_s: float, name: str = "") -> None:
        self._timeout_s = timeout_s
        self._name = name
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(timeout_s)
            sock.connect(path)
        except OSError as error:
            sock.close()
            raise Refused(f"nothing answers at {path}: {error.strerror or error}") from error
        self._channel = http2.Channel(sock, "localhost")

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def call(self, method: str, **request: Any) -> dict[str, Any]:
        """Return the answer to a call of ``_PAIRS``.

        Raises:
            Refused: it said no, or nothing in time.
        """
        asked, answered = _PAIRS[method]
        begun_s, code = time.monotonic(), "OK"
        try:
            return decode(answered, self._channel.call(f"/{method}", encode(asked, request), self._timeout_s))
        except http2.CallFailed as error:
            code = CODES[error.code] if 0 < error.code < len(CODES) else "Unknown"
            raise Refused(f"rpc error: code = {code} desc = {error.details}") from error
        except (http2.Broken, Malformed) as error:
            code = "Unavailable"
            raise Refused(f"{method.rpartition('/')[2]}: {error}") from error
        finally:
            if self._name:
                took_s = time.monotonic() - begun_s
                calls.append({"driver": self._name, "method": f"/{method}", "code": code, "seconds": took_s})

    def capabilities(self) -> frozenset[int]:
        """Return what the driver can do on a node."""
        rows = self.call("csi.v1.Node/NodeGetCapabilities")["capabilities"]
        return frozenset(row["rpc"]["type"] for row in rows if row["rpc"])


def plugins(folder: str = PLUGINS_REGISTRY) -> tuple[list[Plugin], dict[str, str]]:
    """Return the CSI drivers whose registrars answer, by the sockets' names, and why others do not."""
    found: list[Plugin] = []
    errors: dict[str, str] = {}
    for path in _sockets(folder):
        try:
            with contextlib.closing(Caller(path, REGISTER_S)) as registrar:
                info = registrar.call("pluginregistration.Registration/GetInfo")
        except Refused as why:
            errors[os.path.basename(path)] = str(why)
            continue
        if info["type"] == "CSIPlugin":
            found.append(Plugin(path, info["name"], info["endpoint"] or path))
    return found, errors


def _sockets(folder: str) -> Iterator[str]:
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return
    yield from (os.path.join(folder, name) for name in names if name.endswith(".sock") and not name.startswith("."))


@contextlib.contextmanager
def driver(name: str, reason: str, folder: str = PLUGINS_REGISTRY, timeout_s: float = CALL_S) -> Iterator[Caller]:
    """Yield a connection to a driver; what it refuses becomes a fault.

    Raises:
        KeyFault: ``reason``, where the driver is not registered on this machine, or refuses.
    """
    known = [one for one in plugins(folder)[0] if one.name == name]
    if not known:
        raise KeyFault(reason, f"driver name {name} not found in the list of registered CSI drivers")
    try:
        with contextlib.closing(Caller(known[-1].endpoint, timeout_s, name)) as caller:
            yield caller
    except Refused as why:
        raise KeyFault(reason, f"CSI driver {name}: {why}") from why
