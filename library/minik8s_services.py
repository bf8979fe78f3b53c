#!/usr/bin/python
"""Services on one node, by nftables or IPVS: the thin shell of module_utils/minik8s/services/services.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: minik8s_services
short_description: Addresses, ports and node ports of services, forwarded to their endpoints
description:
  - One entry is one port of one service, key C(<namespace>/<service>:<port>). The entry C(dataplane) says how.
  - With C(mode) nftables (the default of a cluster), by the maps of one table C(ip minik8s), all changes in one
    transaction, and a route for the range of service addresses. With C(mode) ipvs, by virtual servers (round robin,
    masquerading) and the device C(minik8s-dummy) with every service address.
  - Tracked UDP connections to endpoints that are gone are deleted.
  - Rules, tables, virtual servers and routes of others are neither listed nor touched.
extends_documentation_fragment:
  - minik8s_node.section
  - minik8s_entries.services
  - minik8s_node.state
  - minik8s_node.run
  - minik8s_node.docker
author: the minik8s authors
"""

EXAMPLES = r"""
- name: Two ports of services
  minik8s_services:
    node: worker-1
    entries:
      dataplane:
        mode: nftables
        table: minik8s
        service_cidr: 100.0.0.0/24
        cluster_cidr: 10.244.0.0/16
        pod_cidr: 10.244.0.0/24
        bridge: mk8s-br0
        gateway: 10.244.0.1
        node_ip: 192.168.1.10
      default/web:http:
        protocol: TCP
        address: 100.0.0.7
        port: 80
        node_port: 30080
        endpoints: [[10.244.0.7, 8080], [10.244.0.8, 8080]]
      kube-system/dns:53:
        protocol: UDP
        address: 100.0.0.10
        port: 53
        affinity_s: 10800
        endpoints: [[10.244.0.9, 5353]]
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
    - {action: set, key: "default/web:http", detail: "100.0.0.7:80/TCP count_00001_t017"}
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
from ansible.module_utils.minik8s.core.shell import ARGUMENTS, REQUIRED_IF, run_module
from ansible.module_utils.minik8s.services.services import Services


def main() -> None:
    """Run one pass."""
    arguments = ARGUMENTS
    run_module(AnsibleModule(arguments, required_if=REQUIRED_IF, supports_check_mode=True), Services())


if __name__ == "__main__":
    main()
