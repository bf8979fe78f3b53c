"""What services need of the node beside their rules: a route, a device, switches of the kernel.

Spoken to rtnetlink in bytes (wire.py). Routes of ours carry the protocol number 77.
"""

from __future__ import annotations

import errno
import os
import struct
import subprocess
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..core.faults import KeyFault
from ..network.switches import SYSCTL, read_switch, set_switch
from ..network.wire import (
    ACK,
    CREATE,
    ERROR,
    EXCLUSIVE,
    Wire,
    attribute,
    attributes,
    error_of,
    message,
    nested,
    next_sequence,
    text,
)
from .families import IPV6, family_of
from .services_plan import FixedPart

ROUTE_PROTOCOL = 0  # NETLINK_ROUTE
NEW_LINK, DELETE_LINK, GET_LINK, NEW_ADDRESS, DELETE_ADDRESS, GET_ADDRESS = 16, 17, 18, 20, 21, 22
NEW_ROUTE, DELETE_ROUTE, GET_ROUTE = 24, 25, 26
LINK = struct.Struct("=BxHiII")
ADDRESS = struct.Struct("=BBBBi")
ROUTE = struct.Struct("=BBBBBBBBI")
NAME, LINK_INFO, INFO_KIND, INFO_DATA, NF_CALL_IPTABLES = 3, 18, 1, 2, 36
ROUTE_TO, ROUTE_DEVICE, ROUTE_SOURCE = 1, 4, 7
MAIN, OURS, LINK_SCOPE, UNICAST = 254, 77, 253, 1
ROUTE_IPV6 = "ipv6 route"
BRIDGED = "bridge/bridge-nf-call-iptables"


class Device(NamedTuple):
    """A device: number, kind, and for a bridge whether bridged packets pass the rules."""

    number: int
    kind: str
    bridged: bool


def device(wire: Wire, name: str) -> Device | None:
    """Return the device of that name, None when there is none."""
    sequence = next_sequence()
    asked = message(GET_LINK, 0, LINK.pack(0, 0, 0, 0, 0) + text(NAME, name), sequence)
    answer = wire.ask_each([asked], [sequence])[sequence]
    if answer.type == ERROR:
        return None
    parts = dict(attributes(answer.body[LINK.size :]))
    info = dict(attributes(parts.get(LINK_INFO, b"")))
    data = dict(attributes(info.get(INFO_DATA, b"")))
    kind = info.get(INFO_KIND, b"").rstrip(b"\0").decode()
    return Device(LINK.unpack_from(answer.body)[2], kind, data.get(NF_CALL_IPTABLES) == b"\1")


def bridge_rules_possible() -> bool:
    """Return whether packets within a bridge can be shown to the rules (br_netfilter); loads the module if needed."""
    path = SYSCTL + BRIDGED
    if not os.path.exists(path):
        subprocess.run(["modprobe", "br_netfilter"], capture_output=True, check=False)
    return os.path.exists(path)


def follows_sctp() -> bool:
    """Return whether the kernel's NAT knows SCTP; true where it has no NAT yet, which the table brings."""
    return bool(read_switch("netfilter/nf_conntrack_sctp_timeout_established")) or not read_switch(
        "netfilter/nf_conntrack_max"
    )


