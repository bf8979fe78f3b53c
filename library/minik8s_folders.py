#!/usr/bin/python
"""Folders of volumes that are made for claims: the thin shell of module_utils/minik8s/volumes/folders.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: minik8s_folders
short_description: Folders of volumes that are made for claims
description:
  - Makes the folders of PersistentVolumes that are made for claims on this machine, and deletes those that are declared
    V(absent), with what is in them. What is no longer declared is left alone.
  - A folder with a size has it enforced by a project quota, where its file system has those; elsewhere it is not made.
  - Only what this module has made for the same PersistentVolume is deleted; no symbolic link is followed, and what is
    mounted below the folder stays.
extends_documentation_fragment:
  - minik8s_node.section
  - minik8s_node.hold
  - minik8s_entries.folders
  - minik8s_node.state
  - minik8s_node.run
  - minik8s_node.docker
author: the minik8s authors
"""

EXAMPLES = r"""
- name: A volume's folder
  minik8s_folders:
    node: worker-1
    entries:
      pvc-6cd39e13-182e-4e56-9253-0a265ac542bb:
        root: /var/lib/minik8s-volumes
        name: pvc-6cd39e13-182e-4e56-9253-0a265ac542bb
        owner: 0b7ad1b6-36a2-4c7a-8a53-3f2ec0a4a6a3
        state: present
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
    - {action: make, key: pvc-6cd39e13-…, detail: /var/lib/minik8s-volumes/pvc-6cd39e13-…}
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
from ansible.module_utils.minik8s.volumes.folders import Folders


def main() -> None:
    """Run one pass."""
    arguments = {**ARGUMENTS, **HOLD}
    run_module(AnsibleModule(arguments, required_if=REQUIRED_IF, supports_check_mode=True), Folders())


if __name__ == "__main__":
    main()
