#!/usr/bin/python
"""Values of Kubernetes Secrets on a node, on tmpfs only: the thin shell of module_utils/minik8s/volumes/secrets.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: minik8s_secrets
short_description: Values of Kubernetes Secrets on a node, on tmpfs only
description:
  - Writes the declared secrets, one file a key, under O(run_dir) on a tmpfs, and keeps a sealed last-good copy under
    O(state_dir), from which they return after a boot.
  - Values are in no result, diff or message.
options:
  blob:
    description: 'Values of the secrets, as base64 of JSON C({"<namespace>/<name>": {"<key>": "<base64>"}}).'
    type: str
extends_documentation_fragment:
  - minik8s_node.section
  - minik8s_entries.secrets
  - minik8s_node.state
  - minik8s_node.run
  - minik8s_node.docker
author: the minik8s authors
"""

EXAMPLES = r"""
- name: One secret with one key
  minik8s_secrets:
    node: worker-1
    entries:
      default/database: {hmac: 5d41402abc4b2a76, keys: [password]}
    blob: "{{ {'default/database': {'password': database_password | b64encode}} | to_json | b64encode }}"
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
    - {action: write, key: default/database, detail: 1 keys}
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
from ansible.module_utils.minik8s.volumes.secrets import Secrets


def main() -> None:
    """Run one pass."""
    arguments = {**ARGUMENTS, "blob": {"type": "str", "no_log": True}}
    run_module(AnsibleModule(arguments, required_if=REQUIRED_IF, supports_check_mode=True), Secrets())


if __name__ == "__main__":
    main()