class Host:
    """The route, and the bridge's switch; one socket, one thread."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = config
        self._family = family_of(config.get("service_cidr", ""))  # policies ask for other things
        self._wire = Wire(ROUTE_PROTOCOL)

    def close(self) -> None:
        """Close the socket."""
        self._wire.__exit__()

    @property
    def wire(self) -> Wire:
        """The rtnetlink socket."""
        return self._wire

    def found(self, *, bridged: bool) -> FixedPart:
        """Return route and switches as they are and as they should be."""
        if self._family is IPV6:  # whose packets are never bridged, and which has no node ports at loopback
            return FixedPart({ROUTE_IPV6: self._route()}, {ROUTE_IPV6: self._wanted_route()})
        config = self.config
        bridge = device(self._wire, config["bridge"])
        seen, wanted = {"route": self._route()}, {"route": self._wanted_route()}
        for aspect, switch in self._localnet().items():
            seen[aspect], wanted[aspect] = read_switch(switch), "1"
        if bridged:
            seen["bridge_rules"] = "on" if bridge and bridge.bridged else "off"
            wanted["bridge_rules"] = "on"
        return FixedPart(seen, wanted)

    def _localnet(self) -> dict[str, str]:
        # without it a node port at 127.0.0.1 has no way out to a pod; "receiving" drops what others send there
        devices = {"localnet": self.config["bridge"], "overlay_localnet": self.config.get("overlay")}
        return {aspect: f"ipv4/conf/{name}/route_localnet" for aspect, name in devices.items() if name}

    def _wanted_route(self) -> str:
        return f"{self.config['service_cidr']} dev {self.config['bridge']} src {self.config['gateway']}"

    def _route(self) -> str:
        bridge = device(self._wire, self.config["bridge"])
        for destination, index, source, protocol in self._routes():
            if destination == self.config["service_cidr"]:
                name = self.config["bridge"] if bridge and bridge.number == index else f"device {index}"
                return f"{destination} dev {name} src {source}" + ("" if protocol == OURS else " (not ours)")
        return ""

    def _routes(self) -> list[tuple[str, int, str, int]]:
        found = []
        family = self._family
        for answer in self._wire.dump(GET_ROUTE, ROUTE.pack(family.number, 0, 0, 0, 0, 0, 0, 0, 0)):
            _, length, _, _, table, protocol, _, kind, _ = ROUTE.unpack_from(answer.body)
            parts = dict(attributes(answer.body[ROUTE.size :]))
            if (table, kind) == (MAIN, UNICAST) and ROUTE_TO in parts:
                index = struct.unpack("=i", parts.get(ROUTE_DEVICE, b"\0\0\0\0"))[0]
                source = family.text(parts[ROUTE_SOURCE]) if ROUTE_SOURCE in parts else ""
                found.append((f"{family.text(parts[ROUTE_TO])}/{length}", index, source, protocol))
        return found

    def mend(self, aspect: str) -> None:
        """Make one aspect right.

        Raises:
            KeyFault: the bridge is missing, or somebody else's route is in the way.
        """
        if aspect in self._localnet():
            set_switch(self._localnet()[aspect], "1")
        elif aspect in {"route", ROUTE_IPV6}:
            self._mend_route()
        else:
            index = self._bridge().number
            data = nested(INFO_DATA, attribute(NF_CALL_IPTABLES, b"\1"))
            body = LINK.pack(0, 0, index, 0, 0) + nested(LINK_INFO, text(INFO_KIND, "bridge"), data)
            self.do(f"bridge rules of {self.config['bridge']}", NEW_LINK, 0, body)

    def _bridge(self) -> Device:
        found = device(self._wire, self.config["bridge"])
        if found is None:
            raise KeyFault(
                "NetworkNotReady", f"bridge {self.config['bridge']} does not exist; section network makes it"
            )
        return found

    def _mend_route(self) -> None:
        self.remove()
        index = self._bridge().number
        body = self._route_body(index) + attribute(ROUTE_SOURCE, self._family.packed(self.config["gateway"]))
        try:
            self.do(f"route {self._wanted_route()}", NEW_ROUTE, CREATE | EXCLUSIVE, body)
        except OSError as error:
            if error.errno == errno.EINVAL and self._family is IPV6:
                why = f"{self.config['bridge']} does not have {self.config['gateway']}; section network gives it"
                raise KeyFault("NetworkNotReady", why) from error
            if error.errno == errno.EEXIST:
                raise KeyFault(
                    "NetworkNotReady",
                    f"another program's route to {self.config['service_cidr']} is in the way; remove it",
                ) from error
            raise

    def _route_body(self, index: int) -> bytes:
        to, _, length = self.config["service_cidr"].partition("/")
        head = ROUTE.pack(self._family.number, int(length), 0, 0, MAIN, OURS, LINK_SCOPE, UNICAST, 0)
        return head + attribute(ROUTE_TO, self._family.packed(to)) + attribute(ROUTE_DEVICE, struct.pack("=i", index))

    def remove(self) -> None:
        """Remove our route; the bridge's switches go with the bridge."""
        for destination, index, _, protocol in self._routes():
            if (destination, protocol) == (self.config["service_cidr"], OURS):
                self.do(f"delete route {destination}", DELETE_ROUTE, 0, self._route_body(index))

    def do(self, what: str, kind: int, flags: int, body: bytes) -> None:
        """Carry out one request; raises OSError when the kernel refuses."""
        sequence = next_sequence()
        self._wire.do(what, message(kind, flags | ACK, body, sequence), sequence)


def refused(answer: Any) -> int:
    """Return the errno of an answer, 0 for none."""
    return error_of(answer) if answer.type == ERROR else 0
