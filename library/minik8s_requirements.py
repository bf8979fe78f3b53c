#!/usr/bin/python
# Copyright: the minik8s authors
# Apache License 2.0 (see LICENSE)
"""Ansible module: fails, with every reason at once, when a machine cannot carry minik8s."""

from __future__ import annotations

DOCUMENTATION = r"""
module: minik8s_requirements
short_description: Fails when a machine cannot carry minik8s
description:
  - Looks at user, distribution, Python, memory and ports, and tries what the kernel can do, in a network namespace
    of its own.
  - Changes nothing. All gaps are reported at once, each with what to do.
options:
  ports:
    description: TCP ports that must be free, or be minik8s' own.
    type: list
    elements: int
    default: []
  memory_mb:
    description: Memory that must be there, in MB.
    type: int
    default: 900
attributes:
  check_mode: {description: It never changes anything., support: full}
  diff_mode: {description: There is nothing to show., support: none}
  idempotent: {description: It never changes anything., support: full}
author: the minik8s authors
"""

EXAMPLES = r"""
- name: The machine can carry the control plane
  minik8s_requirements:
    ports: [6443, 2379, 2380]
"""

RETURN = r"""
problems:
  description: One sentence a gap. Empty when the machine will do.
  returned: always
  type: list
  elements: str
  sample: ["port 6443 is taken by /usr/bin/k3s server: stop that, or move it"]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.minik8s.requirements import Needed, observe_machine, problems

PYTHON = (3, 11)
DEBIAN = 12


def main() -> None:
    """Observe, compare, report."""
    module = AnsibleModule(
        argument_spec={
            "ports": {"type": "list", "elements": "int", "default": []},
            "memory_mb": {"type": "int", "default": 900},
        },
        supports_check_mode=True,
    )
    needed = Needed(tuple(module.params["ports"]), module.params["memory_mb"], PYTHON, DEBIAN)
    found = problems(observe_machine(needed.ports), needed)
    if found:
        module.fail_json(msg="This machine cannot carry minik8s: " + "; ".join(found), problems=found)
    module.exit_json(changed=False, problems=[])


if __name__ == "__main__":
    main()
