#!/usr/bin/python
# Copyright: the minik8s authors
# Apache License 2.0 (see LICENSE)
"""Ansible module: fails, with every reason at once, when a machine cannot carry minik8s."""

from __future__ import annotations

DOCUMENTATION = r"""
module: minik8s_requirements
short_description: Fails when a machine cannot carry minik8s
description:
  - Looks at user, distribution, Python, memory, disk, clock, ports and networks, and tries what the kernel can do, in a
    network namespace of its own.
  - Changes nothing. All gaps are reported at once, each with what to do.
options:
  ports:
    description: TCP ports that must be free, or be minik8s' own.
    type: list
    elements: int
    default: []
  memory_mb:
    description: Memory that the machine must have, in MB.
    type: int
    default: 900
  disk_mb:
    description: Free space that C(/var/lib) must have, in MB.
    type: int
    default: 0
  time_s:
    description: What the clock should show, in seconds since 1970; 0 for any time. A difference of two minutes is
      accepted.
    type: float
    default: 0
  host_key:
    description: Whether the machine must have an ed25519 ssh host key, which the control plane pins.
    type: bool
    default: false
  cluster_cidr:
    description: Range of the pods' addresses, which must not overlap a network of the machine.
    type: str
    default: ""
  service_cidr:
    description: Range of the services' addresses, which must not overlap a network of the machine.
    type: str
    default: ""
  cluster_cidr_ipv6:
    description: Range of the pods' IPv6 addresses, which must not overlap a network of the machine; empty where they
      have none.
    type: str
    default: ""
  address:
    description: Where other machines are told to reach this one, if the inventory says so. It must be of the family of
      O(service_cidr).
    type: str
    default: ""
  tunnels:
    description: Whether tunnels to other nodes begin here. They leave by the address of the default route.
    type: bool
    default: false
  several:
    description: Whether the cluster has other machines, which must reach this one.
    type: bool
    default: false
  network:
    description: How nodes reach each other's pods. It has the C(driver), the C(underlay) of tunnels (V(ipv4), V(ipv6),
      or nothing where nobody has said it), and whether neighbours are reached C(direct)ly.
    type: dict
    default: {}
  mesh:
    description: Whether the cluster is to have sidecars.
    type: bool
    default: false
  dns_address:
    description: The address of cluster DNS, empty for none. Pods must reach it, and no range may have it.
    type: str
    default: ""
  configuration:
    description: The configuration of this machine's API server, if there is one. It tells the family of its services.
    type: path
    default: /etc/minik8s/apiserver.yml
  service_cidr_ipv6:
    description: Range of the services' IPv6 addresses, which must not overlap a network of the machine; empty where
      they have none.
    type: str
    default: ""
  nodes:
    description: How many nodes share C(cluster_cidr).
    type: int
    default: 0
  node_name:
    description: The machine's name as a node.
    type: str
    default: ""
  foreign_pods:
    description: Whether pods have addresses of somebody else's program, whose devices may lie in O(cluster_cidr).
    type: bool
    default: false
  devices:
    description: Devices that containers may ask for, as C(minik8s_devices) of the inventory has them.
    type: list
    elements: dict
    default: []
  systems:
    description: Distributions that will do. Each has C(ids) of os-release(5), the oldest C(version) that will do, and
      whether somebody has C(tried) it; further keys are not looked at.
    type: list
    elements: dict
    default: [{ids: [debian], version: 12, tried: true}]
  untried:
    description: Whether those that nobody has tried will do, too.
    type: bool
    default: false
attributes:
  check_mode: {description: It never changes anything., support: full}
  diff_mode: {description: There is nothing to show., support: none}
  idempotent: {description: It never changes anything., support: full}
author: the minik8s authors
"""

