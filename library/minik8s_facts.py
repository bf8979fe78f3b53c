#!/usr/bin/python
"""What a node tells of itself: the thin shell of module_utils/minik8s/install/facts.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: minik8s_facts
short_description: Facts of a node for its registration
description:
  - Returns what a Node object says about its machine, and the state of the node (fencing token, document digests).
  - Changes nothing, except that a machine without C(/etc/machine-id) is given an id under O(state_dir) once.
attributes:
  check_mode:
    description: Returns the same facts; a machine id that would be made is not kept.
    support: full
  diff_mode:
    description: There is no difference to show.
    support: none
  idempotent:
    description: Facts are only read.
    support: full
options:
  devices:
    description: Devices that containers may ask for, as in C(minik8s_devices) of the inventory.
    type: list
    elements: dict
    default: []
extends_documentation_fragment: [minik8s_node.state, minik8s_node.docker]
author: the minik8s authors
"""

EXAMPLES = r"""
- name: Facts of every node
  minik8s_facts:
  register: node_facts
"""

RETURN = r"""
facts:
  description:
    - C(hostname), C(cpus), C(memory_bytes), C(huge_pages) (by size of page, in bytes, the bytes set aside),
      C(architecture), C(operating_system), C(kernel_version), C(os_image), C(boot_id), C(machine_id),
      C(internal_ip), C(internal_ipv6), C(addresses), C(devices) (the paths that are there),
      C(docker_version), C(container_runtime_version), C(docker_root), C(disk_bytes), C(cgroup_version),
      C(live_restore), C(docker_error), C(token), C(epoch) and C(digests).
  type: dict
  returned: always
  sample: {cpus: 2, memory_bytes: 8589934592, architecture: amd64, token: [1, 4711]}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.minik8s.core.docker import Docker
from ansible.module_utils.minik8s.core.faults import NodeFault
from ansible.module_utils.minik8s.core.paths import DOCKER_SOCKET, STATE_DIR
from ansible.module_utils.minik8s.install.facts import gather
from ansible.module_utils.minik8s.pods.devices import parse

ARGUMENTS = {
    **STATE_DIR,
    **DOCKER_SOCKET,
    "devices": {"type": "list", "elements": "dict", "default": []},
}


def main() -> None:
    """Gather and return."""
    module = AnsibleModule(ARGUMENTS, supports_check_mode=True)
    docker = Docker(module.params["docker_socket"])
    try:
        devices = parse(module.params["devices"], "devices")
        facts = gather(module.params["state_dir"], docker, check=module.check_mode, devices=devices)
        module.exit_json(changed=False, facts=facts)
    except (NodeFault, ValueError) as fault:
        module.fail_json(msg=str(fault))


if __name__ == "__main__":
    main()
