#!/usr/bin/python
"""Paths of hosts on one node: the thin shell of module_utils/minik8s/ingress.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: minik8s_ingress
short_description: The hosts and paths that a node's nginx leads to services
description:
  - One entry is one host with its server blocks, as templates/ingress_host.conf.j2 makes them; C(_server) has ports.
  - Files are staged and checked by C(nginx -t) first. A host that nginx refuses keeps its last good file, the others
    change; a running nginx then takes the files over without dropping a connection.
  - Only the instance of the role C(nginx) with its own directory is concerned, no other nginx of the machine.
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
from ansible.module_utils.minik8s.ingress import Ingress
from ansible.module_utils.minik8s.shell import ARGUMENTS, REQUIRED_IF, run_module


def main() -> None:
    """Run one pass."""
    arguments = ARGUMENTS
    run_module(AnsibleModule(arguments, required_if=REQUIRED_IF, supports_check_mode=True), Ingress())


if __name__ == "__main__":
    main()
