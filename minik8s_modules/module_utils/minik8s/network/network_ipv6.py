"""What the drivers ``bridge`` and ``vxlan`` do beside, where pods have IPv6 addresses: forwarding, masquerade, leave.

Pods have addresses of one each (/128) and reach everybody, each other too, through the node: so whatever they send is
forwarded, and passes the rules of policies. Neither side looks for the other: both are told each other's MAC for good
(attachment.py), and what pods send of neighbour discovery is dropped (sources.py). So no pod can pass as the router, or
as another pod.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from typing import Any, Callable, NamedTuple

from ..core.faults import KeyFault
from ..core.schema import check_fields, schema_of
from ..core.section import Context, Facets
from ..entries.network import Ipv6
from . import ipv6_switches, netfilter
from .netfilter import IPV6
from .switches import SYSCTL, read_switch, set_switch

LEAST_MTU = 1280  # RFC 8200: what every link of IPv6 must carry
ENTRY = schema_of(Ipv6)


class ObservedIpv6(NamedTuple):
    """What the kernel has of it; ``forwards`` None: no ip6tables, where nothing drops."""

    forwarding: str
    chains: dict[str, list[str]]
    forwards: dict[str, list[str]] | None

    def bridges(self, node: str) -> set[str]:
        """Return the bridges that rules of a node are left of."""
        return {*netfilter.chains_of(node, self.chains), *(self.forwards or {})}


def observe(node: str) -> ObservedIpv6:
    """Return what there is."""
    return ObservedIpv6(read_switch(ipv6_switches.FORWARDING), netfilter.chains(IPV6), netfilter.forwards(node, IPV6))


def check(where: str, entry: Mapping[str, Any]) -> None:
    """Raise KeyFault for ranges that cannot be used."""
    if "ipv6" not in entry:
        return
    given, where = entry["ipv6"], f"{where}.ipv6"
    check_fields(where, given, ENTRY)
    try:
        cidr, cluster = ipaddress.IPv6Network(given["cidr"]), ipaddress.IPv6Network(given["cluster_cidr"])
        gateway = ipaddress.IPv6Address(given["gateway"])
    except ValueError as error:
        raise KeyFault("InvalidEntry", f"{where}: {error}") from None
    if gateway not in cidr or not cidr.subnet_of(cluster):
        raise KeyFault("InvalidEntry", f"{where}: {gateway} must be in {cidr}, and that in {cluster}")
    if entry["mtu"] < LEAST_MTU:
        raise KeyFault("InvalidEntry", f"{where}: the mtu is {entry['mtu']}; IPv6 needs at least {LEAST_MTU}")


def declared(node: str, entry: Mapping[str, Any], seen: ObservedIpv6 | None) -> Facets:
    """Return what should be; no rules where pods have no such addresses any more."""
    if "ipv6" in entry:
        rules = netfilter.masquerade_rule(node, entry["ipv6"]["cidr"], entry["ipv6"]["cluster_cidr"])
        passing = "; ".join(netfilter.forward_rules(node, entry["bridge"]))
        return {"ipv6_forwarding": "1", "ipv6_masquerade": rules, "ipv6_forward": passing}
    return {"ipv6_masquerade": "", "ipv6_forward": ""} if seen is not None else {}


def found(entry: Mapping[str, Any], seen: ObservedIpv6 | None) -> Facets:
    """Return what is."""
    if seen is None:
        return {}
    rules = seen.chains.get(entry["bridge"], [])
    masquerades = [line for line in rules if line != netfilter.HOOK] if netfilter.HOOK in rules else []
    passing = (seen.forwards or {}).get(entry["bridge"], [])
    return {
        "ipv6_forwarding": seen.forwarding,
        "ipv6_masquerade": "; ".join(masquerades),
        "ipv6_forward": "; ".join(passing),
    }


def open_device(name: str) -> None:
    """Let a device have IPv6 addresses, where the machine's defaults do not.

    Raises:
        KeyFault: the kernel has no IPv6.
    """
    if not os.path.isdir(f"{SYSCTL}ipv6"):
        raise KeyFault("NetworkNotReady", "the kernel of this machine has no IPv6 (or ipv6.disable=1)")
    switch = f"ipv6/conf/{name}/disable_ipv6"
    if read_switch(switch) != "0":
        set_switch(switch, "0")


def remove(node: str, bridge: str) -> None:
    """Remove the rules of a bridge that goes."""
    _set_forwards(node, bridge, [])
    _set_masquerade(bridge, "")


def _mend_forwarding(context: Context, entry: Mapping[str, Any]) -> None:
    context.checkpoint("ipv6 forwarding")
    ipv6_switches.forward(context.state_dir, entry["bridge"])


def _mend_masquerade(context: Context, entry: Mapping[str, Any]) -> None:
    context.checkpoint("nft transaction")
    _set_masquerade(entry["bridge"], declared(context.node, entry, None).get("ipv6_masquerade", ""))


def _mend_forward(context: Context, entry: Mapping[str, Any]) -> None:
    context.checkpoint("ip6tables transaction")
    rules = netfilter.forward_rules(context.node, entry["bridge"]) if "ipv6" in entry else []
    _set_forwards(context.node, entry["bridge"], rules)


def _set_masquerade(bridge: str, rule: str) -> None:
    if rule:
        netfilter.set_chain(bridge, rule, IPV6)
    elif bridge in (there := netfilter.chains(IPV6)):
        netfilter.delete_chain(bridge, last=set(there) <= {bridge}, family=IPV6)


def _set_forwards(node: str, bridge: str, wanted: list[str]) -> None:
    there = netfilter.forwards(node, IPV6)
    if there is not None and (there.get(bridge) or wanted):
        netfilter.set_forwards(there.get(bridge, []), wanted, IPV6)


MENDING: dict[str, Callable[[Context, Mapping[str, Any]], None]] = {
    "ipv6_forwarding": _mend_forwarding,
    "ipv6_masquerade": _mend_masquerade,
    "ipv6_forward": _mend_forward,
}
"""What makes each aspect right."""
