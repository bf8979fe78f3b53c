#!/usr/bin/python
"""The network that a node's pods are attached to: the thin shell of module_utils/minik8s/network/network.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: minik8s_network
short_description: The network that a node's pods are attached to
description:
  - Makes the bridge with the pods' gateway address, turns IPv4 forwarding on, masquerades what leaves the cluster
    (table C(ip minik8s_pods) of nftables), and accepts forwarding of the bridge where Docker's policy drops it.
  - With the driver C(vxlan) also the ways to the pods of the other nodes - a VXLAN device, its forwarding table, next
    hops and routes, all computed from the declared peers; nothing is learned. With C(direct), peers in the same network
    are routed to without a tunnel. Entries of others in the device's tables go, other routes are left alone.
  - Machines of such an overlay reach each other by IPv4 or IPv6. They take its packets from the peers alone, and
    forward none to a peer (table C(inet minik8s_tunnels) of nftables).
  - Where pods have IPv6 addresses (C(ipv6)), does the same for these (table C(ip6 minik8s_pods)). They always take the
    tunnels, and a device that takes routes from a router's advertisements goes on doing so (C(accept_ra) 2).
  - With the driver C(cni) it checks that the node has a valid network configuration; with C(weave) it joins the
    machine to Weave Net and connects it to the declared peers. Peers that somebody else connected are left alone.
    Pods are attached by M(minik8s_sandboxes), which calls these programs.
  - Removes all of that, except forwarding itself, when the network is no longer declared. Where it turned forwarding of
    IPv6 on, it turns it off again once pods have no such addresses, and C(accept_ra) is as it was.
extends_documentation_fragment:
  - minik8s_node.section
  - minik8s_node.hold
  - minik8s_entries.network
  - minik8s_node.state
  - minik8s_node.run
  - minik8s_node.docker
author: the minik8s authors
"""

EXAMPLES = r"""
- name: The pod network of a node
  minik8s_network:
    node: worker-1
    entries:
      pod-network:
        driver: bridge
        bridge: mk8s-br0
        cidr: 10.244.0.0/24
        gateway: 10.244.0.1
        cluster_cidr: 10.244.0.0/16
        mtu: 1500

- name: The pod network of a node among others
  minik8s_network:
    node: worker-1
    entries:
      pod-network:
        driver: vxlan
        bridge: mk8s-br0
        cidr: 10.244.0.0/24
        gateway: 10.244.0.1
        cluster_cidr: 10.244.0.0/16
        mtu: 1450
        overlay:
          device: mk8s-vx0
          vni: 1
          port: 8472
          address: 192.0.2.21
          direct: false
          peers:
            worker-2:
              cidr: 10.244.1.0/24
              address: 192.0.2.22

- name: Pods of a node have the network of its first valid CNI configuration
  minik8s_network:
    node: worker-1
    entries:
      pod-network:
        driver: cni
        bridge: mk8s-br0
        cluster_cidr: 10.22.0.0/16
        mtu: 1500
        cni:
          conf_dir: /etc/cni/net.d
          bin_dirs: [/opt/cni/bin, /usr/lib/cni]

- name: Pods of a node are in Weave Net
  minik8s_network:
    node: worker-1
    entries:
      pod-network:
        driver: weave
        bridge: mk8s-br0
        cluster_cidr: 10.32.0.0/12
        mtu: 1376
        weave:
          command: weave
          peers: [192.0.2.22]
"""

RETURN = r"""
section:
  description: Name of the section.
  type: str
  returned: always
digest:
  description: Digest of the declared set as it now stands on the node.
  type: str
  returned: always
steps:
  description: What was done (in check mode, what would be done), in order for each key.
  type: list
  elements: dict
  returned: always
  sample:
    - {action: mend, key: pod-network, detail: "ip_forward: 1"}
differences:
  description: The diff by key, each with its facets before and after; null where there is nothing.
  type: dict
  returned: in check mode
status:
  description: What is known of each key looked at after the steps; null when there is nothing.
  type: dict
  returned: always
errors:
  description: Reason and message of each key that could not be realized; the others are.
  type: dict
  returned: always
due:
  description: Keys that need another run after C(after_s) seconds, and why.
  type: list
  elements: dict
  returned: always
held:
  description: Steps that were left undone, because their keys are to stay as somebody else made them.
  type: list
  elements: dict
  returned: always
base_mismatch:
  description: Whether a delta did not fit; nothing was changed then.
  type: bool
  returned: always
fenced:
  description: Whether a newer token was seen; nothing was changed then.
  type: bool
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.minik8s.core.shell import ARGUMENTS, HOLD, REQUIRED_IF, run_module
from ansible.module_utils.minik8s.network.network import Network


def main() -> None:
    """Run one pass."""
    arguments = {**ARGUMENTS, **HOLD}
    run_module(AnsibleModule(arguments, required_if=REQUIRED_IF, supports_check_mode=True), Network())


if __name__ == "__main__":
    main()
