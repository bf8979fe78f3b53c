"""Which sections a line of ``ip -o monitor label`` or ``nft monitor`` may be about. Pure.

Lines of ``ip`` begin with what they are about in brackets; all others are nft's. Only what bears a name of ours counts:
a node has links and rules of others, who change them as they like. What a deleted rule said nft does not repeat, so
every deletion in the chain FORWARD, where two of ours are, counts.
"""

from __future__ import annotations

_LINKS = frozenset({"network", "sandboxes"})
_RULES = frozenset({"network", "sandboxes", "services"})
_NOTHING = frozenset[str]()
_DEVICES = b"mk8s-"
"""What the names of our devices begin with (module_utils, network/attachment.py)."""
_IPVS = b"minik8s-dummy"


_GONE = b"[LINK]Deleted "


def gone_link(line: bytes) -> str:
    """Return the name of a pod's link that ``line`` says is gone, "" for any other line."""
    if not line.startswith(_GONE):
        return ""
    name = line.split(b": ", 2)[1:2]
    return name[0].partition(b"@")[0].decode("ascii", "replace") if name and name[0].startswith(_DEVICES) else ""


def sections_of(line: bytes, bridge: bytes) -> frozenset[str]:
    """Return the sections that ``line`` may be about on a node whose pods are on ``bridge``; none for most."""
    if line.startswith(b"["):
        if _IPVS in line:
            return frozenset({"services"})
        return _LINKS if _DEVICES in line or bridge in line else _NOTHING
    if line.startswith(b"#"):
        return _NOTHING  # the generation, and who made it
    forward = line.startswith(b"delete ") and b" FORWARD " in line
    return _RULES if forward or bridge in line else _NOTHING
