"""What differs between the rules of IPv4 and of IPv6: words of nft, sizes, and places in registers.

Both families have a table of their own with the same maps and chains (nftables.py). The section's entry ``dataplane``
has the ranges of IPv6 in ``ipv6``; ``parts_of`` makes of it one configuration a family, with the same fields.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

FIRST_REGISTER = 8  # NFT_REG32_00; there are sixteen of 4 bytes


class Registers(NamedTuple):
    """Where the parts of a key lie: an address of IPv6 takes four registers."""

    client: int
    target: int
    protocol: int
    port: int
    number: int
    end: int
    end_port: int
    spare: int
    """Free until the endpoint is looked up."""


class Family(NamedTuple):
    """One family of addresses."""

    word: str
    number: int
    width: int
    offsets: tuple[int, int]
    """Where source and target stand in the header."""
    registers: Registers
    key: struct.Struct
    """Address, protocol, port."""
    place: struct.Struct
    """Address, port."""

    @property
    def icmp(self) -> str:
        """What nft calls the family's ICMP."""
        return "icmpv6" if self.number == socket.AF_INET6 else "icmp"

    @property
    def type(self) -> str:
        """The type of an address in nft's words."""
        return f"{'ipv6' if self.number == socket.AF_INET6 else 'ipv4'}_addr"

    def packed(self, address: str) -> bytes:
        """Return an address as bytes."""
        return socket.inet_pton(self.number, address)

    def text(self, packed: bytes) -> str:
        """Return an address as text."""
        return socket.inet_ntop(self.number, packed)

    def at(self, address: str, port: int) -> str:
        """Return an address and a port as people write them."""
        return f"[{address}]:{port}" if self.width > IPV4.width else f"{address}:{port}"


def _registers(words: int, spare: int) -> Registers:
    first, behind = FIRST_REGISTER, FIRST_REGISTER + 2 * words
    end = behind + 3
    return Registers(first, first + words, behind, behind + 1, behind + 2, end, end + words, spare)


IPV4 = Family("ip", socket.AF_INET, 4, (12, 16), _registers(1, 15), struct.Struct(">4sB3xH2x"), struct.Struct(">4sH2x"))
# all sixteen registers are taken: what is spare is where the endpoint will be
IPV6 = Family(
    "ip6", socket.AF_INET6, 16, (8, 24), _registers(4, 19), struct.Struct(">16sB3xH2x"), struct.Struct(">16sH2x")
)


def family_of(address: str) -> Family:
    """Return the family of an address or a range."""
    return IPV6 if ":" in address else IPV4


def as_the_kernel_says(address: str) -> str:
    """Return an address as the kernel's answers have it here: one of IPv6 can be written in many ways."""
    family = family_of(address)
    return family.text(family.packed(address)) if family is IPV6 else address


def family_of_key(key: bytes) -> Family:
    """Return the family of a key that begins with an address, whatever number follows."""
    return IPV6 if len(key) >= IPV6.key.size else IPV4


def family_of_table(table: str) -> Family:
    """Return the family of a table as nft writes it."""
    return IPV6 if table.startswith("ip6 ") else IPV4


def parts_of(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the configuration of each family that a dataplane has, that of IPv4 first, which may be missing."""
    own = {name: value for name, value in config.items() if name != "ipv6"}
    found = [own] if config["service_cidr"] else []
    if not config.get("ipv6"):
        return found
    # node ports of IPv6 are at each address of the node, told by "local"; load balancers at the one in the document
    second = {"node_ip": "", "own_ip": config["ipv6"].get("node_ip", ""), "uplink_ip": config.get("node_ip", "")}
    return [*found, {**own, **config["ipv6"], **second, "alone": not found}]


def network_of(cidr: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    """Return a range of either family."""
    return ipaddress.ip_network(cidr)
