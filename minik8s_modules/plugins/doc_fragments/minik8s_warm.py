"""Options of the warm connections: their own, and those of the stock plugin that each of them is derived from."""

from __future__ import annotations

import yaml
from ansible.plugins.connection.local import DOCUMENTATION as LOCAL_DOCUMENTATION
from ansible.plugins.connection.ssh import DOCUMENTATION as SSH_DOCUMENTATION


def _options_of(documentation: str) -> str:
    """Return the options of a stock plugin as a fragment; what it takes from fragments itself is not among them."""
    return yaml.safe_dump({"options": yaml.safe_load(documentation).get("options") or {}})


class ModuleDocFragment:
    """Ansible looks for this name; an attribute is a fragment."""

    LOCAL = _options_of(LOCAL_DOCUMENTATION)
    SSH = _options_of(SSH_DOCUMENTATION)
    DOCUMENTATION = r"""
options:
  warm_python:
    description: The node's Python. Discovery is not supported; C(auto) values mean the default.
    type: str
    default: /usr/bin/python3
    env: [{name: ANSIBLE_PYTHON_INTERPRETER}]
    vars: [{name: ansible_python_interpreter}]
  warm_directory:
    description: Where the interpreter's socket lies on the node; made for the user, mode 0700.
    type: str
    default: /run/minik8s-warm-{uid}
    env: [{name: MINIK8S_WARM_DIRECTORY}]
    vars: [{name: minik8s_warm_directory}]
  warm_as_root:
    description: Whether the interpreter is root's where the login user is not. For a user who may not become root it
      is the user's own, in a O(warm_directory) that this user can make, such as C(/tmp/minik8s-warm-{uid}).
    type: bool
    default: true
    vars: [{name: minik8s_warm_as_root}]
  warm_idle_s:
    description: Seconds after its last call when the interpreter exits.
    type: float
    default: 30.0
    env: [{name: MINIK8S_WARM_IDLE_S}]
    vars: [{name: minik8s_warm_idle_s}]
  warm_keep_code:
    description: Whether what the interpreter has compiled stays in O(warm_directory), so that the next one starts in
      half the time. The reconciler's does; otherwise the interpreter leaves nothing on the node.
    type: bool
    default: false
    env: [{name: MINIK8S_WARM_KEEP_CODE}]
    vars: [{name: minik8s_warm_keep_code}]
"""
