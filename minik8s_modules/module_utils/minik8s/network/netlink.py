"""Links, addresses and routes of a network namespace: the few words we need of pyroute2's IPRoute.

pyroute2 (0.7.2 of Debian 12 and 0.9 both do; `rtnetlink.py`) is imported when the first Netlink is opened: that costs
60 ms of CPU, which a pass without network does not spend, and a warm interpreter spends at its start. Another namespace
is reached by a socket that was opened inside: the calling thread enters it, opens the socket and returns; the socket
stays there. (IPRoute's own ``netns`` starts a process for each.)
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import sys
from collections.abc import Iterator
from typing import Any, Callable, NamedTuple

from ..core.faults import PassFault

IFF_UP = 1
DUMP_INTERRUPTED = 0x10  # NLM_F_DUMP_INTR of linux/netlink.h: something changed meanwhile, a part may be missing
DUMP_TRIES = 20
MAIN_TABLE, UNICAST = 254, 1
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


class _Library(NamedTuple):
    """What we take of pyroute2."""

    route: Callable[[], Any]
    error: type[Exception]
    interrupted: type[Exception]
    setns: Callable[..., None]


def _library() -> _Library:
    try:
        from .rtnetlink import IPRoute, NetlinkDumpInterrupted, NetlinkError, setns  # noqa: PLC0415  (see the top)
    except ImportError as error:
        raise PassFault(
            f"{sys.executable} on {socket.gethostname()} cannot import pyroute2, which makes pod networks: {error};"
            " install the Debian package python3-pyroute2 there"
        ) from error
    return _Library(IPRoute, NetlinkError, NetlinkDumpInterrupted, setns)


@contextlib.contextmanager
def _inside(netns_path: str, setns: Callable[..., None]) -> Iterator[None]:
    """Have the calling thread in another network namespace; the others stay where they are."""
    import ctypes  # noqa: PLC0415  (6 ms; only where a namespace is entered)

    libc = ctypes.CDLL(None, use_errno=True)  # setns by itself would look for it with a process
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        there = os.open(netns_path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            setns(there, libc=libc)
        finally:
            os.close(there)
        try:
            yield
        finally:
            setns(home, libc=libc)
    finally:
        os.close(home)


@contextlib.contextmanager
def inside_of(netns_path: str) -> Iterator[None]:
    """Have the calling thread in another network namespace, whose switches it then finds below /proc/sys/net."""
    with _inside(netns_path, _library().setns):
        yield


class Netlink:
    """One rtnetlink socket, in this namespace or in the one at ``netns_path``; not to be shared by threads.

    What the kernel refuses is an OSError with its errno.

    Raises:
        PassFault: pyroute2 is not installed; or what is listed never stays the same.
        FileNotFoundError, ProcessLookupError: the process whose namespace this is has ended.
    """

    def __init__(self, netns_path: str = "") -> None:
        self._library = _library()
        with _inside(netns_path, self._library.setns) if netns_path else contextlib.nullcontext():
            self._route = self._library.route()

    def __enter__(self) -> Netlink:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the socket."""
        self._route.close()

    def _ask(self, what: str, command: str, **about: Any) -> list[Any]:
        try:
            return list(getattr(self._route, what)(command, **about))
        except self._library.interrupted:
            raise
        except self._library.error as error:
            code = int(error.args[0])
            raise OSError(code, f"netlink: {what} {command}: {os.strerror(code)}") from error

    def _dump(self, what: str, **about: Any) -> list[Any]:
        """Return all of a kind; asked again while the kernel says that it changed during the answer."""
        for _ in range(DUMP_TRIES):
            with contextlib.suppress(self._library.interrupted):  # raised by 0.7; 0.9 leaves it to the flag
                found = self._ask(what, "dump", **about)
                if not any(each["header"]["flags"] & DUMP_INTERRUPTED for each in found):
                    return found
        raise PassFault(
            f"the kernel's {what}s changed during each of {DUMP_TRIES} readings; a later pass will try again"
        )

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
            ip = each.get_attr("IFA_LOCAL") or each.get_attr("IFA_ADDRESS")
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
            if (ip := each.get_attr("IFA_LOCAL") or each.get_attr("IFA_ADDRESS"))
        ]
        return [address for _fleeting, address in sorted(found, key=lambda one: one[0])]

    def holder(self, ip: str) -> Address | None:
        """Return the address ``ip`` as a device has it, None where none does; one of IPv6 may come from a router."""
        family = socket.AF_INET6 if ":" in ip else socket.AF_INET
        for each in self._dump("addr", family=family):
            if each["family"] == family and ip in (each.get_attr("IFA_LOCAL"), each.get_attr("IFA_ADDRESS")):
                return Address(each["index"], ip, each["prefixlen"])
        return None

    def neighbours(self, index: int, family: int = socket.AF_INET) -> set[tuple[str, str]]:
        """Return the permanent neighbours of a device: (address, MAC)."""
        found = (each for each in self._dump("neigh", family=family) if each["ifindex"] == index)
        return {
            (each.get_attr("NDA_DST"), each.get_attr("NDA_LLADDR") or "") for each in found if each["state"] & PERMANENT
        }

    def add_neighbour(self, index: int, address: str, mac: str) -> None:
        """Tell a device the MAC of an address, for good."""
        self._ask("neigh", "replace", ifindex=index, dst=address, lladdr=mac, state=PERMANENT)

    def delete_neighbour(self, index: int, address: str) -> None:
        """Forget such a neighbour."""
        self._ask("neigh", "del", ifindex=index, dst=address)

    def _routes_of(self, *families: int) -> Iterator[Any]:
        """Yield the routes of some families; a kernel that lacks one of them answers with those of all."""
        for family in families:
            yield from (each for each in self._dump("route", family=family) if each["family"] == family)

    def routes(self, *, ipv6: bool = False) -> list[Route]:
        """Return the IPv4 unicast routes of the main table; with ``ipv6`` also those of IPv6."""
        families = (socket.AF_INET, socket.AF_INET6) if ipv6 else (socket.AF_INET,)  # pyroute2 0.7.2 knows no "all"
        found = []
        for each in self._routes_of(*families):
            if (each["table"], each["type"]) == (MAIN_TABLE, UNICAST):
                to = each.get_attr("RTA_DST")
                destination = f"{to}/{each['dst_len']}" if to else "default"
                found.append(Route(destination, each.get_attr("RTA_GATEWAY") or "", each.get_attr("RTA_OIF") or 0))
        return found

    def add_bridge(self, name: str) -> None:
        """Create a bridge, up. ``set_link`` gives its mtu: one it is born with becomes 1500 when its last port goes."""
        self._ask("link", "add", ifname=name, kind="bridge", state="up")

    def add_veth(self, name: str, master: int, mtu: int, peer: str, netns_path: str, *, mac: str) -> None:
        """Create a veth pair in one message: ``name`` here, up, in bridge ``master``; ``peer`` over there, down.

        ``mac`` is the peer's.

        There is no moment at which half of it exists. The peer cannot be up yet: a veth opens with a partner only.
        """
        there = os.open(netns_path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            other = {"ifname": peer, "mtu": mtu, "address": mac, "net_ns_fd": there}
            self._ask("link", "add", ifname=name, kind="veth", mtu=mtu, master=master, state="up", peer=other)
        finally:
            os.close(there)

    def set_link(
        self, index: int, *, up: bool = False, mtu: int = 0, master: int = 0, alias: str = "", mac: str = ""
    ) -> None:
        """Change a device; what is left out stays as it is."""
        wanted = {"state": "up" if up else "", "mtu": mtu, "master": master, "ifalias": alias, "address": mac}
        self._ask("link", "set", index=index, **{name: value for name, value in wanted.items() if value})

    def delete_link(self, index: int) -> None:
        """Delete a device (of a veth pair both ends go)."""
        self._ask("link", "del", index=index)

    def add_address(self, address: Address) -> None:
        """Give a device an address; one it has already is fine. One of IPv6 can be used at once (no DAD)."""
        untried = {"flags": UNTRIED} if ":" in address.ip else {}
        self._ask(
            "addr", "replace", index=address.ifindex, address=address.ip, prefixlen=address.prefix_length, **untried
        )

    def delete_address(self, address: Address) -> None:
        """Take an address from a device."""
        self._ask("addr", "del", index=address.ifindex, address=address.ip, prefixlen=address.prefix_length)

    def set_default_route(self, gateway: str, index: int) -> None:
        """Make ``gateway`` the only default route of its family; one of IPv6 need be in no network of the device."""
        to = {"dst": "::/0", "flags": ["onlink"]} if ":" in gateway else {"dst": "default"}
        self._ask("route", "replace", gateway=gateway, oif=index, **to)


def _link(message: Any) -> Link:
    information = message.get_attr("IFLA_LINKINFO")
    return Link(
        ifindex=message["index"],
        name=_text(message.get_attr("IFLA_IFNAME")),
        kind=_text(information.get_attr("IFLA_INFO_KIND")) if information else "",
        master=message.get_attr("IFLA_MASTER") or 0,
        up=bool(message["flags"] & IFF_UP),
        mtu=message.get_attr("IFLA_MTU") or 0,
        alias=_text(message.get_attr("IFLA_IFALIAS")),
        peer=message.get_attr("IFLA_LINK") or 0,
        mac=message.get_attr("IFLA_ADDRESS") or "",
    )


def _text(value: str | bytes | None) -> str:
    """Return a string attribute; pyroute2 leaves those that are no UTF-8 as they are."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""
