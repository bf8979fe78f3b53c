#!/usr/bin/python
"""Dead containers and unused images removed from a node: the thin shell of module_utils/minik8s/install/garbage.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: minik8s_garbage
short_description: Dead containers and unused images removed from a node
description:
  - Removes the named containers and images, each after another check, so that nothing in use is removed.
  - Images are removed in the given order until enough space is free. After two seconds nothing more is begun.
options:
  node:
    description: Name of the node. Only containers with this name are removed.
    type: str
    required: true
  containers:
    description: Ids of dead containers.
    type: list
    elements: str
    default: []
  images:
    description: Images with C(id), C(names) and C(size_bytes), in the order in which they may be removed.
    type: list
    elements: dict
    default: []
  to_free_bytes:
    description: How much space the images must free together.
    type: int
    default: 0
  token:
    description:
      - Fencing token, epoch and revision. A node that has seen a newer one answers RV(fenced) and changes nothing.
    type: list
    elements: int
attributes:
  check_mode:
    description: Looks, and removes nothing.
    support: full
  diff_mode:
    description: What is removed is in the result.
    support: none
  idempotent:
    description: What is gone is not removed again.
    support: full
extends_documentation_fragment: [minik8s_node.state, minik8s_node.run, minik8s_node.docker]
author: the minik8s authors
"""

EXAMPLES = r"""
- name: Two dead containers and one image
  minik8s_garbage:
    node: worker-1
    containers: [2ece966a7e47, a828ef4f7f1a]
    images:
      - {id: "sha256:a8d1ba96c6b9", names: ["registry.example/web:1"], size_bytes: 1048576}
    to_free_bytes: 1000000
"""

RETURN = r"""
removed_containers:
  description: Ids of the containers that were removed (in check mode, would be).
  type: list
  elements: str
  returned: always
removed_images:
  description: Ids of the images that were removed (in check mode, would be).
  type: list
  elements: str
  returned: always
freed_bytes:
  description: Sizes of those images together.
  type: int
  returned: always
errors:
  description: Why something was not removed, by its id.
  type: dict
  returned: always
unfinished:
  description: Whether time ran out before the end.
  type: bool
  returned: always
fenced:
  description: Whether a newer token was seen; nothing was changed then.
  type: bool
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.minik8s.core.docker import Docker
from ansible.module_utils.minik8s.core.faults import NodeFault
from ansible.module_utils.minik8s.core.fencing import hold_node, is_fenced
from ansible.module_utils.minik8s.core.paths import PLACES
from ansible.module_utils.minik8s.install.garbage import Collected, RemovalRequest, collect
from ansible.module_utils.minik8s.pods.containers import forget

NOTHING = Collected([], [], 0, {}, unfinished=False)

ARGUMENTS = {
    "node": {"type": "str", "required": True},
    "containers": {"type": "list", "elements": "str", "default": []},
    "images": {"type": "list", "elements": "dict", "default": []},
    "to_free_bytes": {"type": "int", "default": 0},
    "token": {"type": "list", "elements": "int", "no_log": False},
    **PLACES,
}


def main() -> None:
    """Remove and return."""
    module = AnsibleModule(ARGUMENTS, supports_check_mode=True)
    params, check = module.params, module.check_mode
    docker = Docker(params["docker_socket"])
    wanted = RemovalRequest(params["containers"], params["images"], params["to_free_bytes"])
    found, fenced = NOTHING, False
    try:
        with hold_node(params["state_dir"], check=check):
            fenced = is_fenced(params["state_dir"], params["token"])
            if not fenced:
                found = collect(
                    docker,
                    params["node"],
                    wanted,
                    check=check,
                    forget=lambda name: forget(params["state_dir"], params["run_dir"], name),
                )
    except NodeFault as fault:
        module.fail_json(msg=str(fault))
    finally:
        docker.close()
    module.exit_json(
        changed=bool(found.containers or found.images),
        fenced=fenced,
        removed_containers=found.containers,
        removed_images=found.images,
        freed_bytes=found.freed_bytes,
        errors=found.errors,
        unfinished=found.unfinished,
    )


if __name__ == "__main__":
    main()
