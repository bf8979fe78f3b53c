#!/usr/bin/python
"""Pause containers of a node's pods, with their network: the thin shell of module_utils/minik8s/pods/sandboxes.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: minik8s_sandboxes
short_description: Pause containers of a node's pods, with their network
description:
  - Makes the pause container of every declared pod, attaches it to the node's bridge, and gives it its address.
  - Link, address and route are compared with the kernel and healed. Pods that are not declared are removed.
  - A pod's IPv6 address (C(ipv6)) is a /128, so that all it sends goes to the node; pod and node are told each other's
    hardware address, and neighbour discovery that a pod sends is dropped.
  - With C(plugin), the pod is attached by CNI plugins or by Weave Net, which give the address. What was attached
    is kept in C(state_dir) until it is detached, and detached with the configuration it was attached with.
  - Writes the pod's /etc/hosts and /etc/resolv.conf, limits the pod's cgroup, and forwards ports of the node to the
    pod.
  - Containers and links of another node's name are never touched.
extends_documentation_fragment:
  - minik8s_node.section
  - minik8s_node.hold
  - minik8s_entries.sandboxes
  - minik8s_node.state
  - minik8s_node.run
  - minik8s_node.docker
author: the minik8s authors
"""

EXAMPLES = r"""
- name: One pod with an address of its own
  minik8s_sandboxes:
    node: worker-1
    entries:
      4ab1c2d3-0000-4000-8000-000000000001:
        pod: {uid: 4ab1c2d3-0000-4000-8000-000000000001, name: web, namespace: default}
        attempt: 0
        image: minik8s/pause:1
        hostname: web
        host_network: false
        ip: 10.244.0.7
        prefix_length: 24
        gateway: 10.244.0.1
        bridge: mk8s-br0
        mtu: 1500
        dns: {nameservers: [10.244.0.1], searches: [default.svc.cluster.local], options: ["ndots:5"]}

- name: The same with a port of the node, limits of the whole pod, and one process namespace
  minik8s_sandboxes:
    node: worker-1
    entries:
      4ab1c2d3-0000-4000-8000-000000000001:
        pod: {uid: 4ab1c2d3-0000-4000-8000-000000000001, name: web, namespace: default}
        attempt: 0
        image: minik8s/pause:1
        hostname: web
        host_network: false
        ip: 10.244.0.7
        prefix_length: 24
        gateway: 10.244.0.1
        bridge: mk8s-br0
        mtu: 1500
        dns: {nameservers: [], searches: [], options: [], node: true}
        host_ports: [{ip: "", protocol: TCP, host_port: 8080, port: 80}]
        cgroup: {cpu_shares: 512, cpu_quota_us: 50000, memory_bytes: 67108864}
        share_pid: true
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
    - {action: create, key: 4ab1c2d3-0000-4000-8000-000000000001, detail: mk8s_POD_web_default_4ab1c2d3-…_0}
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
from ansible.module_utils.minik8s.pods.sandboxes import Sandboxes


def main() -> None:
    """Run one pass."""
    arguments = {**ARGUMENTS, **HOLD}
    run_module(AnsibleModule(arguments, required_if=REQUIRED_IF, supports_check_mode=True), Sandboxes())


if __name__ == "__main__":
    main()
