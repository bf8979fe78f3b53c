"""Links, addresses and routes of a network namespace: the few words of rtnetlink that we need (rtnetlink.py).

Another namespace is reached by a socket that was opened inside: the calling thread enters it, opens the socket and
returns; the socket stays there.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..core.faults import PassFault
from . import rtnetlink
from .rtnetlink import family_of
from .wire import DUMP_TRIES, NESTED, Wire, attribute, attributes, text

IFFUP = 1
CLONE_NEWNET = 0x40000000
INFO_KIND, INFO_DATA, VETH_PEER = 1, 2, 1
FORWARD_DELAY, STP_STATE = 1, 5  # IFLA_BR_… of linux/if_link.h
MAIN_TABLE, UNICAST, STATIC, ONLINK = 254, 1, 4, 4
LASTING, UNTRIED = 0x80, 0x02  # IFA_F_PERMANENT, IFA_F_NODAD of linux/if_addr.h
PASSING = 0x01 | 0x08 | 0x20 | 0x40  # of the same: TEMPORARY, DADFAILED, DEPRECATED, TENTATIVE
PERMANENT = 0x80  # NUD_PERMANENT of linux/neighbour.h
EVERYWHERE = 0  # RT_SCOPE_UNIVERSE
NOBODY = (errno.ENODEV, errno.ERANGE)  # ERANGE: a name longer than a device's can be


class Link(NamedTuple):
    """A network device."""

    ifindex: int
    name: str
    kind: str
    master: int
    up: bool
    mtu: int
    alias: str
    peer: int = 0
    """Of a pair, the index of the other end, which may be in another namespace."""
    mac: str = ""
    delay: int = 0
    """Of a bridge: so many hundredths of a second after a port has come, the kernel tells of it once more.

    0 also where a spanning tree needs the delay: there the kernel refuses to be without (ERANGE).
    """


class Address(NamedTuple):
    """An address of a device."""

    ifindex: int
    ip: str
    prefix_length: int


class Route(NamedTuple):
    """A route of the main table; ``destination`` is "default" or CIDR, ``gateway`` "" when on the link."""

    destination: str
    gateway: str
    ifindex: int


def netns_of(pid: int) -> str:
    """Return the path of a process's network namespace."""
    return f"/proc/{pid}/ns/net"


