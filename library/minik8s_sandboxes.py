#!/usr/bin/python
"""Pause containers of a node's pods, with their network: the thin shell of module_utils/minik8s/sandboxes.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: minik8s_sandboxes
short_description: Pause containers of a node's pods, with their network
description:
  - Makes the pause container of every declared pod, attaches it to the node's bridge, and gives it its address.
  - Link, address and route are compared with the kernel and healed. Pods that are not declared are removed.
  - Writes the pod's /etc/hosts and /etc/resolv.conf, limits the pod's cgroup, and leads ports of the node to the pod.
  - Containers and links of another node's name are never touched.
options:
  node:
    description: Name of the node. Only state that carries this name is looked at or changed.
    type: str
    required: true
  mode:
    description:
      - With V(full), O(entries) is the whole declared set; what is not in it is removed.
      - With V(delta), O(upsert) and O(delete) change the set whose digest is O(base); only their keys are looked at.
    type: str
    choices: [full, delta]
    default: full
  entries:
    description: The whole declared set, by key. Required with O(mode=full).
    type: dict
  base:
    description: Digest of the set a delta builds on. Another one on the node answers RV(base_mismatch).
    type: str
  upsert:
    description: Entries a delta adds or replaces, by key.
    type: dict
  delete:
    description: Keys a delta removes.
    type: list
    elements: str
  token:
    description:
      - Fencing token, epoch and revision. A node that has seen a newer one answers RV(fenced) and changes nothing.
      - Left out (a run by hand), only the node's lock is taken.
    type: list
    elements: int
  state_dir:
    description: Directory of what survives a boot (token, last declared sets, pods' files).
    type: path
    default: /var/lib/minik8s
  run_dir:
    description: Directory of what does not survive a boot (secret values, stop markers).
    type: path
    default: /run/minik8s
  docker_socket:
    description: Unix socket of the node's Docker daemon.
    type: path
    default: /var/run/docker.sock
attributes:
  check_mode:
    description: Reports the same steps and diff, and changes nothing.
    support: full
  diff_mode:
    description: The diff shows, for each key that differs, what is and what will be. Secret values are never in it.
    support: full
  idempotent:
    description: A second run finds nothing to do, unless a key's error or RV(due) says otherwise.
    support: full
author: minik8s
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
from ansible.module_utils.minik8s.sandboxes import Sandboxes
from ansible.module_utils.minik8s.shell import ARGUMENTS, REQUIRED_IF, run_module


def main() -> None:
    """Run one pass."""
    arguments = ARGUMENTS
    run_module(AnsibleModule(arguments, required_if=REQUIRED_IF, supports_check_mode=True), Sandboxes())


if __name__ == "__main__":
    main()
