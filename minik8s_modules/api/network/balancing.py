"""What an installation says of load balancers: the pool of addresses, ports that it keeps, the default class. Pure."""

from __future__ import annotations

import ipaddress
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from minik8s_modules.base.config import Configuration
from minik8s_modules.base.errors import ConfigurationError

WAYS = ("nodes", "pool", "none")
LARGEST_POOL = 1 << 16
_ABOVE = 1 << 128


Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
FAMILIES = {"IPv4": 4, "IPv6": 6}


class Span(NamedTuple):
    """Addresses of one family from one to another, both included."""

    first: Address
    last: Address

    def holds(self, address: str) -> bool:
        """Return whether an address is one of them."""
        found = ipaddress.ip_address(address)
        return found.version == self.first.version and int(self.first) <= int(found) <= int(self.last)

    def addresses(self) -> Iterator[str]:
        """Yield them, in order."""
        made = type(self.first)
        return (str(made(number)) for number in range(int(self.first), int(self.last) + 1))


class Ranges(NamedTuple):
    """Networks as numbers, sorted, so that looking up an address takes no longer with many of them."""

    spans: tuple[tuple[int, int, int], ...] = ()
    """Version, first and last address of each; none within another."""

    def holds(self, address: str) -> bool:
        """Return whether an address is in one of them."""
        if not self.spans:
            return False
        found = ipaddress.ip_address(address)
        at = bisect_right(self.spans, (found.version, int(found), _ABOVE)) - 1
        return at >= 0 and self.spans[at][0] == found.version and int(found) <= self.spans[at][2]


def ranges_of_networks(networks: Iterable[Network]) -> Ranges:
    """Return networks to look addresses up in."""
    spans: list[tuple[int, int, int]] = []
    for each in sorted(networks, key=lambda one: (one.version, int(one.network_address), one.prefixlen)):
        first, last = int(each.network_address), int(each.broadcast_address)
        if not spans or (each.version, first) > (spans[-1][0], spans[-1][2]):
            spans.append((each.version, first, last))
    return Ranges(tuple(spans))


class Balancing(NamedTuple):
    """What the installation says of load balancers."""

    default: str = "none"
    """What becomes of a Service that names no class: ``nodes``, ``pool``, or ``none``, which leaves it to others."""
    pool: tuple[Span, ...] = ()
    kept_ports: frozenset[int] = frozenset()
    """Ports of the nodes' own addresses that no Service gets."""
    external_ips: bool = False
    health_checks: bool = True
    """Whether nodes answer health checks: those with nginx do."""
    ranges: tuple[Network, ...] = ()
    """Of Pods and of Services, and the name server's address: none of these is outside."""

    def in_pool(self, address: str) -> bool:
        """Return whether an address is one to give out."""
        return any(span.holds(address) for span in self.pool) and not self.is_own(address)

    def is_own(self, address: str) -> bool:
        """Return whether an address is the cluster's own."""
        found = ipaddress.ip_address(address)
        return any(found in network for network in self.ranges)

    def further(self, ranges: Iterable[str]) -> Ranges:
        """Return which ranges of nodes are no parts of the installation's; what is no range is left out."""
        found = (network for each in ranges if (network := _network(each)) is not None)
        return ranges_of_networks(each for each in found if not any(is_within(each, own) for own in self.ranges))

    def pool_of(self, family: str) -> list[Span]:
        """Return what of the pool is of a family, ``IPv4`` or ``IPv6``."""
        return [span for span in self.pool if span.first.version == FAMILIES[family]]


NO_BALANCING = Balancing()


def is_within(network: Network, other: Network) -> bool:
    """Return whether all addresses of a range are of another one."""
    if isinstance(network, ipaddress.IPv4Network):
        return isinstance(other, ipaddress.IPv4Network) and network.subnet_of(other)
    return isinstance(other, ipaddress.IPv6Network) and network.subnet_of(other)


@lru_cache(maxsize=1 << 14)
def _network(text: str) -> Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:  # it was written before ranges were checked
        return None


def read_balancing(configuration: Configuration, ranges: Iterable[str]) -> Balancing:
    """Return what ``load_balancer`` says; left out, Services of type LoadBalancer are others'.

    The name server's address (``dns.listen``) is nobody's either, though it may lie in the pool: it may be a machine's.

    Raises:
        ConfigurationError: it cannot be used.
    """
    own = tuple(ipaddress.ip_network(each) for each in ranges if each)
    kept = (*own, *_name_server(configuration.text("dns.listen", "")))
    if not configuration.has("load_balancer"):
        return Balancing(ranges=kept)
    default = configuration.text("load_balancer.default", "none")
    if default not in WAYS:
        raise ConfigurationError(f"load_balancer.default must be one of {', '.join(WAYS)}, not {default!r}")
    pool = tuple(_span(text, own) for text in configuration.texts("load_balancer.addresses", []))
    if default == "pool" and not pool:
        raise ConfigurationError("load_balancer.default is pool, and load_balancer.addresses names no address")
    ports = configuration.rows("load_balancer.kept_ports") if configuration.has("load_balancer.kept_ports") else []
    external = configuration.flag("load_balancer.external_ips", default=False)
    checks = configuration.flag("load_balancer.health_checks", default=True)
    return Balancing(default, pool, frozenset(_ports(ports)), external, checks, kept)


def _name_server(text: str) -> tuple[Network, ...]:
    try:
        return (ipaddress.ip_network(text),) if text else ()
    except ValueError as error:
        raise ConfigurationError(f"dns.listen must be an IP address: {error}") from error


def _span(text: str, own: Sequence[Network]) -> Span:
    """Return the addresses of ``10.0.0.5``, ``10.0.0.5-10.0.0.9`` or ``10.0.0.0/28`` (but the first and the last)."""
    span = _parsed(text)
    if span.first.version != span.last.version or not 0 <= int(span.last) - int(span.first) < LARGEST_POOL:
        raise ConfigurationError(f"load_balancer.addresses: {text!r} must have 1 to {LARGEST_POOL} addresses, in order")
    for network in own:
        overlaps = int(span.first) <= int(network.broadcast_address) and int(network.network_address) <= int(span.last)
        if network.version == span.first.version and overlaps:
            raise ConfigurationError(f"load_balancer.addresses: {text!r} overlaps {network}, the cluster's own range")
    return span


def _parsed(text: str) -> Span:
    try:
        if "/" in text:
            network = ipaddress.ip_network(text)
            inner = 1 if network.num_addresses > 2 else 0  # noqa: PLR2004 - a network and a broadcast address
            return Span(network.network_address + inner, network.broadcast_address - inner)
        first, _, last = text.partition("-")
        return Span(ipaddress.ip_address(first), ipaddress.ip_address(last or first))
    except ValueError as error:
        raise ConfigurationError(f"load_balancer.addresses: {text!r} is no address, range or CIDR: {error}") from error


def _ports(told: Iterable[object]) -> Iterator[int]:
    for each in told:
        first, _, last = str(each).partition("-")
        if not first.isdecimal() or not (last or first).isdecimal():
            raise ConfigurationError(f"load_balancer.kept_ports: {each!r} is no port or range of ports")
        yield from range(int(first), int(last or first) + 1)
