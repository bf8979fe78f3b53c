#!/usr/bin/python
# Copyright: the minik8s authors
# Apache License 2.0 (see LICENSE)
"""Ansible module: what a machine exports by NFS for the cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: minik8s_exports
short_description: Folders that a machine exports by NFS for the cluster
description:
  - Writes C(/etc/exports.d/minik8s.exports) and has the kernel's NFS server export it. Exports of others, in files or
    by C(exportfs -i), stay as they are.
  - A folder that is missing is made so that root alone can list it; none is ever deleted.
options:
  exports:
    description: What is exported; an empty list takes back what this module exported.
    type: list
    elements: dict
    required: true
    suboptions:
      path: {description: "Folder, an absolute path without blanks.", type: path, required: true}
      clients:
        description: Names or addresses of the machines it goes to. Networks and wildcards are refused.
        type: list
        elements: str
        required: true
      options:
        description: Options of exports(5).
        type: list
        elements: str
        default: [rw, sync, no_subtree_check, root_squash]
attributes:
  check_mode: {description: Says what would be done., support: full}
  diff_mode: {description: Shows the file before and after., support: full}
  idempotent: {description: Exports that stand as declared are left alone., support: full}
author: the minik8s authors
"""

EXAMPLES = r"""
- name: Volumes are exported to the nodes
  minik8s_exports:
    exports:
      - path: /srv/minik8s
        clients: [192.0.2.10, 192.0.2.11]
"""

RETURN = r"""
steps:
  description: What was done (in check mode, would be done), in order.
  returned: always
  type: list
  elements: dict
  sample: [{action: export, what: all}]
"""

import contextlib
import os
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.minik8s.core.faults import KeyFault
from ansible.module_utils.minik8s.core.owned_files import write_file
from ansible.module_utils.minik8s.install.exports import (
    FILE,
    Export,
    ObservedExports,
    Step,
    export_of,
    plan,
    render,
)
from ansible.module_utils.minik8s.volumes.exported import TABLE, pairs_of

PATH = {"type": "path", "required": True}
TEXTS = {"type": "list", "elements": "str"}
OPTIONS = ["rw", "sync", "no_subtree_check", "root_squash"]


def _text(path: str) -> str:
    with contextlib.suppress(FileNotFoundError):
        return Path(path).read_text(encoding="utf-8", errors="surrogateescape")
    return ""


def observe(exports: list[Export]) -> ObservedExports:
    """Return what stands on this machine."""
    missing = frozenset(one.path for one in exports if not Path(one.path).is_dir())
    return ObservedExports(_text(FILE), pairs_of(_text(TABLE)), missing)


def lacks(module: AnsibleModule) -> str:
    """Return what keeps this machine from exporting anything, "" for nothing."""
    if not module.get_bin_path("exportfs"):
        return "exportfs is not on this machine; install the package nfs-kernel-server"
    if "nfsd" not in _text("/proc/filesystems").split():
        module.run_command(["modprobe", "nfsd"])
    if "nfsd" not in _text("/proc/filesystems").split():
        release = os.uname().release
        return f"the kernel {release} has no NFS server (nfsd); put another machine into the group nfs_server"
    return ""


def apply(module: AnsibleModule, step: Step, text: str) -> None:
    """Carry out one step."""
    if step.action == "make":
        Path(step.what).mkdir(mode=0o711, parents=True, exist_ok=True)
    elif step.action == "write":
        Path(FILE).parent.mkdir(mode=0o755, exist_ok=True)
        write_file(FILE, text.encode(), ("root", "root", "0644"))
    elif step.action == "remove":
        Path(FILE).unlink(missing_ok=True)
    else:
        words = ["-a"] if step.action == "export" else ["-u", step.what]
        module.run_command(["exportfs", *words], check_rc=True)


def main() -> None:
    """Observe, plan, apply, report."""
    spec = {"path": PATH, "clients": {**TEXTS, "required": True}, "options": {**TEXTS, "default": OPTIONS}}
    exports_option = {"type": "list", "elements": "dict", "required": True, "options": spec}
    module = AnsibleModule({"exports": exports_option}, supports_check_mode=True)
    exports: list[Export] = []
    try:
        exports += [export_of(each) for each in module.params["exports"]]
    except KeyFault as fault:
        module.fail_json(msg=str(fault))
    seen, text = observe(exports), render(exports)
    steps = plan(exports, seen)
    missing = lacks(module) if exports else ""
    if missing:
        module.fail_json(msg=missing)
    if not module.check_mode:
        for step in steps:
            apply(module, step, text)
    reported = [step._asdict() for step in steps]
    module.exit_json(changed=bool(steps), steps=reported, diff={"before": seen.text, "after": text})


if __name__ == "__main__":
    main()
