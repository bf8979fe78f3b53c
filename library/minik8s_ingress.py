#!/usr/bin/python
"""Paths of hosts on one node: the thin shell of module_utils/minik8s/names/ingress.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: minik8s_ingress
short_description: The hosts and paths that a node's nginx routes to services
description:
  - One entry is one host with its server blocks, as templates/ingress_host.conf.j2 makes them; C(_server) has ports.
  - Files are staged and checked by C(nginx -t) first. A host that nginx refuses keeps its last good file, the others
    change; a running nginx then loads the files without dropping a connection.
  - This concerns only the nginx of the role C(nginx), with its own directory, and no other nginx on the machine.
extends_documentation_fragment:
  - minik8s_node.section
  - minik8s_entries.ingress
  - minik8s_node.state
  - minik8s_node.run
  - minik8s_node.docker
author: the minik8s authors
"""

EXAMPLES = r"""
- name: A host with one path
  minik8s_ingress:
    node: worker-1
    entries:
      _server: {http_port: 80, https_port: 443}
      shop.example.test:
        config: |
          server {
            listen 80;
            server_name "shop.example.test";
            location / { proxy_pass http://100.0.0.7:80; }
          }
        secrets: {}
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
    - {action: write, key: shop.example.test, detail: hosts/shop.example.test.conf}
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
from ansible.module_utils.minik8s.names.ingress import Ingress


def main() -> None:
    """Run one pass."""
    arguments = ARGUMENTS
    run_module(AnsibleModule(arguments, required_if=REQUIRED_IF, supports_check_mode=True), Ingress())


if __name__ == "__main__":
    main()
