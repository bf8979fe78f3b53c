"""What the driver vxlan asks of the kernel beyond links and addresses: VXLAN devices, their FDB, neighbours, routes.

Routes of ours carry the protocol number ``PROTOCOL`` and, as source, the bridge's gateway address of their family. The
kernel drops those of IPv4 when that address goes, and those of IPv6, which all lead to the VXLAN device, with it.

What there is, is read with messages of our own, as each pass does that. Changes are seldom, and are pyroute2's (0.7.2
of Debian 12 and 0.9 both do): it is imported with the first, which costs 140 ms of CPU.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import Any, NamedTuple

from ..core.faults import PassFault
from .netlink import INFO_DATA, INFO_KIND, MAIN_TABLE, PERMANENT, Address, Link, Netlink
from .rtnetlink import unpacked
from .wire import attributes

PROTOCOL = 78  # nobody's in /etc/iproute2/rt_protos
SELF = 0x02  # NTF_SELF: the device's own FDB, not that of a bridge it is in
UNICAST, UNREACHABLE = 1, 7  # RTN_* of linux/rtnetlink.h
LAST = 2**32 - 1  # the metric of what is to be tried after everything else
VXLAN_ID, VXLAN_LOCAL, VXLAN_LEARNING, VXLAN_PORT, VXLAN_LOCAL6 = 1, 4, 7, 15, 17  # IFLA_VXLAN_* of linux/if_link.h
ZERO_MAC = "00:00:00:00:00:00"


class Tunnel(NamedTuple):
    """A VXLAN device's own settings."""

    vni: int
    local: str
    port: int
    mac: str
    learning: bool


class OverlayRoute(NamedTuple):
    """A route to another node's pods, or the end of the way to pods of nobody; ``protocol`` says whether it is ours."""

    destination: str
    gateway: str
    ifindex: int
    source: str
    protocol: int
    kind: int = UNICAST


class Overlay(NamedTuple):
    """An overlay as the kernel has it: its device's settings, its FDB, its next hops, and all routes."""

    tunnel: Tunnel | None
    forwarding: set[tuple[str, str]]
    neighbours: set[tuple[str, str]]
    routes: list[OverlayRoute]
    under: Address | None = None
    """The address that tunnels leave from, as a device has it."""


