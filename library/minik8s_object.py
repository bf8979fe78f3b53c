#!/usr/bin/python
# Copyright: the minik8s authors
# Apache License 2.0 (see LICENSE)
"""Ansible module: objects of the API are as declared, absent, or patched; what changes is the server's own answer."""

from __future__ import annotations

DOCUMENTATION = r"""
module: minik8s_object
short_description: Objects of the API are there, absent, or patched
description:
  - C(present) is a server-side apply, so the server merges, sets defaults and records who owns which field.
    C(patched) changes objects that exist. C(absent) deletes.
  - Each write is first tried as the server's dry run. If nothing would change, nothing is written; check mode and diff
    show exactly that answer.
  - All objects are read before the first is touched. They are written in the order given, deleted in the reverse one.
    The task ends at the first one that the server refuses.
  - Values of Secrets are neither returned nor shown in a diff; only whether they differ.
requirements:
  - >-
    The Python that runs the module can import C(minik8s_modules). So it is on localhost with this repository's
    C(.venv) and, by itself, on machines of the control plane (C(/opt/minik8s/venv)).
options:
  state:
    description: Desired state of the objects.
    type: str
    choices: [present, absent, patched]
    default: present
  definition:
    description: >-
      The objects - a mapping, a list of mappings, or YAML text of one or more documents. For C(absent), apiVersion,
      kind and name are enough; for C(patched), these and the fields to change.
    type: raw
  src:
    description: File of YAML or JSON documents, on the machine that runs the task. It is no template.
    type: path
  namespace:
    description: Namespace of objects that name none.
    type: str
    default: default
  kubeconfig:
    description: >-
      Kubeconfig file. The default is C($KUBECONFIG), C(~/.kube/config), then the cluster's own admin file.
    type: path
  context:
    description: Context of the kubeconfig. The default is its current one.
    type: str
    default: ""
  field_manager:
    description: Name under which the server records the ownership of fields.
    type: str
    default: ansible
  force:
    description: Whether C(present) takes over fields that another manager owns. Otherwise that is a conflict.
    type: bool
    default: false
  patch_type:
    description: How C(patched) merges lists - C(strategic) by their keys, C(merge) replaces them.
    type: str
    choices: [strategic, merge]
    default: strategic
  propagation_policy:
    description: What C(absent) does with objects that the deleted ones own. The default is the kind's.
    type: str
    choices: [Background, Foreground, Orphan]
  grace_period_s:
    description: Seconds that C(absent) gives pods to end. The default is the pod's own.
    type: int
  wait:
    description: >-
      Whether to wait until the objects are ready, or gone. A rollout is ready when it is complete, other kinds by their
      conditions Ready, Available or Complete, or their phase; a kind without any when it is there.
    type: bool
    default: false
  wait_conditions:
    description: Conditions that must hold instead.
    type: list
    elements: dict
    default: []
    suboptions:
      type:
        description: Type of the condition, as in C(Available).
        type: str
        required: true
      status:
        description: What it must be.
        type: str
        choices: ["True", "False", "Unknown"]
        default: "True"
      reason:
        description: The reason it must have. The default is any.
        type: str
        default: ""
  wait_timeout_s:
    description: Seconds to wait for all objects together; then the task fails.
    type: int
    default: 120
attributes:
  check_mode: {description: The server is asked for dry runs only., support: full}
  diff_mode: {description: Objects before and after by their names., support: full}
  idempotent: {description: Where nothing would change nothing is written., support: full}
author: the minik8s authors
"""

EXAMPLES = r"""
- name: The shop runs, and its rollout is complete
  minik8s_object:
    src: files/shop.yml
    namespace: shop
    wait: true

- name: The shop's settings are these, whoever wrote them before
  minik8s_object:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata:
        name: settings
        namespace: shop
      data:
        currency: EUR
    field_manager: shop-playbook
    force: true

- name: The shop has three replicas
  minik8s_object:
    state: patched
    definition:
      apiVersion: apps/v1
      kind: Deployment
      metadata:
        name: shop
        namespace: shop
      spec:
        replicas: 3
    wait: true
    wait_conditions:
      - type: Available

- name: The trial is gone with all that it owned
  minik8s_object:
    state: absent
    definition:
      apiVersion: apps/v1
      kind: Deployment
      metadata:
        name: trial
    propagation_policy: Foreground
    wait: true
"""

