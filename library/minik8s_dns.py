#!/usr/bin/python
"""Names on one node: the thin shell of module_utils/minik8s/names/dns.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: minik8s_dns
short_description: The names that a node's DNS server answers, and the server's own files
description:
  - Writes the zone of the cluster, the zone of addresses, a file of hosts and the Corefile of the node's DNS server,
    which looks at them every 0.1 s; nothing is restarted. The server itself (role C(coredns)) is not started here.
  - Gives the server's address to C(lo) where the node does not have it yet.
  - With C(host_resolver) in the entry C(server), the node's resolv.conf asks that server; the former one is kept and
    restored when this is no longer declared.
extends_documentation_fragment:
  - minik8s_node.section
  - minik8s_entries.dns
  - minik8s_node.state
  - minik8s_node.run
  - minik8s_node.docker
author: the minik8s authors
"""

EXAMPLES = r"""
- name: A service, one of its pods, and a host
  minik8s_dns:
    node: worker-1
    entries:
      server:
        listen: 169.254.20.10
        port: 53
        domain: cluster.local
        forward: []
      service/default/web:
        records:
          - [web.default.svc, A, 100.0.0.7]
          - [_http._tcp.web.default.svc, SRV, 80, web.default.svc]
        pointers: [[100.0.0.7, web.default.svc]]
        names: [[100.0.0.7, web]]
      host/shop.example.test:
        names: [[169.254.20.10, shop.example.test]]
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
    - {action: set, key: "service/default/web", detail: "web.default.svc.cluster.local. 5 IN A 100.0.0.7"}
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
from ansible.module_utils.minik8s.names.dns import Dns


def main() -> None:
    """Run one pass."""
    arguments = ARGUMENTS
    run_module(AnsibleModule(arguments, required_if=REQUIRED_IF, supports_check_mode=True), Dns())


if __name__ == "__main__":
    main()
