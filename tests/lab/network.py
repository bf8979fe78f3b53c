"""The lab's network: a bridge in a network namespace of its own, one cable to the host, one port a node.

The host's firewall and Docker do not see the nodes' traffic. Nodes have no way out: their default route leads to an
address on the bridge, in a namespace that does not forward, and the host's end of the cable does not forward either.
All of this is lines for ``ip -batch``, made by pure functions.
"""

from __future__ import annotations

from tests.lab.records import GATEWAY_NUMBER, HOST_NUMBER, LabRecord, Names, NodeRecord

BRIDGE = "br0"
# Debian's iproute2 binds namespaces here.
NETNS = "/run/netns"


def lab_lines(lab: LabRecord) -> list[str]:
    """Return the lines, for the host, that make the namespace and the cable."""
    name = Names(lab.name).network
    return [
        f"netns add {name}",
        f"link add {name} type veth peer name host netns {name}",
        f"address add {lab.address(HOST_NUMBER)}/24 dev {name}",
        f"link set {name} up",
    ]


def bridge_lines(lab: LabRecord) -> list[str]:
    """Return the lines, for the lab's namespace, that make the bridge."""
    return [
        f"link add {BRIDGE} type bridge",
        f"address add {lab.address(GATEWAY_NUMBER)}/24 dev {BRIDGE}",
        f"link set {BRIDGE} up",
        "link set lo up",
        f"link set host master {BRIDGE} up",
    ]


def plug_line(node: NodeRecord) -> str:
    """Return the line, for the lab's namespace, that puts the node's cable in, or pulls it."""
    port = Names.port(node.number)
    return f"link set {port} nomaster up" if node.cut_off else f"link set {port} master {BRIDGE} up"


def mac(lab: LabRecord, node: NodeRecord) -> str:
    """Return the node's hardware address, the same at every boot: the others remember it."""
    return "52:54:" + ":".join(f"{int(part):02x}" for part in lab.node_address(node).split("."))


def tap_lines(node: NodeRecord) -> list[str]:
    """Return the lines, for the lab's namespace, that make a UML node's port."""
    return [f"tuntap add dev {Names.port(node.number)} mode tap", plug_line(node)]


def veth_lines(lab: LabRecord, node: NodeRecord) -> list[str]:
    """Return the lines, for the host, that make a native node's namespace and its cable."""
    names = Names(lab.name)
    space = names.node_network(node.name)
    peer = f"peer name eth0 address {mac(lab, node)} netns {space}"
    return [
        f"netns add {space}",
        f"link add {names.port(node.number)} netns {names.network} type veth {peer}",
    ]


def inside_lines(lab: LabRecord, node: NodeRecord) -> list[str]:
    """Return the lines, for a native node's namespace, that give it its address."""
    return [
        "link set lo up",
        f"address add {lab.node_address(node)}/24 dev eth0",
        "link set eth0 up",
        f"route add default via {lab.address(GATEWAY_NUMBER)}",
    ]
