#!/usr/bin/python
"""Manifests of static pods on a node: the thin shell of module_utils/minik8s/install/manifests.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: minik8s_static_pods
short_description: Manifests of static pods on a node
description:
  - Reads the files of a folder on the node and returns them unchanged. The reconciler turns them into pods.
options:
  path:
    description: The folder. A missing folder counts as empty.
    type: path
    default: /etc/minik8s/manifests
attributes:
  check_mode:
    description: Reads the same.
    support: full
  diff_mode:
    description: There is no difference to show.
    support: none
  idempotent:
    description: Files are only read.
    support: full
author: the minik8s authors
"""

EXAMPLES = r"""
- name: Manifests of the node
  minik8s_static_pods:
  register: manifests
"""

RETURN = r"""
files:
  description: Name and content (base64) of each file.
  type: list
  elements: dict
  returned: always
  sample: [{name: web.yml, data: YXBpVmVyc2lvbjogdjEK}]
errors:
  description: Why a file could not be read, by its name.
  type: dict
  returned: always
present:
  description: Whether the folder is there.
  type: bool
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.minik8s.install.manifests import read_manifests

ARGUMENTS = {"path": {"type": "path", "default": "/etc/minik8s/manifests"}}


def main() -> None:
    """Read and return."""
    module = AnsibleModule(ARGUMENTS, supports_check_mode=True)
    path = module.params["path"]
    try:
        found = read_manifests(path)
    except OSError as error:
        module.fail_json(msg=f"cannot read {path}: {error.strerror}")
    else:
        module.exit_json(changed=False, **found._asdict())


if __name__ == "__main__":
    main()
