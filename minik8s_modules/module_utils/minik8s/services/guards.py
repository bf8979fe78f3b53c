"""Who may come from outside: a chain for each list of ranges, which lets their clients return and drops the rest.

``guarded`` maps a place (address, protocol, port) to its chain; several places with the same ranges share one. Chains
are named by a digest of their ranges, written rule by rule (ranges have no limit, names have), and removed when nothing
leads to them. Words: nftables_wire.py.
"""

from __future__ import annotations

import functools
import hashlib
import ipaddress
import re
import struct
from collections.abc import Iterable

from ..network import nftables_wire as wire_words
from ..network.wire import attribute, nested
from .families import family_of

GUARD = re.compile(r"from_[0-9a-f]{16}")
_JUMP, _RETURN, _DROP = -3, -5, 0
_VERDICT_REGISTER = 0


def guard_chain(sources: Iterable[str]) -> str:
    """Return the name of the chain that lets clients of these ranges through."""
    return f"from_{hashlib.sha256(' '.join(sorted(sources)).encode()).hexdigest()[:16]}"


@functools.lru_cache(maxsize=4096)
def jump_to(chain: str) -> bytes:
    """Return the value of a verdict map: look into ``chain``, and come back."""
    return wire_words.verdict_of(chain, _JUMP)


def guard_messages(table: str, sources: Iterable[str]) -> list[bytes]:
    """Return what makes the chain of these ranges."""
    ranges = sorted(sources)
    rules = [_admitting(each) for each in ranges] + [_verdict(_DROP)]
    return wire_words.chain_messages(table, guard_chain(ranges), rules)


def _admitting(cidr: str) -> bytes:
    """Return ``ip saddr <cidr> return``, or ``ip6 saddr``."""
    network, family = ipaddress.ip_network(cidr), family_of(cidr)
    mask, address = network.netmask.packed, network.network_address.packed
    loaded = wire_words.loading(8, 1, family.offsets[0], family.width)
    number = struct.Struct(">I").pack
    masked = wire_words.expression(
        "bitwise",
        *(attribute(kind, number(value)) for kind, value in ((1, 8), (2, 8), (3, family.width))),
        nested(4, attribute(1, mask)),
        nested(5, attribute(1, bytes(family.width))),
    )
    compared = wire_words.expression(
        "cmp", attribute(1, number(8)), attribute(2, number(0)), nested(3, attribute(1, address))
    )
    return loaded + masked + compared + _verdict(_RETURN)


def _verdict(code: int) -> bytes:
    verdict = nested(2, nested(wire_words.VERDICT, attribute(wire_words.VERDICT_CODE, struct.pack(">i", code))))
    return wire_words.expression("immediate", attribute(1, struct.pack(">I", _VERDICT_REGISTER)), verdict)
