#!/usr/bin/python
"""Rules that lead pods' connections to their sidecars: the thin shell of module_utils/minik8s/network/sidecars.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: minik8s_sidecars
short_description: Rules that lead pods' connections to their sidecars
description:
  - Writes the rules of the service mesh into the network of each declared pod. TCP connections from outside go to the
    sidecar's port 15006, and those of the pod's programs to its port 15001, except what the sidecar (user or group
    1337) makes itself, what stays within the pod, and what the entry leaves out.
  - The rules are iptables' where the node has it, in the chains C(MISTIO_INBOUND), C(MISTIO_IN_REDIRECT),
    C(MISTIO_OUTPUT) and C(MISTIO_REDIRECT), else nftables' in the table C(minik8s_sidecar).
  - By IPv6, only connections to a pod with C(mutual_tls) are led, to the sidecar's port 15008; all others go past it.
  - The pods' sandboxes have to run (M(minik8s_sandboxes)); M(minik8s_containers) starts no container of a pod whose
    rules are declared and not there. Rules of others in the pod's network are left alone.
extends_documentation_fragment:
  - minik8s_node.section
  - minik8s_node.hold
  - minik8s_entries.sidecars
  - minik8s_node.state
  - minik8s_node.run
  - minik8s_node.docker
author: the minik8s authors
"""

EXAMPLES = r"""
- name: A pod with a sidecar, whose port 22 is reached directly
  minik8s_sidecars:
    node: worker-1
    entries:
      4ab1c2d3-0000-4000-8000-000000000001:
        attempt: 0
        node_addresses: [10.244.0.1]
        exclude_inbound_ports: [22]
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
    - {action: write, key: 4ab1c2d3-0000-4000-8000-000000000001, detail: 19 rules}
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
from ansible.module_utils.minik8s.network.sidecars import Sidecars


def main() -> None:
    """Run one pass."""
    arguments = {**ARGUMENTS, **HOLD}
    run_module(AnsibleModule(arguments, required_if=REQUIRED_IF, supports_check_mode=True), Sidecars())


if __name__ == "__main__":
    main()
