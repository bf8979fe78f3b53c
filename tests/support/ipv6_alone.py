"""What the nodes of tests/support/dual_stack.py have where Pods and Services have IPv6 addresses alone."""

from __future__ import annotations

from typing import Any

from tests.support.dual_stack import DUAL, Machine

SERVICES = "fd00:100::/112"


def network(machine: Machine, *peers: Machine) -> dict[str, Any]:
    """Return what the machine's network is to be; tunnels go over IPv6, too."""
    (entry,) = machine.network(*peers).values()
    known = {one.node: {"cidr": "", "cidr_ipv6": DUAL.range_of(one.cidr), "address": machine_of(one)} for one in peers}
    overlay = {**entry["overlay"], "address": machine_of(machine), "peers": known}
    left = {name: value for name, value in entry.items() if name not in {"cidr", "gateway"}}
    return {"pod-network": {**left, "cluster_cidr": "", "mtu": 1430, "overlay": overlay}}


def machine_of(machine: Machine) -> str:
    """Return the machine's own IPv6 address."""
    return f"2001:db8::{machine.number}"


def sandboxes(machine: Machine, *numbers: int, **fields: Any) -> dict[str, Any]:
    """Return the sandboxes of Pods, which have their number as the last part of their addresses."""
    alone: dict[str, Any] = {"ip": "", "prefix_length": 0, "gateway": "", "mtu": 1430}
    return machine.sandboxes(*numbers, **alone, **fields)


def start(machine: Machine, *numbers: int, **fields: Any) -> None:
    """Start Pods; ``fields`` are of the first alone."""
    entries = sandboxes(machine, *numbers)
    entries |= sandboxes(machine, numbers[0], **fields)
    status = machine.run("sandboxes", entries)["status"]
    for number, uid in zip(numbers, entries, strict=True):
        machine.pids[number] = machine.docker.inspect(status[uid]["id"])["State"]["Pid"]  # type: ignore[index]  # it runs


def plane(machine: Machine) -> dict[str, Any]:
    """Return how the machine realizes Services."""
    ranges = {"service_cidr": SERVICES, "cluster_cidr": DUAL.cluster_cidr, "pod_cidr": DUAL.range_of(machine.cidr)}
    entry = {
        "mode": "nftables",
        "table": "minik8s",
        "service_cidr": "",
        "cluster_cidr": "",
        "pod_cidr": "",
        "bridge": "mk8t-br",
        "overlay": "mk8t-vx",
        "gateway": "",
        "node_ip": machine_of(machine),
        "ipv6": {**ranges, "gateway": DUAL.gateway_of(machine.cidr)},
    }
    return {"dataplane": entry}


def give_up_ipv4(machine: Machine) -> None:
    """Take the machine's own IPv4 address away."""
    machine.inside("ip", "-4", "addr", "flush", "dev", "eth0")
