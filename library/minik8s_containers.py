#!/usr/bin/python
"""Containers of a node's pods: the thin shell of module_utils/minik8s/pods/containers.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: minik8s_containers
short_description: Containers of a node's pods
description:
  - Creates and starts the containers of pods whose sandbox runs, compares them with what is declared (image, command,
    environment, limits, mounts) and heals what differs. Containers that are not declared are removed.
  - It never waits. A stop sends the signal and returns the grace period as RV(due).
extends_documentation_fragment:
  - minik8s_node.section
  - minik8s_node.hold
  - minik8s_entries.containers
  - minik8s_node.state
  - minik8s_node.run
  - minik8s_node.docker
author: the minik8s authors
"""

EXAMPLES = r"""
- name: One container of a pod
  minik8s_containers:
    node: worker-1
    entries:
      4ab1c2d3-0000-4000-8000-000000000001/app:
        pod: {uid: 4ab1c2d3-0000-4000-8000-000000000001, name: web, namespace: default}
        name: app
        type: app
        attempt: 0
        sandbox_attempt: 0
        state: running
        image: minik8s/busybox:1
        entrypoint: [sleep, "3600"]
        env: [[GREETING, hello]]
        memory_bytes: 67108864
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
    - {action: start, key: 4ab1c2d3-0000-4000-8000-000000000001/app, detail: mk8s_app_web_default_4ab1c2d3-…_0}
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
from ansible.module_utils.minik8s.pods.containers import Containers


def main() -> None:
    """Run one pass."""
    arguments = {**ARGUMENTS, **HOLD}
    run_module(AnsibleModule(arguments, required_if=REQUIRED_IF, supports_check_mode=True), Containers())


if __name__ == "__main__":
    main()
