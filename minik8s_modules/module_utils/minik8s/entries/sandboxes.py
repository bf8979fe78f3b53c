"""Entries of the section ``sandboxes``, key ``<pod uid>``."""

from typing import Annotated, Literal, Optional, TypedDict, Union

from ..core.schema import Default
from .identity import PodIdentity


class _RequiredSandboxDns(TypedDict):
    nameservers: list[str]
    """Servers, in the order they are asked."""
    searches: list[str]
    """Domains that are searched."""
    options: list[str]
    """Options of the resolver, such as V(ndots:5)."""


class SandboxDns(_RequiredSandboxDns, total=False):
    """What the pod's resolv.conf says."""

    node: Annotated[bool, Default(False)]
    """Whether all of that comes after what the node's own resolv.conf says."""


class HostPort(TypedDict):
    """A port of the node that leads to the pod."""

    ip: str
    """Address of the node, of either family; empty for all, V(0.0.0.0) for all of IPv4, V(::) for all of IPv6."""
    protocol: str
    """V(TCP), V(UDP) or V(SCTP)."""
    host_port: int
    """The node's port."""
    port: int
    """The pod's port."""


class _RequiredPodCgroup(TypedDict):
    cpu_shares: int
    """Relative weight of CPU time, as Docker's C(--cpu-shares)."""
    cpu_quota_us: int
    """Microseconds of CPU time in each 100 ms; 0 for no limit."""
    memory_bytes: int
    """Limit of memory in bytes; 0 for no limit."""


class PodCgroup(_RequiredPodCgroup, total=False):
    """Limits of all the pod's containers together."""

    pids: int
    """Limit of processes; left out for none."""
    huge_pages: dict[str, int]
    """Bytes of huge pages, by size of page in bytes; of sizes that are left out, none."""


class CniPlugin(TypedDict):
    """Attachment by CNI plugins."""

    driver: Literal["cni"]
    """Who attaches."""
    conf_dir: str
    """With V(cni): absolute path of the folder with network configurations; the first valid one counts."""
    bin_dirs: list[str]
    """With V(cni): absolute paths of the folders with the plugins' programs."""


class WeavePlugin(TypedDict):
    """Attachment by Weave Net."""

    driver: Literal["weave"]
    """Who attaches."""
    command: str
    """With V(weave): the C(weave) program."""


class _RequiredSandboxNetwork(TypedDict):
    ip: str
    """The pod's IPv4 address; empty where a plugin gives it, or the pod has IPv6 alone, as are the fields beside it."""
    prefix_length: int
    """Prefix length of the pod network on this node."""
    gateway: str
    """Address of the default route; empty where a plugin gives it."""
    bridge: str
    """The node's bridge that the pod is attached to; empty with a plugin."""
    mtu: int
    """MTU of the pod's device."""


class SandboxIpv6(TypedDict):
    """A pod's IPv6 address."""

    ip: str
    """The address."""
    gateway: str
    """Address of the default route."""


class SandboxNetwork(_RequiredSandboxNetwork, total=False):
    """How a pod is attached."""

    ipv6: Optional[SandboxIpv6]
    """The pod's IPv6 address, beside that of IPv4 or alone; null for none."""

    plugin: Optional[Union[CniPlugin, WeavePlugin]]
    """The program that attaches the pod in place of the node's bridge, and gives the address; null for none. C(ip),
    C(gateway) and C(bridge) are empty then, and RV(status) tells the address."""


class SandboxOptions(TypedDict, total=False):
    """What few pods have."""

    fqdn: Annotated[str, Default("")]
    """Name of the pod in the cluster, for its C(/etc/hosts); empty for none."""
    host_aliases: Annotated[list[list[str]], Default(())]
    """Further lines of C(/etc/hosts), as rows of an address and its names."""
    host_pid: Annotated[bool, Default(False)]
    """Whether the pod has the node's process namespace."""
    host_ipc: Annotated[bool, Default(False)]
    """Whether the pod has the node's IPC namespace."""
    share_pid: Annotated[bool, Default(False)]
    """Whether the pod's containers share one process namespace."""
    sysctls: Annotated[list[list[str]], Default(())]
    """Kernel parameters of the pod's namespaces, as rows of name and value."""
    host_ports: Annotated[list[HostPort], Default(())]
    """Ports of the node that lead to the pod."""
    runtime: Annotated[str, Default("")]
    """Name of one of Docker's runtimes, which the pod's containers have as well; empty for Docker's default."""


class _RequiredSandbox(TypedDict):
    pod: PodIdentity
    """The pod; the key is its uid."""
    attempt: int
    """Number of the attempt, from 0."""
    image: str
    """The pause image."""
    hostname: str
    """What the pod's programs are told as the name of the host."""
    host_network: bool
    """Whether the pod has the node's network instead of one of its own. C(ip) and C(gateway) are empty then."""
    dns: SandboxDns
    """What the pod's resolv.conf says."""


class SandboxEntry(_RequiredSandbox, SandboxNetwork, SandboxOptions, total=False):
    """The pause container of a pod, and with it what the pod's containers share."""

    cgroup: Optional[PodCgroup]
    """Limits of all the pod's containers together; null for a pod without a cgroup of its own."""
