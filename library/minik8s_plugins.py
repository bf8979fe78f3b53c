#!/usr/bin/python
"""CSI drivers of a node: the thin shell of module_utils/minik8s/volumes/csi_registration.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: minik8s_plugins
short_description: CSI drivers of a node
description:
  - Asks the registrars in C(/var/lib/kubelet/plugins_registry) for their CSI drivers, these for what they say of the
    node, and tells the registrars of new ones what came of it, as kubelet does.
options:
  known:
    description: Drivers whose registrars were told already.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    description: Asks the same, and tells registrars nothing.
    support: full
  diff_mode:
    description: There is no difference to show.
    support: none
  idempotent:
    description: Nothing on the node is changed.
    support: full
author: the minik8s authors
"""

EXAMPLES = r"""
- name: Drivers of the node
  minik8s_plugins:
  register: plugins
"""

RETURN = r"""
drivers:
  description: By name of the driver its id of the node, how many volumes it can have there (0 for any), its topology.
  type: dict
  returned: always
  sample: {hostpath.csi.k8s.io: {node_id: worker-1, max_volumes: 0, topology: {topology.hostpath.csi/node: worker-1}}}
errors:
  description: Why a registrar or its driver could not be asked, by the name of its socket.
  type: dict
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.minik8s.volumes.csi_registration import register

ARGUMENTS = {"known": {"type": "list", "elements": "str", "default": []}}


def main() -> None:
    """Ask and return."""
    module = AnsibleModule(ARGUMENTS, supports_check_mode=True)
    found = register(module.params["known"], check=module.check_mode)
    module.exit_json(changed=False, drivers=found.drivers, errors=found.errors)


if __name__ == "__main__":
    main()