EXAMPLES = r"""
- name: The machine can carry the control plane
  minik8s_requirements:
    ports: [6443, 2379, 2380]

- name: The machine can be a node
  minik8s_requirements:
    node_name: "{{ inventory_hostname }}"
    nodes: "{{ groups['nodes'] | length }}"
    cluster_cidr: 10.244.0.0/16
    service_cidr: 100.0.0.0/24
    time_s: "{{ now().timestamp() }}"
"""

RETURN = r"""
problems:
  description: One sentence a gap. Empty when the machine will do.
  returned: always
  type: list
  elements: str
  sample: ["port 6443 is in use by /usr/bin/k3s server: stop that program, or move it"]
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.minik8s.install.ipv6_ranges import standing_services
from ansible.module_utils.minik8s.install.ranges import (
    Ranges,
    Underlay,
    connected_networks,
    has_default_route,
    has_ipv6,
    has_machine_address,
    range_problems,
)
from ansible.module_utils.minik8s.install.requirements import Needed, System, observe_machine, problems
from ansible.module_utils.minik8s.pods.devices import problems as device_problems

PYTHON = (3, 11)
SYSTEMS = [{"ids": ["debian"], "version": 12, "tried": True}]
PLACE = ("address", "tunnels", "several", "mesh", "dns_address")
RANGES = (
    "cluster_cidr",
    "service_cidr",
    "nodes",
    "node_name",
    "foreign_pods",
    "cluster_cidr_ipv6",
    "service_cidr_ipv6",
)


def main() -> None:
    """Observe, compare, report."""
    module = AnsibleModule(
        argument_spec={
            "ports": {"type": "list", "elements": "int", "default": []},
            "memory_mb": {"type": "int", "default": 900},
            "disk_mb": {"type": "int", "default": 0},
            "time_s": {"type": "float", "default": 0},
            "host_key": {"type": "bool", "default": False},
            "cluster_cidr": {"type": "str", "default": ""},
            "service_cidr": {"type": "str", "default": ""},
            "cluster_cidr_ipv6": {"type": "str", "default": ""},
            "address": {"type": "str", "default": ""},
            "tunnels": {"type": "bool", "default": False},
            "several": {"type": "bool", "default": False},
            "mesh": {"type": "bool", "default": False},
            "dns_address": {"type": "str", "default": ""},
            "configuration": {"type": "path", "default": "/etc/minik8s/apiserver.yml"},
            "network": {"type": "dict", "default": {}},
            "service_cidr_ipv6": {"type": "str", "default": ""},
            "nodes": {"type": "int", "default": 0},
            "node_name": {"type": "str", "default": ""},
            "foreign_pods": {"type": "bool", "default": False},
            "systems": {"type": "list", "elements": "dict", "default": SYSTEMS},
            "untried": {"type": "bool", "default": False},
            "devices": {"type": "list", "elements": "dict", "default": []},
        },
        supports_check_mode=True,
    )
    asked = module.params
    given = (asked[name] for name in ("untried", "disk_mb", "time_s", "host_key"))
    systems = tuple(System(name, one["version"], one["tried"]) for one in asked["systems"] for name in one["ids"])
    needed = Needed(tuple(asked["ports"]), asked["memory_mb"], PYTHON, systems, *given)
    place = {**{name: asked[name] for name in PLACE}, "has_ipv6": has_ipv6(), "has_route": has_default_route()}
    place["has_loopback"] = has_ipv6(Path("/proc/sys/net/ipv6/conf/lo/disable_ipv6"))
    place["standing"] = standing_services(Path(asked["configuration"]))
    underlay = Underlay(**asked["network"], has_address=has_machine_address())
    ranges = Ranges(*(asked[name] for name in RANGES), **place, underlay=underlay)
    found = problems(observe_machine(needed.ports), needed) + range_problems(ranges, connected_networks())
    found += device_problems(asked["devices"])
    if found:
        module.fail_json(msg="This machine cannot run minik8s: " + "; ".join(found), problems=found)
    module.exit_json(changed=False, problems=[])


if __name__ == "__main__":
    main()
