"""Which sections a line of ``ip -o monitor label``, ``nft``, ``findmnt`` or ``inotifywait`` may be about. Pure.

Lines of ``ip`` begin with what they are about in brackets, as do those of inotifywait by our format (watches.py), and
those of findmnt with what became of a mount; all others are nft's. Only what bears a name of ours or is in a folder of
ours counts: a node has links and rules of others, who change them as they like. What a deleted rule said nft does not
repeat, so every deletion in the chain FORWARD, where two of ours are, counts.

Of neighbours (and forwarding entries, which ip calls so too) those count that are ours to declare: the permanent ones
of a tunnel, and those of IPv6 on the bridge. One that somebody deletes is said to have failed and, at once, to be
deleted; one that just does not answer, as of an address that a pod tries, is deleted much later, and is nothing to look
at. A tunnel's neighbours never answer, so one with a hardware address that is not permanent was put there.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_LINKS = frozenset({"network", "sandboxes"})
_RULES = frozenset({"network", "sandboxes", "services"})
_BRIDGED = frozenset({"policies", "services"})
"""Those that have packets within the bridge shown to their rules."""
_NOTHING = frozenset[str]()
_DEVICES = b"mk8s-"
"""What the names of our devices begin with (module_utils, network/attachment.py)."""
_IPVS = b"minik8s-dummy"
_TABLES = {
    b" minik8s_policies": frozenset({"policies"}),
    b" minik8s_tunnels": frozenset({"network"}),
    b" minik8s_ports_": frozenset({"sandboxes"}),
    b" minik8s_names_": frozenset({"dns"}),
}
"""What the names of tables begin with that are one section's."""
_SOURCES = b" minik8s_sources"
"""What the names of tables begin with whose elements come with pods, by our own hand: only these are no news."""
_ADDRESS = re.compile(rb"add element bridge minik8s_sources\S* own(_ipv6)? ")
"""An address for a pod's device. Our own hand adds the device after it, in one transaction (network/sources.py)."""
_LINK = re.compile(rb"add element bridge minik8s_sources\S* links ")
_BY_ITSELF = re.compile(
    rb"\[ADDR\](Deleted )?\d+: mk8s-[0-9a-f]{8} +inet6 fe80:"
    rb"|\[ROUTE\](Deleted )?(\w+ )?(fe80:|ff00:)\S* dev mk8s-[0-9a-f]{8} "
)
"""What the kernel gives a pod's link some seconds after its start, and takes from it: of IPv6, for this link alone."""

_FOLDERS = {b"nginx": frozenset({"ingress"}), b"dns": frozenset({"dns"}), b"pods": frozenset({"volumes"})}
_SECRETS = frozenset({"secrets", "volumes"})
_MOUNTS = (b"mount ", b"umount ", b"remount ", b"move ")
FILE = "[FILE]"
"""What a line of inotifywait begins with; its path follows."""
NO_INOTIFYWAIT = f"{FILE}unknown".encode()
"""The line of a node that has no such program."""


NO_DEVICE = b"/"
"""The name of no device."""


class Places(NamedTuple):
    """The device that a node's pods are on, that of its tunnels, and where it keeps what is ours."""

    bridge: bytes
    state_dir: bytes
    run_dir: bytes
    tunnel: bytes = NO_DEVICE


_GONE = b"[LINK]Deleted "
_NEIGHBOUR, _DELETED = b"[NEIGH]", b"[NEIGH]Deleted "


def gone_link(line: bytes) -> str:
    """Return the name of a pod's link that ``line`` says is gone, "" for any other line."""
    if not line.startswith(_GONE):
        return ""
    name = line.split(b": ", 2)[1:2]
    return name[0].partition(b"@")[0].decode("ascii", "replace") if name and name[0].startswith(_DEVICES) else ""


class Said(NamedTuple):
    """What was said before a line: the line before it, and whether an address has come without its device so far.

    Programs share a stream: between two lines of nft's may be some of ip, findmnt and inotifywait.
    """

    line: bytes = b""
    alone: bool = False

    def then(self, line: bytes) -> Said:
        """Return what was said after ``line``."""
        ends = line.startswith(b"#") or _LINK.match(line)
        return Said(line, not ends and (self.alone or _ADDRESS.match(line) is not None))


NOTHING_SAID = Said()


def sections_of(line: bytes, places: Places, said: Said = NOTHING_SAID) -> frozenset[str]:
    """Return the sections that ``line`` may be about after what was ``said``; none for most."""
    bridge = places.bridge
    if line.startswith(FILE.encode()):
        return _of_path(line[len(FILE) :].rstrip(b"\n"), places)
    if line.startswith(_MOUNTS):
        return _of_path(line.partition(b" ")[2].rstrip(b"\n"), places)
    if line.startswith(_NEIGHBOUR):
        return _of_neighbour(line, places, said.line)
    if line.startswith(b"["):
        return _of_link(line, bridge)
    if line.startswith(b"#"):  # the generation, and who made it: a transaction ends
        return frozenset({"sandboxes"}) if said.alone else _NOTHING
    return _of_rule(line, bridge)


def _of_link(line: bytes, bridge: bytes) -> frozenset[str]:
    """Return the sections that a line of ip may be about."""
    if _IPVS in line:
        return frozenset({"services"})
    if line.startswith(_GONE) and line.split(b": ", 2)[1:2] == [bridge]:
        return _LINKS | _BRIDGED  # whoever makes it again switches nothing on
    if _BY_ITSELF.match(line) and bridge not in line:
        return _NOTHING
    return _LINKS if _DEVICES in line or bridge in line else _NOTHING


def _of_neighbour(line: bytes, places: Places, before: bytes) -> frozenset[str]:
    """Return the sections that a line of ip about a neighbour may be about: ``ADDRESS dev DEVICE ... STATE``."""
    said = line.removeprefix(_DELETED).removeprefix(_NEIGHBOUR)
    address, _, rest = said.partition(b" dev ")
    device, state = rest.split(b" ", 1)[0], rest.split()[-1:]
    in_tunnel = device == places.tunnel
    if not in_tunnel and (device != places.bridge or b":" not in address):
        return _NOTHING
    forced = state == [b"FAILED"] and line.startswith(_DELETED) and before == _NEIGHBOUR + said
    put = in_tunnel and b" lladdr " in rest and state != [b"NOARP"]
    ours = forced or put or state == [b"PERMANENT"]
    return frozenset({"network" if in_tunnel else "sandboxes"}) if ours else _NOTHING


def _of_rule(line: bytes, bridge: bytes) -> frozenset[str]:
    """Return the sections that a line of nft may be about: ``add element bridge TABLE ...``."""
    if _SOURCES in line:
        return _NOTHING if line.startswith(b"add element ") else frozenset({"sandboxes"})
    for table, sections in _TABLES.items():
        if table in line:
            return sections
    forward = line.startswith(b"delete ") and b" FORWARD " in line
    return _RULES if forward or bridge in line else _NOTHING


def _of_path(path: bytes, places: Places) -> frozenset[str]:
    """Return the sections that a file or a mount may be of."""
    below, _, name = path.removeprefix(places.state_dir + b"/").partition(b"/")
    if path.startswith(places.state_dir + b"/"):
        return _FOLDERS.get(below, _NOTHING) if below != b"nginx" or name.endswith(b".conf") else _NOTHING
    secrets = places.run_dir + b"/secrets"
    if path.startswith(secrets + b"/.volumes/"):
        return _FOLDERS[b"pods"]
    return _SECRETS if path == secrets or path.startswith(secrets + b"/") else _NOTHING
