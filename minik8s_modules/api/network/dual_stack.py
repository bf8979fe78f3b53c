"""IPv6 addresses of pods: beside those of IPv4, computed, so that whoever knows one knows the other; or alone. Pure.

The range of IPv6 is cut as that of IPv4 is: each block of 256 addresses (a node's /24) is a /64, of the same number and
in the same order, and an address has the same place in its block. So 10.244.3.7 of 10.244.0.0/16 is
fd00:10:244:3::7 of fd00:10:244::/48, and a claim of the one (PodCIDR, PodAddress) is a claim of the other.

Where pods have IPv6 alone, ranges and addresses that are claimed are of it, and belong to themselves.
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
NODE_PREFIX_IPV6 = _BITS_IPV6 - _BLOCK_BITS_IPV6


@functools.lru_cache(maxsize=8)
def _ipv4(cidr: str) -> ipaddress.IPv4Network:
    return ipaddress.IPv4Network(cidr)


@functools.lru_cache(maxsize=8)
def _ipv6(cidr: str) -> ipaddress.IPv6Network:
    return ipaddress.IPv6Network(cidr)


@dataclass(frozen=True)
class DualStack:
    """The ranges of all pods, of IPv4 and of IPv6; "" for the latter: nobody has such an address.

    ``ipv4`` is "" where nobody has one of IPv4.
    """

    ipv4: str = ""
    cluster_cidr: str = ""

    def __bool__(self) -> bool:
        """Return whether pods have IPv6 addresses."""
        return bool(self.cluster_cidr)

    @property
    def alone(self) -> bool:
        """Whether pods have IPv6 addresses alone."""
        return bool(self) and not self.ipv4

    def range_of(self, cidr: str) -> str:
        """Return the range of IPv6 that belongs to a claimed one; "" for none, as of one that is not the cluster's."""
        if self.alone:
            return cidr if _is_within(cidr, self.cluster_cidr) else ""
        network = ipaddress.IPv4Network(cidr) if self and cidr and ":" not in cidr else None
        if network is None or not network.subnet_of(_ipv4(self.ipv4)):
            return ""
        inner = _BITS - network.prefixlen
        bits = inner if inner < _BLOCK_BITS else inner - _BLOCK_BITS + _BLOCK_BITS_IPV6
        return f"{self._computed(network.network_address)}/{_BITS_IPV6 - bits}"

    def address_of(self, address: str) -> str:
        """Return the IPv6 address that belongs to a claimed one; "" for none, as of one of another family."""
        if self.alone:
            return address if _is_within(address, self.cluster_cidr) else ""
        found = ipaddress.IPv4Address(address) if self and address and ":" not in address else None
        return str(self._computed(found)) if found is not None and found in _ipv4(self.ipv4) else ""

    def takes(self, claimed: str) -> bool:
        """Return whether pods can have a claimed range or address: of IPv6 alone it is the cluster's, else of IPv4.

        Nodes claim both, and the API server does not know which ones a cluster has.
        """
        return _is_within(claimed, self.cluster_cidr) if self.alone else ":" not in claimed

    def gateway_of(self, cidr: str) -> str:
        """Return the first address of the range of IPv6 that belongs to a claimed one; "" for none."""
        found = self.range_of(cidr)
        return str(ipaddress.IPv6Network(found).network_address + 1) if found else ""

    def ranges_of(self, cidr: str) -> list[str]:
        """Return what a Node's ``podCIDRs`` are."""
        return [each for each in dict.fromkeys((cidr, self.range_of(cidr))) if each]

    def addresses_of(self, address: str) -> list[str]:
        """Return what a Pod's ``podIPs`` are."""
        return [each for each in dict.fromkeys((address, self.address_of(address))) if each]

    def _computed(self, address: ipaddress.IPv4Address) -> ipaddress.IPv6Address:
        block, place = divmod(int(address) - int(_ipv4(self.ipv4).network_address), 1 << _BLOCK_BITS)
        first = ipaddress.IPv6Address(self.cluster_cidr.partition("/")[0])
        return first + ((block << _BLOCK_BITS_IPV6) + place)


def _is_within(text: str, cluster: str) -> bool:
    """Return whether an IPv6 address or range lies in a range; one of IPv4 does not."""
    if ":" not in text:
        return False
    return ipaddress.IPv6Network(text).subnet_of(_ipv6(cluster))


def longest_prefix(ipv4: ipaddress.IPv4Network) -> int:
    """Return the longest prefix that a range of IPv6 beside this one can have."""
    return _BITS_IPV6 - _BLOCK_BITS_IPV6 - max(0, _BITS - _BLOCK_BITS - ipv4.prefixlen)


SINGLE_STACK = DualStack()


def read_dual_stack(configuration: Configuration, cluster_cidr: str) -> DualStack:
    """Return what ``cluster_cidr_ipv6`` says, beside the range of IPv4; or that ``cluster_cidr`` is of IPv6 alone.

    Raises:
        ConfigurationError: it is no range, or has not a /64 for each /24 of ``cluster_cidr``.
    """
    text = configuration.text("cluster_cidr_ipv6", "")
    if ":" in cluster_cidr:
        return _alone(cluster_cidr, text)
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


def _alone(cluster_cidr: str, beside: str) -> DualStack:
    if beside:
        message = f"cluster_cidr {cluster_cidr} is of IPv6: Pods have no other addresses; for both, it must be of IPv4"
        raise ConfigurationError(f"cluster_cidr_ipv6 is {beside}, and {message}")
    if ipaddress.IPv6Network(cluster_cidr).prefixlen > NODE_PREFIX_IPV6:
        raise ConfigurationError(
            f"cluster_cidr {cluster_cidr} is too small: each node gets a /{NODE_PREFIX_IPV6} of it"
        )
    return DualStack("", cluster_cidr)


def same_family(cluster_cidr: str, service_cidr: str) -> None:
    """Refuse Services of another family than Pods'.

    Raises:
        ConfigurationError: one of the ranges is of IPv6, and the other of IPv4.
    """
    if cluster_cidr and service_cidr and (":" in cluster_cidr) != (":" in service_cidr):
        raise ConfigurationError(
            f"cluster_cidr {cluster_cidr} and service_cidr {service_cidr} must be of one family: Services lead to Pods;"
            " for both families, give both ranges of IPv4, and further ones as cluster_cidr_ipv6 and service_cidr_ipv6"
        )
