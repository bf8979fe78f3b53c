"""The chains that pick an endpoint, as expressions: nft 1.0.6 has no words for remembering a pick."""

from __future__ import annotations

import struct
from typing import NamedTuple

from ..network.nftables_wire import expression, loading, number
from ..network.wire import attribute, nested, text
from .families import IPV4, Family


def _lookup(name: str, source: int, into: int) -> bytes:
    return expression("lookup", text(1, name), number(2, source), number(3, into))


def _meta_into(register: int, key: int) -> bytes:
    return expression("meta", number(1, register), number(2, key))


_MARK, _PROTOCOL = 3, 16  # NFT_META_MARK, NFT_META_L4PROTO


def _where(family: Family) -> bytes:
    """Return what loads client, service address, protocol and port."""
    registers, (source, target) = family.registers, family.offsets
    return b"".join(
        (
            loading(registers.client, 1, source, family.width),
            loading(registers.target, 1, target, family.width),
            _meta_into(registers.protocol, _PROTOCOL),
            loading(registers.port, 2, 2, 2),
        )
    )


def _nat(family: Family) -> bytes:
    """Return destination NAT to the endpoint in the registers."""
    at = family.registers
    return expression("nat", number(1, 1), number(2, family.number), number(3, at.end), number(5, at.end_port))


class Pick(NamedTuple):
    """How a chain picks: from which map, whether its key has the address, of how many."""

    endpoints: str
    has_address: bool
    choices: int
    mark: int
    """Bits to set in the packet's mark; 0 for none."""


def pick_rules(pick: Pick, affinity: str, timeout_s: int, family: Family = IPV4) -> list[bytes]:
    """Return the expressions of each rule of a chain that picks; ``timeout_s`` 0 is without affinity.

    With affinity: ``update`` remembers a number for the client, or keeps the one that is remembered and renews its
    time; the next rule goes where that number says. It passes through the packet's mark, which is put back: nft 1.0.6
    aborts when it lists a map's result within a key. The last rule picks without, where no more clients fit.
    """
    at, where, nat = family.registers, _where(family), _nat(family)
    turn = expression("numgen", number(1, at.number), number(2, pick.choices), number(3, 0))  # modulus, in turn
    endpoint = _lookup(pick.endpoints, at.target if pick.has_address else at.protocol, at.end)
    rules = [b"".join((where, turn, endpoint, nat))]
    if timeout_s:
        timeout = attribute(6, struct.pack(">Q", timeout_s * 1000))
        client, kept = number(4, at.client), number(5, at.number)
        remember = expression("dynset", text(1, affinity), number(3, 1), client, kept, timeout)
        recall = (
            _meta_into(at.spare, _MARK),
            _lookup(affinity, at.client, at.number),
            _meta_from(at.number),
            _meta_into(at.number, _MARK),
            _meta_from(at.spare),
        )
        rules.insert(0, b"".join((where, turn, remember)))
        rules.insert(1, b"".join((where, *recall, endpoint, nat)))
    if pick.mark:
        rules.insert(0, _marking(pick.mark))
    return rules


def _meta_from(register: int) -> bytes:
    return expression("meta", number(2, _MARK), number(3, register))


def _marking(bits: int) -> bytes:
    """Return ``mark = (mark & ~bits) ^ bits``."""
    mask = attribute(1, struct.pack("=I", ~bits & 0xFFFFFFFF))
    flip = attribute(1, struct.pack("=I", bits))
    change = (number(1, 8), number(2, 8), number(3, 4), nested(4, mask), nested(5, flip))
    return _meta_into(8, _MARK) + expression("bitwise", *change) + _meta_from(8)