@contextlib.contextmanager
def inside_of(netns_path: str) -> Iterator[None]:
    """Have the calling thread in another network namespace, whose switches it then finds below /proc/sys/net.

    Other threads stay where they are.
    """
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        there = os.open(netns_path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _enter(there)
        finally:
            os.close(there)
        try:
            yield
        finally:
            _enter(home)
    finally:
        os.close(home)


def _enter(network: int) -> None:
    import ctypes  # noqa: PLC0415  (6 ms; only where a namespace is entered; os.setns came with Python 3.12)

    if ctypes.CDLL(None, use_errno=True).setns(network, CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"setns: {os.strerror(code)}")


class Netlink:
    """One rtnetlink socket, in this namespace or in the one at ``netns_path``; not to be shared by threads.

    What the kernel refuses is an OSError with its errno.

    Raises:
        PassFault: what is listed never stays the same.
        FileNotFoundError, ProcessLookupError: the process whose namespace this is has ended.
    """

    def __init__(self, netns_path: str = "") -> None:
        with inside_of(netns_path) if netns_path else contextlib.nullcontext():
            self._wire = Wire(rtnetlink.PROTOCOL)

    def __enter__(self) -> Netlink:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the socket."""
        self._wire.__exit__()

    def _ask(self, what: str, command: str, **about: Any) -> list[Any]:
        try:
            return list(rtnetlink.ask(self._wire, what, command, **about))
        except OSError as error:
            code = error.errno or 0
            raise OSError(code, f"netlink: {what} {command}: {os.strerror(code)}") from error

    def _dump(self, what: str, **about: Any) -> list[Any]:
        """Return all of a kind; asked again while the kernel says that it changed during the answer."""
        try:
            return list(rtnetlink.dump(self._wire, what, **about))
        except OSError as error:
            if error.errno != errno.EAGAIN:
                raise
            tried = f"{DUMP_TRIES} readings"
            raise PassFault(
                f"the kernel's {what}s changed during each of {tried}; a later pass will try again"
            ) from error

    def links(self) -> dict[str, Link]:
        """Return the devices of the namespace by name."""
        return {link.name: link for link in map(_link, self._dump("link"))}

    def link(self, name: str) -> Link | None:
        """Return the device of that name, None when there is none."""
        return self._get(ifname=name)

    def link_at(self, index: int) -> Link | None:
        """Return the device with that index, None when there is none."""
        return self._get(index=index)

    def _get(self, **which: Any) -> Link | None:
        try:
            return _link(self._ask("link", "get", **which)[0])
        except OSError as error:
            if error.errno in NOBODY:
                return None
            raise

    def addresses(self, *, ipv6: bool = False) -> list[Address]:
        """Return the IPv4 addresses of the namespace; with ``ipv6`` also those of IPv6 that somebody gave it."""
        found = []
        for each in self._dump("addr", family=socket.AF_UNSPEC if ipv6 else socket.AF_INET):
            ip = each.get("local") or each.get("address")
            given = each["family"] == socket.AF_INET or (each["flags"] & LASTING and each["scope"] == EVERYWHERE)
            if ip and given:
                found.append(Address(each["index"], ip, each["prefixlen"]))
        return found

    def machine_addresses(self) -> list[Address]:
        """Return the IPv6 addresses that others may know the machine by: those that last first, no temporary ones."""
        found = [
            (not each["flags"] & LASTING, Address(each["index"], ip, each["prefixlen"]))
            for each in self._dump("addr", family=socket.AF_INET6)
            if each["family"] == socket.AF_INET6 and not each["flags"] & PASSING and each["scope"] == EVERYWHERE
            if (ip := each.get("local") or each.get("address"))
        ]
        return [address for _fleeting, address in sorted(found, key=lambda one: one[0])]

    def holder(self, ip: str) -> Address | None:
        """Return the address ``ip`` as a device has it, None where none does; one of IPv6 may come from a router."""
        family = socket.AF_INET6 if ":" in ip else socket.AF_INET
        for each in self._dump("addr", family=family):
            if each["family"] == family and ip in (each.get("local"), each.get("address")):
                return Address(each["index"], ip, each["prefixlen"])
        return None

    def neighbours(self, index: int, family: int = socket.AF_INET) -> set[tuple[str, str]]:
        """Return the permanent neighbours of a device: (address, MAC)."""
        found = (each for each in self._dump("neigh", family=family) if each["ifindex"] == index)
        return {(each.get("dst"), each.get("lladdr") or "") for each in found if each["state"] & PERMANENT}

    def add_neighbour(self, index: int, address: str, mac: str) -> None:
        """Tell a device the MAC of an address, for good."""
        about = {"family": family_of(address), "ifindex": index, "dst": address}
        self._ask("neigh", "replace", **about, lladdr=mac, state=PERMANENT)

    def delete_neighbour(self, index: int, address: str) -> None:
        """Forget such a neighbour."""
        self._ask("neigh", "del", family=family_of(address), ifindex=index, dst=address)

    def _routes_of(self, *families: int) -> Iterator[Any]:
        """Yield the routes of some families; a kernel that lacks one of them answers with those of all."""
        for family in families:
            yield from (each for each in self._dump("route", family=family) if each["family"] == family)

    def routes(self, *, ipv6: bool = False) -> list[Route]:
        """Return the IPv4 unicast routes of the main table; with ``ipv6`` also those of IPv6."""
        families = (socket.AF_INET, socket.AF_INET6) if ipv6 else (socket.AF_INET,)
        found = []
        for each in self._routes_of(*families):
            if (each["table"], each["type"]) == (MAIN_TABLE, UNICAST):
                to = each.get("dst")
                destination = f"{to}/{each['dst_len']}" if to else "default"
                found.append(Route(destination, each.get("gateway") or "", each.get("oif") or 0))
        return found

    def add_bridge(self, name: str) -> None:
        """Create a bridge, up. ``set_link`` gives its mtu: one it is born with becomes 1500 when its last port goes."""
        self._ask("link", "add", ifname=name, info=WITHOUT_DELAY, **UP)

    def take_delay(self, index: int) -> None:
        """Have a bridge's ports told of once. Without the spanning tree protocol they forward at once anyway."""
        self._ask("link", "set", index=index, info=WITHOUT_DELAY)

    def add_veth(self, name: str, master: int, mtu: int, peer: str, netns_path: str, *, mac: str) -> None:
        """Create a veth pair in one message: ``name`` here, up, in bridge ``master``; ``peer`` over there, down.

        ``mac`` is the peer's.

        There is no moment at which half of it exists. The peer cannot be up yet: a veth opens with a partner only.
        """
        there = os.open(netns_path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            other = rtnetlink.body_of("link", ifname=peer, mtu=mtu, address=mac, net_ns_fd=there)
            self._ask(
                "link",
                "add",
                ifname=name,
                info=kind_of("veth", attribute(VETH_PEER, other)),
                mtu=mtu,
                master=master,
                **UP,
            )
        finally:
            os.close(there)

    def set_link(
        self, index: int, *, up: bool = False, mtu: int = 0, master: int = 0, alias: str = "", mac: str = ""
    ) -> None:
        """Change a device; what is left out stays as it is."""
        wanted = {"mtu": mtu, "master": master, "ifalias": alias, "address": mac, **(UP if up else {})}
        self._ask("link", "set", index=index, **{name: value for name, value in wanted.items() if value})

    def delete_link(self, index: int) -> None:
        """Delete a device (of a veth pair both ends go)."""
        self._ask("link", "del", index=index)

    def add_address(self, address: Address) -> None:
        """Give a device an address; one it has already is fine. One of IPv6 can be used at once (no DAD)."""
        self._ask("addr", "replace", flags=UNTRIED if ":" in address.ip else 0, **_about(address))

    def delete_address(self, address: Address) -> None:
        """Take an address from a device."""
        self._ask("addr", "del", **_about(address))

    def set_default_route(self, gateway: str, index: int) -> None:
        """Make ``gateway`` the only default route of its family; one of IPv6 need be in no network of the device."""
        about = {"family": family_of(gateway), "table": MAIN_TABLE, "type": UNICAST, "proto": STATIC}
        self._ask("route", "replace", gateway=gateway, oif=index, flags=ONLINK if ":" in gateway else 0, **about)


UP = {"flags": IFFUP, "change": IFFUP}


def kind_of(kind: str, data: bytes) -> bytes:
    """Return what makes a device one of a kind, with the settings of this kind."""
    return text(INFO_KIND, kind) + attribute(INFO_DATA | NESTED, data)


WITHOUT_DELAY = kind_of("bridge", attribute(FORWARD_DELAY, bytes(4)))


def _about(address: Address) -> dict[str, Any]:
    own = {"local": address.ip, "address": address.ip}
    return {"family": family_of(address.ip), "index": address.ifindex, "prefixlen": address.prefix_length, **own}


def _link(message: Any) -> Link:
    return Link(
        ifindex=message["index"],
        name=message.get("ifname"),
        kind=_kind(message),
        master=message.get("master") or 0,
        up=bool(message["flags"] & IFFUP),
        mtu=message.get("mtu") or 0,
        alias=message.get("ifalias") or "",
        peer=message.get("peer") or 0,
        mac=message.get("address") or "",
        delay=_delay(message),
    )


def _delay(message: Any) -> int:
    data = (message.get("info") or {}).get(INFO_DATA, b"") if _kind(message) == "bridge" else b""
    told = dict(attributes(data))
    if any(told.get(STP_STATE, b"")):
        return 0
    return int.from_bytes(told.get(FORWARD_DELAY, b""), sys.byteorder)


def _kind(message: Any) -> str:
    information: dict[int, bytes] = message.get("info") or {}
    return information.get(INFO_KIND, b"").rstrip(b"\0").decode()
