"""Entries of the section ``network``: one, of the key ``pod-network``."""

from typing import TypedDict


class _RequiredPeer(TypedDict):
    cidr: str
    """Range of its pods; empty where they have IPv6 alone. The first address is the next hop to them."""
    address: str
    """Address of its machine, where tunnels end."""


class Peer(_RequiredPeer, total=False):
    """Another node of the overlay."""

    cidr_ipv6: str
    """Range of its pods' IPv6 addresses; it is always reached through a tunnel."""


class Ipv6(TypedDict):
    """The IPv6 addresses of pods."""

    cidr: str
    """Range of the node's pods."""
    gateway: str
    """Address of the bridge, the pods' default route."""
    cluster_cidr: str
    """Range of all pods of the cluster."""


class Overlay(TypedDict):
    """Ways to the pods of other nodes over VXLAN. A node's MAC in it is 02 and 40 bits of the sha256 of its name."""

    device: str
    """Name of the VXLAN device, such as V(mk8s-vx0)."""
    vni: int
    """VXLAN network identifier, 1 to 16777215."""
    port: int
    """UDP port of the tunnels."""
    address: str
    """This machine's address, where tunnels leave; of IPv4 or IPv6, as those of the peers."""
    direct: bool
    """Whether peers in the same network as C(address) are routed to without a tunnel; not where it is of IPv6."""
    peers: dict[str, Peer]
    """Other nodes, by name."""


class CniPart(TypedDict):
    """Where CNI plugins are."""

    conf_dir: str
    """Absolute path of the folder with network configurations; the first valid one counts."""
    bin_dirs: list[str]
    """Absolute paths of the folders with the plugins' programs."""


class WeavePart(TypedDict):
    """Weave Net on this node."""

    command: str
    """The C(weave) program."""
    peers: list[str]
    """Addresses of the machines that the node connects to."""


class _RequiredNetwork(TypedDict):
    driver: str
    """Who attaches pods: V(bridge) and V(vxlan) are ours, V(cni) and V(weave) are programs of others."""
    bridge: str
    """Name of the bridge, up to 15 letters. With V(cni) and V(weave) it has no address and serves services only."""
    cluster_cidr: str
    """Range of all pods of the cluster; empty where they have IPv6 alone."""
    mtu: int
    """MTU of the bridge and of pods; with V(vxlan) at least 50 below that of the device with C(overlay.address), or 70
    where this is of IPv6."""


class NetworkEntry(_RequiredNetwork, total=False):
    """The network that the node's pods are attached to."""

    cidr: str
    """With V(bridge) and V(vxlan): range of the node's pods; left out, with C(gateway), where they have IPv6 alone."""
    gateway: str
    """With V(bridge) and V(vxlan): address of the bridge, the pods' default route."""
    ipv6: Ipv6
    """With V(bridge) and V(vxlan): the pods' IPv6 addresses; left out where they have none."""
    overlay: Overlay
    """With V(vxlan): the ways to the other nodes' pods."""
    cni: CniPart
    """With V(cni): where its plugins are."""
    weave: WeavePart
    """With V(weave): the program and its peers."""