class OverlayNetlink(Netlink):
    """Netlink with the words for overlays.

    Raises:
        PassFault: something is to be changed, and pyroute2 is not installed.
    """

    def __init__(self) -> None:
        super().__init__()
        self._route: Any = None

    def __enter__(self) -> OverlayNetlink:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close what was opened."""
        super().__exit__()
        if self._route is not None:
            self._route.close()

    def _change(self, what: str, command: str, **about: Any) -> None:
        try:
            from pyroute2 import IPRoute  # noqa: PLC0415  (see the top)
            from pyroute2.netlink.exceptions import NetlinkError  # noqa: PLC0415
        except ImportError as error:
            raise PassFault(
                f"{sys.executable} on {socket.gethostname()} cannot import pyroute2, which changes overlays: {error};"
                " install the Debian package python3-pyroute2 there"
            ) from error
        self._route = self._route or IPRoute()
        try:
            getattr(self._route, what)(command, **about)
        except NetlinkError as error:
            code = int(error.args[0])
            raise OSError(code, f"netlink: {what} {command}: {os.strerror(code)}") from error

    def overlay(self, link: Link | None, local: str) -> Overlay:
        """Return what there is; ``link`` is the VXLAN device, if it exists, and ``local`` where tunnels leave."""
        if link is None or link.kind != "vxlan":
            return Overlay(None, set(), set(), self.overlay_routes(), self.holder(local))
        at = link.ifindex
        hops = self.neighbours(at) | self.neighbours(at, socket.AF_INET6)
        return Overlay(self.tunnel(at), self.forwarding(at), hops, self.overlay_routes(), self.holder(local))

    def delete_overlay(self, index: int, sources: set[str]) -> None:
        """Take away our routes that leave from ``sources``, then the device: what is left is found by the device."""
        for route in self.overlay_routes():
            if route.protocol == PROTOCOL and route.source in sources:
                self.delete_overlay_route(route)
        self.delete_link(index)

    def tunnel(self, index: int) -> Tunnel | None:
        """Return the settings of a VXLAN device, None when it is none."""
        (message,) = self._ask("link", "get", index=index)
        information = message.get("info") or {}
        if information.get(INFO_KIND, b"").rstrip(b"\0") != b"vxlan":
            return None
        data = dict(attributes(information.get(INFO_DATA, b"")))
        return Tunnel(
            int.from_bytes(data[VXLAN_ID], sys.byteorder),
            unpacked(data.get(VXLAN_LOCAL) or data.get(VXLAN_LOCAL6) or b""),
            int.from_bytes(data[VXLAN_PORT], "big"),
            message.get("address"),
            data.get(VXLAN_LEARNING) == b"\1",
        )

    def add_tunnel(self, name: str, tunnel: Tunnel, mtu: int) -> None:
        """Create a VXLAN device, up. Its UDP has checksums over IPv6, as RFC 8200 wants: the kernel's default."""
        local = "vxlan_local6" if ":" in tunnel.local else "vxlan_local"
        settings = {"vxlan_id": tunnel.vni, local: tunnel.local, "vxlan_port": tunnel.port}
        self._change(
            "link", "add", ifname=name, kind="vxlan", address=tunnel.mac, mtu=mtu, state="up",
            vxlan_learning=tunnel.learning, **settings,
        )  # fmt: skip

    def forwarding(self, index: int) -> set[tuple[str, str]]:
        """Return the FDB of a VXLAN device: (MAC, machine)."""
        found = (
            each for each in self._dump("neigh", family=socket.AF_BRIDGE, ifindex=index) if each["ifindex"] == index
        )
        return {(each.get("lladdr") or ZERO_MAC, each.get("dst") or "") for each in found}

    def add_forwarding(self, index: int, mac: str, address: str) -> None:
        """Tell a VXLAN device on which machine a MAC is; another one is forgotten."""
        self._change("fdb", "replace", ifindex=index, lladdr=mac, dst=address, flags=SELF, state=PERMANENT)

    def delete_forwarding(self, index: int, mac: str, address: str) -> None:
        """Forget where a MAC is."""
        self._change("fdb", "del", ifindex=index, lladdr=mac, flags=SELF, **({"dst": address} if address else {}))

    def overlay_routes(self) -> list[OverlayRoute]:
        """Return the routes of the main table with source and protocol."""
        found = []
        for each in self._routes_of(socket.AF_INET, socket.AF_INET6):
            to = each.get("dst")
            if each["table"] == MAIN_TABLE and to:
                gateway, source = each.get("gateway") or "", each.get("prefsrc") or ""
                index, protocol = each.get("oif") or 0, each["proto"]
                found.append(OverlayRoute(f"{to}/{each['dst_len']}", gateway, index, source, protocol, each["type"]))
        return found

    def set_overlay_route(self, route: OverlayRoute) -> None:
        """Make a route of ours; the next hop need not be in a network of the device, and the last one has none."""
        if not route.gateway:
            about = {"dst": route.destination, "type": route.kind, "priority": LAST}
            about |= {"oif": route.ifindex} if route.ifindex else {}
            self._change("route", "replace", prefsrc=route.source, proto=PROTOCOL, **about)
            return
        self._change(
            "route", "replace", dst=route.destination, gateway=route.gateway, oif=route.ifindex,
            prefsrc=route.source, proto=PROTOCOL, flags=["onlink"],
        )  # fmt: skip

    def delete_overlay_route(self, route: OverlayRoute) -> None:
        """Take a route of ours away."""
        device = {"oif": route.ifindex} if route.ifindex else {}
        self._change("route", "del", dst=route.destination, type=route.kind, proto=PROTOCOL, **device)
