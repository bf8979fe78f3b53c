#!/usr/bin/python
"""Which packages a machine has: the thin shell of module_utils/minik8s/install/packages.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: minik8s_packages
short_description: Tells which packages a machine has
description:
  - Asks what the machine's package manager has noted, without its index of what could be had, so that roles ask the
    package manager itself only where something is missing.
  - Changes nothing.
options:
  names:
    description: Packages that are asked about. One with a version counts as missing.
    type: list
    elements: str
    required: true
  manager:
    description: Who notes them.
    type: str
    choices: [apt, dnf]
    required: true
attributes:
  check_mode: {description: It never changes anything., support: full}
  diff_mode: {description: There is nothing to show., support: none}
  idempotent: {description: It never changes anything., support: full}
author: the minik8s authors
"""

EXAMPLES = r"""
- name: The packages of this machine are known
  minik8s_packages:
    manager: apt
    names: [nftables, sudo]
  register: node_packages
"""

RETURN = r"""
present:
  description: Those of O(names) that are installed. With apt, one that it would remove together with another package,
    for whose sake it came, is missing.
  returned: always
  type: list
  elements: str
  sample: [sudo]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.minik8s.install.packages import (
    EXTENDED,
    STATUS,
    present_by_apt,
    present_by_rpm,
    said,
    text_of,
)

ARGUMENTS = {
    "names": {"type": "list", "elements": "str", "required": True},
    "manager": {"type": "str", "choices": ["apt", "dnf"], "required": True},
}


def main() -> None:
    """Look and return."""
    module = AnsibleModule(ARGUMENTS, supports_check_mode=True)
    names = module.params["names"]
    if module.params["manager"] == "apt":
        present = present_by_apt(names, text_of(STATUS), text_of(EXTENDED))
    else:
        present = present_by_rpm(names, said)
    module.exit_json(changed=False, present=present)


if __name__ == "__main__":
    main()
