"""What the DNS server needs of its node: an address on ``lo``, and the node's resolv.conf where it is to ask it.

The address is link-local and the same on every node, as NodeLocal DNSCache's: pods reach it through their gateway, and
no rule of services is in the way. Of IPv6, where pods do not reach such addresses, it is any that is nobody's.
resolv.conf is kept aside before it is changed, link or file, and brought back.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import struct
from typing import Any

from ..core.digests import canonical
from ..core.faults import KeyFault
from ..core.files import read_bytes, read_json, remove_file, temporary_for, write_atomically
from ..network.netlink import Address, Netlink
from ..network.network_ipv6 import open_device
from .pod_files import NODE_RESOLVER, SYSTEMD_RESOLVER

RESOLVER = NODE_RESOLVER
LOOPBACK = "lo"


def is_loopback(address: str) -> bool:
    """Return whether an address is of each machine by itself."""
    return bool(address) and ipaddress.ip_address(address).is_loopback


def has_address(address: str) -> bool:
    """Return whether the node has the address; asked by binding to it, which costs no netlink."""
    if is_loopback(address):
        return True
    with socket.socket(_family(address), socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                return False
            raise
    return True


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _on(index: int, address: str) -> Address:
    return Address(index, address, 128 if ":" in address else 32)


def add_address(address: str) -> None:
    """Give the address to ``lo``."""
    with Netlink() as netlink:
        link = netlink.link(LOOPBACK)
        if link is None:
            raise KeyFault("NetworkNotReady", f"there is no device {LOOPBACK} to give {address} to")
        if ":" in address:
            open_device(LOOPBACK)
        netlink.add_address(_on(link.ifindex, address))


def remove_address(address: str) -> None:
    """Take an address of ours from ``lo`` again; one that is not there, or on another device, stays as it is."""
    with Netlink() as netlink:
        for each in _given(netlink, address):
            netlink.delete_address(each)


def _given(netlink: Netlink, address: str) -> list[Address]:
    """Return the address as ``lo`` has it, nothing where it has not."""
    link = netlink.link(LOOPBACK)
    return [each for each in netlink.addresses(ipv6=":" in address) if link and each == _on(link.ifindex, address)]


def is_ours(address: str) -> bool:
    """Return whether an address is one that only this section can have given to ``lo``."""
    if ":" in address:  # nothing but this section gives lo one, beside ::1
        with Netlink() as netlink:
            return not ipaddress.IPv6Address(address).is_loopback and bool(_given(netlink, address))
    return bool(address) and ipaddress.IPv4Address(address).is_link_local and has_address(address)


def is_served(address: str, port: int) -> bool:
    """Return whether somebody has the UDP port on that address, or on all (``/proc/net/udp``: nobody is asked)."""
    packed, every = socket.inet_pton(_family(address), address), "udp6" if ":" in address else "udp"
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    places = tuple("".join(f"{word:08X}" for word in each) + f":{port:04X}" for each in (words, [0] * len(words)))
    data = read_bytes(f"/proc/net/{every}") or b""
    return any(line.split()[1] in places for line in data.decode("ascii", "replace").splitlines()[1:])


def _kept_path(state_dir: str) -> str:
    return os.path.join(state_dir, "resolv.conf.kept")


def kept_resolver(state_dir: str) -> str | None:
    """Return the content of the resolv.conf that ours stands in for, None when it does not."""
    kept = read_json(_kept_path(state_dir))
    return str(kept.get("text", "")) if isinstance(kept, dict) else None


def node_resolver(kept: str | None, resolver: str) -> str:
    """Return what the node itself asks: the kept file, systemd's servers, or resolv.conf."""
    for text in (kept, _text(SYSTEMD_RESOLVER) if resolver == RESOLVER else None, _text(resolver)):
        if text:
            return text
    return ""


def _text(path: str) -> str | None:
    data = read_bytes(path)
    return None if data is None else data.decode("utf-8", "replace")


def take_resolver(state_dir: str, path: str, text: str) -> None:
    """Put ``text`` in the place of resolv.conf; what stood there is kept first."""
    if kept_resolver(state_dir) is None:
        link = os.readlink(path) if os.path.islink(path) else ""
        kept: dict[str, Any] = {"text": _text(path) or "", "link": link, "there": os.path.exists(path)}
        kept["ours"] = text
        write_atomically(_kept_path(state_dir), canonical(kept), sync=True)
    _put(path, text)


def restore_resolver(state_dir: str, path: str) -> None:
    """Bring the kept resolv.conf back, unless somebody else has changed it since."""
    kept = read_json(_kept_path(state_dir))
    if isinstance(kept, dict) and _is_our_file(path):
        if kept.get("link"):
            made = temporary_for(path)
            remove_file(made)
            os.symlink(kept["link"], made)
            os.replace(made, path)
        elif kept.get("there"):
            _put(path, str(kept["text"]))
        else:
            remove_file(path)
    clear(state_dir, path)
    remove_file(_kept_path(state_dir))


def clear(state_dir: str, path: str) -> None:
    """Remove a resolv.conf that a killed run left half written; whoever writes it has kept the former one before."""
    if os.path.exists(_kept_path(state_dir)):
        remove_file(temporary_for(path))


def _is_our_file(path: str) -> bool:
    """Return whether we wrote the file; one that is empty or absent was left so by a run killed while it wrote."""
    text = _text(path)
    return not os.path.islink(path) and (not text or text.startswith("# Written by minik8s_dns"))


def _put(path: str, text: str) -> None:
    """Write the file; one that is mounted (in containers) cannot be renamed over and is written in place."""
    try:
        write_atomically(path, text.encode(), 0o644)
    except OSError as error:
        if error.errno not in (errno.EBUSY, errno.EXDEV):
            raise
        remove_file(temporary_for(path))
        with open(path, "w", encoding="utf-8") as target:
            target.write(text)
