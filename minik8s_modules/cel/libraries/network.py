"""IP addresses and networks (pkg/cel/library/ip.go, cidr.go), as Go's net/netip reads them."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from minik8s_modules.cel import types
from minik8s_modules.cel.errors import EvaluationError
from minik8s_modules.cel.types import Type

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_LINK_LOCAL_GROUPS = ipaddress.IPv4Network("224.0.0.0/24")
_MOST_DIGITS = 3  # of a prefix length


@dataclass(frozen=True, slots=True)
class IP:
    """An address."""

    address: Address
    cel_type: ClassVar[Type] = types.IP

    def cel_size(self) -> int:
        """Bytes of the address, as costs count it."""
        return len(self.address.packed)


@dataclass(frozen=True, slots=True)
class CIDR:
    """An address with the length of its network's prefix."""

    address: Address
    bits: int
    cel_type: ClassVar[Type] = types.CIDR

    def cel_size(self) -> int:
        """Bytes of the mask, as costs count it."""
        return (self.bits + 7) // 8

    def masked(self) -> CIDR:
        """The network itself."""
        return CIDR(_masked(self.address, self.bits), self.bits)


def _masked(address: Address, bits: int) -> Address:
    rest = address.max_prefixlen - bits
    return type(address)(int(address) >> rest << rest)


def parse_ip(text: str) -> IP:
    """Return the address; zones and IPv4 addresses within IPv6 are refused."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError as error:
        message = f'IP Address "{text}" parse error during conversion from string: ParseAddr("{text}"): {error}'
        raise EvaluationError(message) from error
    _refuse_forms(address, text)
    return IP(address)


def _refuse_forms(address: Address, text: str) -> None:
    if getattr(address, "scope_id", None) is not None:
        raise EvaluationError(f'IP address "{text}" with zone value is not allowed')
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        raise EvaluationError(f'IPv4-mapped IPv6 address "{text}" is not allowed')


def parse_cidr(text: str) -> CIDR:
    """Return the network; raises EvaluationError."""
    name, _, digits = text.rpartition("/")
    try:
        address = ipaddress.ip_address(name)
        bits = _bits(digits, address.max_prefixlen)
    except ValueError as error:
        message = f'network address parse error during conversion from string: netip.ParsePrefix("{text}"): {error}'
        raise EvaluationError(message) from error
    _refuse_forms(address, text)
    return CIDR(address, bits)


def _bits(digits: str, most: int) -> int:
    if not digits.isascii() or not digits.isdecimal() or len(digits) > _MOST_DIGITS or str(int(digits)) != digits:
        raise ValueError("bad bits after slash")
    if int(digits) > most:
        raise ValueError("prefix length out of range")
    return int(digits)


def _valid(parse: Callable[[str], Any]) -> Callable[[str], bool]:
    def valid(text: str) -> bool:
        try:
            parse(text)
        except EvaluationError:
            return False
        return True

    return valid


def _is_canonical(text: str) -> bool:
    return str(parse_ip(text).address) == text


def _link_local_multicast(ip: IP) -> bool:
    if isinstance(ip.address, ipaddress.IPv4Address):
        return ip.address in _LINK_LOCAL_GROUPS
    return int(ip.address) >> 112 & 0xFF0F == 0xFF02  # noqa: PLR2004 - ff02, whatever the flags


def _global_unicast(ip: IP) -> bool:
    address = ip.address
    if address.is_unspecified or (int(address) == 0xFFFFFFFF and address.version == 4):  # noqa: PLR2004 - broadcast
        return False
    return not (address.is_loopback or address.is_multicast or address.is_link_local)


def _contains_ip(cidr: CIDR, ip: IP) -> bool:
    return cidr.address.version == ip.address.version and _masked(ip.address, cidr.bits) == cidr.masked().address


def _contains_cidr(cidr: CIDR, other: CIDR) -> bool:
    """Whether a network holds another, as documented (1.32 itself finds only those that begin at its own address)."""
    if cidr.address.version != other.address.version or cidr.bits > other.bits:
        return False
    return cidr.masked().address == _masked(other.address, cidr.bits)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "string_to_ip": parse_ip,
    "ip_to_string": lambda ip: str(ip.address),
    "cidr_to_string": lambda cidr: f"{cidr.address}/{cidr.bits}",
    "ip_family": lambda ip: ip.address.version,
    "ip_is_canonical": _is_canonical,
    "ip_is_unspecified": lambda ip: ip.address.is_unspecified,
    "ip_is_loopback": lambda ip: ip.address.is_loopback,
    "ip_is_link_local_multicast": _link_local_multicast,
    "ip_is_link_local_unicast": lambda ip: ip.address.is_link_local,
    "ip_is_global_unicast": _global_unicast,
    "is_ip": _valid(parse_ip),
    "string_to_cidr": parse_cidr,
    "cidr_contains_ip_string": lambda cidr, text: _contains_ip(cidr, parse_ip(text)),
    "cidr_contains_ip_ip": _contains_ip,
    "cidr_contains_cidr_string": lambda cidr, text: _contains_cidr(cidr, parse_cidr(text)),
    "cidr_contains_cidr": _contains_cidr,
    "cidr_ip": lambda cidr: IP(cidr.address),
    "cidr_prefix_length": lambda cidr: cidr.bits,
    "cidr_masked": lambda cidr: cidr.masked(),
    "is_cidr": _valid(parse_cidr),
}