RETURN = r"""
steps:
  description: What was written, in order; in check mode what would be.
  returned: always
  type: list
  elements: dict
  sample: [{"action": "created", "key": "deployments.apps shop/shop"}]
objects:
  description: The objects as they are now (in check mode would be), without those that are gone.
  returned: success
  type: list
  elements: dict
  sample: [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "shop"}, "data": {}}]
"""

import sys
from functools import partial
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.respawn import has_respawned, probe_interpreters_for_module, respawn_module

try:
    from minik8s_modules.api.errors import Conflict
    from minik8s_modules.base.errors import Minik8sError
    from minik8s_modules.client import declared
    from minik8s_modules.client.api import ApiClient
    from minik8s_modules.client.discovery import kind_at
    from minik8s_modules.client.kubeconfig import find_kubeconfig
    from minik8s_modules.client.readiness import Condition

    MISSING = None
except ModuleNotFoundError as error:
    MISSING = error

INSTALLED = "/opt/minik8s/venv/bin/python"
CONDITION = {
    "type": {"type": "str", "required": True},
    "status": {"type": "str", "choices": ["True", "False", "Unknown"], "default": "True"},
    "reason": {"type": "str", "default": ""},
}


def main() -> None:
    """Read, plan, write, wait, report."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent", "patched"], "default": "present"},
            "definition": {"type": "raw"},
            "src": {"type": "path"},
            "namespace": {"type": "str", "default": "default"},
            "kubeconfig": {"type": "path"},
            "context": {"type": "str", "default": ""},
            "field_manager": {"type": "str", "default": "ansible"},
            "force": {"type": "bool", "default": False},
            "patch_type": {"type": "str", "choices": ["strategic", "merge"], "default": "strategic"},
            "propagation_policy": {"type": "str", "choices": ["Background", "Foreground", "Orphan"]},
            "grace_period_s": {"type": "int"},
            "wait": {"type": "bool", "default": False},
            "wait_conditions": {"type": "list", "elements": "dict", "default": [], "options": CONDITION},
            "wait_timeout_s": {"type": "int", "default": 120},
        },
        mutually_exclusive=[("definition", "src")],
        required_one_of=[("definition", "src")],
        supports_check_mode=True,
    )
    _need_the_client(module)
    done: list[declared.DeclaredWrite] = []
    at = "the cluster"
    try:
        wanted, manner, client = _prepared(module)
        for each in wanted:
            at = each.key
            if step := declared.plan(client, each, manner, wanted if module.check_mode else ()):
                if not module.check_mode:
                    declared.carry_out(client, step, manner)
                done.append(step)
        if module.params["wait"] and not module.check_mode:
            conditions = [Condition(**each) for each in module.params["wait_conditions"]]
            if lack := declared.wait_all(client, wanted, manner, conditions, module.params["wait_timeout_s"]):
                module.fail_json(msg=lack, **declared.result_of(done))
        objects = declared.outcome(client, wanted, done if module.check_mode else [])
        module.exit_json(**declared.result_of(done), objects=objects)
    except (Minik8sError, OSError, UnicodeDecodeError) as error:
        hint = "; `force: true` takes the fields over" if isinstance(error, Conflict) else ""
        module.fail_json(msg=f"{at}: {error}{hint}", **declared.result_of(done))


def _need_the_client(module: AnsibleModule) -> None:
    """Go on in a Python that has the client, or fail and say what to do."""
    if MISSING is None:
        return
    if not has_respawned() and (found := probe_interpreters_for_module([INSTALLED], "minik8s_modules.client.declared")):
        respawn_module(found)
    module.fail_json(
        msg=f"{sys.executable}: {MISSING}; this module needs minik8s' client. Run the task on localhost with the "
        "repository's .venv (`make venv` makes it), on a machine of the control plane, or after `pip install` of it"
    )


def _prepared(module: AnsibleModule) -> tuple[list[declared.DeclaredObject], declared.Manner, ApiClient]:
    given = module.params
    fields = ("state", "field_manager", "force", "patch_type", "propagation_policy", "grace_period_s")
    manner = declared.Manner(*(given[name] for name in fields))
    definition = Path(given["src"]).read_text(encoding="utf-8") if given["src"] else given["definition"]
    path = find_kubeconfig(given["kubeconfig"] or "")
    client = ApiClient.from_kubeconfig(path, user_agent="ansible", warn=module.warn, context=given["context"])
    find = partial(kind_at, client)
    wanted = declared.read(definition, given["namespace"], given["src"] or "definition", find)
    return wanted[::-1] if manner.state == "absent" else wanted, manner, client


if __name__ == "__main__":
    main()
