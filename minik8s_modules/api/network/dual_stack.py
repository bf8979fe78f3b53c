"""IPv6 addresses of pods beside those of IPv4: computed, so that whoever knows one knows the other. Pure.

The range of IPv6 is cut as that of IPv4 is: each block of 256 addresses (a node's /24) is a /64, of the same number and
in the same order, and an address has the same place in its block. So 10.244.3.7 of 10.244.0.0/16 is
fd00:10:244:3::7 of fd00:10:244::/48, and a claim of the one (PodCIDR, PodAddress) is a claim of the other.
"""

from __future__ import annotations

import functools
import ipaddress
from dataclasses import dataclass

from minik8s_modules.base.config import Configuration
from minik8s_modules.base.errors import ConfigurationError

_BLOCK_BITS, _BLOCK_BITS_IPV6 = 8, 64
"""Bits of a place within a node's block: /24 and, Kubernetes' default of --node-cidr-mask-size-ipv6, /64."""
_BITS, _BITS_IPV6 = 32, 128


@functools.lru_cache(maxsize=8)
def _ipv4(cidr: str) -> ipaddress.IPv4Network:
    return ipaddress.IPv4Network(cidr)


@dataclass(frozen=True)
class DualStack:
    """The ranges of all pods, of IPv4 and of IPv6; "" for the latter: nobody has such an address."""

    ipv4: str = ""
    cluster_cidr: str = ""

    def __bool__(self) -> bool:
        """Return whether pods have IPv6 addresses."""
        return bool(self.cluster_cidr)

    def range_of(self, cidr: str) -> str:
        """Return the range that belongs to one of IPv4; "" for none, as of one that is not the cluster's."""
        network = ipaddress.IPv4Network(cidr) if self and cidr else None
        if network is None or not network.subnet_of(_ipv4(self.ipv4)):
            return ""
        inner = _BITS - network.prefixlen
        bits = inner if inner < _BLOCK_BITS else inner - _BLOCK_BITS + _BLOCK_BITS_IPV6
        return f"{self._computed(network.network_address)}/{_BITS_IPV6 - bits}"

    def address_of(self, address: str) -> str:
        """Return the address that belongs to one of IPv4; "" for none."""
        found = ipaddress.IPv4Address(address) if self and address else None
        return str(self._computed(found)) if found is not None and found in _ipv4(self.ipv4) else ""

    def gateway_of(self, cidr: str) -> str:
        """Return the first address of the range that belongs to one of IPv4; "" for none."""
        found = self.range_of(cidr)
        return str(ipaddress.IPv6Network(found).network_address + 1) if found else ""

    def ranges_of(self, cidr: str) -> list[str]:
        """Return what a Node's ``podCIDRs`` are."""
        return [each for each in (cidr, self.range_of(cidr)) if each]

    def addresses_of(self, address: str) -> list[str]:
        """Return what a Pod's ``podIPs`` are."""
        return [each for each in (address, self.address_of(address)) if each]

    def _computed(self, address: ipaddress.IPv4Address) -> ipaddress.IPv6Address:
        block, place = divmod(int(address) - int(_ipv4(self.ipv4).network_address), 1 << _BLOCK_BITS)
        first = ipaddress.IPv6Address(self.cluster_cidr.partition("/")[0])
        return first + ((block << _BLOCK_BITS_IPV6) + place)


def longest_prefix(ipv4: ipaddress.IPv4Network) -> int:
    """Return the longest prefix that a range of IPv6 beside this one can have."""
    return _BITS_IPV6 - _BLOCK_BITS_IPV6 - max(0, _BITS - _BLOCK_BITS - ipv4.prefixlen)


SINGLE_STACK = DualStack()


def read_dual_stack(configuration: Configuration, cluster_cidr: str) -> DualStack:
    """Return what ``cluster_cidr_ipv6`` says, beside the range of IPv4.

    Raises:
        ConfigurationError: it is no range, or has not a /64 for each /24 of ``cluster_cidr``.
    """
    text = configuration.text("cluster_cidr_ipv6", "")
    if not text:
        return SINGLE_STACK
    if not cluster_cidr:
        raise ConfigurationError(f"cluster_cidr_ipv6 is {text}: it needs cluster_cidr, whose addresses it goes by")
    try:
        ipv4, ipv6 = ipaddress.IPv4Network(cluster_cidr), ipaddress.IPv6Network(text)
    except ValueError as error:
        raise ConfigurationError(
            f"cluster_cidr_ipv6 must be an IPv6 network such as fd00:10:244::/48: {error}"
        ) from error
    longest = longest_prefix(ipv4)
    if ipv6.prefixlen > longest:
        text = f"must be a /{longest} or larger: it needs a /64 for each /24 of {ipv4}"
        raise ConfigurationError(f"cluster_cidr_ipv6 {ipv6} {text}")
    return DualStack(str(ipv4), str(ipv6))
