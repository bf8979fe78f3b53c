#!/usr/bin/python
"""Local storage that pods use on a node: the thin shell of module_utils/minik8s/install/usage.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: minik8s_usage
short_description: Local storage that pods use on a node
description:
  - Counts the bytes of emptyDir volumes, of the writable layers of containers and of their logs, and asks how full
    other volumes are.
options:
  node:
    description: Name of the node. Only containers with this name are counted.
    type: str
    required: true
  volumes:
    description: The emptyDir volumes to count, as C(POD-UID/VOLUME).
    type: list
    elements: str
    default: []
  pods:
    description: UIDs of the pods whose containers are counted.
    type: list
    elements: str
    default: []
  mounted:
    description: Volumes of which the room is asked, as C(POD-UID/VOLUME), of those that were declared last.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    description: Counts the same.
    support: full
  diff_mode:
    description: There is no difference to show.
    support: none
  idempotent:
    description: Bytes are only counted.
    support: full
extends_documentation_fragment: [minik8s_node.state, minik8s_node.run, minik8s_node.docker]
author: the minik8s authors
"""

EXAMPLES = r"""
- name: What one pod uses
  minik8s_usage:
    node: worker-1
    pods: [4ab1c2d3-0000-4000-8000-000000000001]
    volumes: [4ab1c2d3-0000-4000-8000-000000000001/scratch]
"""

RETURN = r"""
volumes:
  description: Bytes of each volume, null where counting took more than 10 seconds.
  type: dict
  returned: always
  sample: {4ab1c2d3-0000-4000-8000-000000000001/scratch: 4096}
rooms:
  description: Bytes and inodes of each of C(mounted) that says it; volumes of CSI drivers by their drivers.
  type: dict
  returned: always
  sample:
    4ab1c2d3-0000-4000-8000-000000000001/data:
      {capacity_bytes: 8192, available_bytes: 4096, used_bytes: 4096, inodes: 16, inodes_free: 8, inodes_used: 8}
containers:
  description: Bytes of writable layer and log of each container, by C(POD-UID/CONTAINER).
  type: dict
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.minik8s.core.docker import Docker
from ansible.module_utils.minik8s.core.faults import NodeFault
from ansible.module_utils.minik8s.core.paths import PLACES
from ansible.module_utils.minik8s.install.usage import containers_used, volumes_used
from ansible.module_utils.minik8s.volumes.room import rooms

ARGUMENTS = {
    "node": {"type": "str", "required": True},
    "volumes": {"type": "list", "elements": "str", "default": []},
    "pods": {"type": "list", "elements": "str", "default": []},
    "mounted": {"type": "list", "elements": "str", "default": []},
    **PLACES,
}


def main() -> None:
    """Count and return."""
    module = AnsibleModule(ARGUMENTS, supports_check_mode=True)
    params = module.params
    docker = Docker(params["docker_socket"])
    try:
        volumes = volumes_used(params["state_dir"], params["run_dir"], params["volumes"])
        containers = containers_used(docker, params["node"], params["pods"])
        reported_rooms = rooms(params["state_dir"], params["run_dir"], params["mounted"])
        module.exit_json(changed=False, volumes=volumes, containers=containers, rooms=reported_rooms)
    except NodeFault as fault:
        module.fail_json(msg=str(fault))
    finally:
        docker.close()


if __name__ == "__main__":
    main()
