#!/usr/bin/python
"""NetworkPolicies on one node: the thin shell of module_utils/minik8s/policies/policies.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: minik8s_policies
short_description: What NetworkPolicies allow to and from the Pods of a node
description:
  - The entry C(filter) says how, C(policy/<namespace>/<name>) is what one NetworkPolicy allows, and
    C(pod/<namespace>/<name>) a Pod that policies select or name as a peer.
  - Realized by chains, sets and maps of one table C(ip minik8s_policies), all changes in one transaction. What no
    policy allows is rejected; TCP gets a reset. Where Pods have IPv6 addresses, a table C(ip6 minik8s_policies) has
    the same for these.
  - Packets between Pods of one bridge are shown to the rules, for which the kernel's module C(br_netfilter) is needed.
  - Without entries there is no table. Rules and tables of others are neither listed nor touched.
extends_documentation_fragment:
  - minik8s_node.section
  - minik8s_entries.policies
  - minik8s_node.state
  - minik8s_node.run
  - minik8s_node.docker
author: the minik8s authors
"""

EXAMPLES = r"""
- name: Pods with the label app=db take connections to port 5432 from Pods with the label app=web alone
  minik8s_policies:
    node: worker-1
    entries:
      filter:
        table: minik8s_policies
        bridge: mk8s-br0
        driver: vxlan
      policy/default/db:
        ingress:
          - peers: {groups: [group/5f0a2c31b7d94e86], blocks: []}
            ports: [[TCP, 5432, 5432]]
        egress: null
      pod/default/db-0:
        address: 10.244.0.7
        groups: []
        ports: []
        ingress: [policy/default/db]
        egress: null
      pod/default/web-0:
        address: 10.244.1.9
        groups: [group/5f0a2c31b7d94e86]
        ports: []
        ingress: null
        egress: null
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
    - {action: set, key: pod/default/web-0, detail: "group/5f0a2c31b7d94e86 10.244.1.9 listed"}
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
from ansible.module_utils.minik8s.policies.policies import Policies


def main() -> None:
    """Run one pass."""
    arguments = ARGUMENTS
    run_module(AnsibleModule(arguments, required_if=REQUIRED_IF, supports_check_mode=True), Policies())


if __name__ == "__main__":
    main()
