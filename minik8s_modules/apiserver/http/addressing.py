"""Which addresses an installation has: of Pods, and those that load balancers give out. What nodes say goes by it."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple

from minik8s_modules.api.network.balancing import NO_BALANCING, Balancing, Network, is_within, read_balancing
from minik8s_modules.api.network.dual_stack import SINGLE_STACK, DualStack, read_dual_stack
from minik8s_modules.base.config import Configuration


class Addressing(NamedTuple):
    """The ranges of Pods and the pool; where the installation does not tell them, they are empty."""

    cluster_cidr: str = ""
    dual_stack: DualStack = SINGLE_STACK
    balancing: Balancing = NO_BALANCING

    @property
    def pod_ranges(self) -> list[str]:
        """The ranges that nodes' own are cut from."""
        return [each for each in dict.fromkeys((self.cluster_cidr, self.dual_stack.cluster_cidr)) if each]

    def is_of_pods(self, network: Network) -> bool:
        """Return whether a range is a part of these, or they are not known."""
        known = [ipaddress.ip_network(each) for each in self.pod_ranges]
        return not known or any(is_within(network, each) for each in known)


UNKNOWN = Addressing()


def read_addressing(configuration: Configuration) -> Addressing:
    """Return what an API server's configuration says of them.

    Raises:
        ConfigurationError: it cannot be used.
    """
    cluster_cidr = configuration.network("cluster_cidr", "", may_be_empty=True, may_be_ipv6=True)
    dual_stack = read_dual_stack(configuration, cluster_cidr)
    services = (configuration.text("service_cidr", "100.0.0.0/24"), configuration.text("service_cidr_ipv6", ""))
    balancing = read_balancing(configuration, (cluster_cidr, dual_stack.cluster_cidr, *services))
    return Addressing(cluster_cidr, dual_stack, balancing)
