#!/usr/bin/python
"""Units of systemd for programs that are declared: the thin shell of module_utils/minik8s/units/declared.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: minik8s_units
short_description: Programs as units of systemd
description:
  - Each declared program is a unit C(minik8s-pod-<uid>.service), which is started once, or again after its end or a
    reboot where the entry says so. What is not declared any more is stopped, and its files are deleted.
  - Run it as root on a machine with systemd 245 or newer. It leaves no program of its own running.
  - Only units that have a folder below O(state_dir) are looked at or changed.
options:
  node:
    description: Whose units these are, such as the name of the virtual node. Other names' units are left alone.
    type: str
    required: true
  mode:
    description:
      - With V(full), O(entries) is the whole declared set; what is not in it is stopped, and its files are deleted.
      - With V(delta), O(upsert) and O(delete) change the set whose digest is O(base). All units are looked at.
    type: str
    choices: [full, delta]
    default: full
  base:
    description: Digest of the set a delta builds on. Another one there answers RV(base_mismatch).
    type: str
  delete:
    description: Keys a delta removes.
    type: list
    elements: str
  token:
    description: Fencing token, epoch and revision. Who has seen a newer one answers RV(fenced) and changes nothing.
    type: list
    elements: int
  blob:
    description:
      - 'Environments of programs, as base64 of JSON C({"<uid>": {"environment": {"<name>": "<value>"}}}).'
      - Values stand in a file of mode 0600 of root alone; they are in no command line, result or diff.
    type: str
  state_dir:
    description: Folder of what is declared and of the programs; by default C(/var/lib/minik8s-units/) and O(node).
    type: path
  unit_dir:
    description: Folder of the units' files.
    type: path
    default: /etc/systemd/system
extends_documentation_fragment: [minik8s_entries.units]
attributes:
  check_mode:
    description: Reports the same steps and diff, and changes nothing.
    support: full
  diff_mode:
    description: The diff shows the units' files. Values of O(blob) are never in it.
    support: full
  idempotent:
    description: A second run starts nothing again, also where the first was killed.
    support: full
author: the minik8s authors
"""

EXAMPLES = r"""
- name: One program that runs for ever, as an ordinary user
  minik8s_units:
    node: web
    entries:
      4ab1c2d3-0000-4000-8000-000000000001:
        name: default/hello
        user: app
        restart: always
        memory_bytes: 104857600
        script: |
          #!/bin/sh
          exec python3 -m http.server 8080

- name: How the units are; nothing changes
  minik8s_units:
    node: web
    mode: delta
    base: "{{ result.digest }}"
"""

RETURN = r"""
section:
  description: Name of the section.
  type: str
  returned: always
digest:
  description: Digest of the declared set as it now stands there.
  type: str
  returned: always
steps:
  description: What was done (in check mode, what would be done), in order for each key.
  type: list
  elements: dict
  returned: always
  sample:
    - action: start
      key: 4ab1c2d3-0000-4000-8000-000000000001
      detail: minik8s-pod-4ab1c2d3-0000-4000-8000-000000000001.service
differences:
  description: The diff by key, each with its facets before and after; null where there is nothing.
  type: dict
  returned: in check mode
status:
  description:
    - Of each declared unit its state (C(waiting), C(running) or C(ended)), the exit code of its last run (128 more than
      a signal's number), systemd's result, how often it was started again, and times in seconds since 1970; of one that
      runs, what it uses. Null before it was started.
  type: dict
  returned: always
  sample:
    4ab1c2d3-0000-4000-8000-000000000001:
      {state: running, code: 0, result: success, started_s: 1700000000.0, ended_s: 0.0, restarts: 0, cpu_ns: 1000000,
       memory_bytes: 1048576}
errors:
  description: Reason and message of each key that could not be realized; the others are.
  type: dict
  returned: always
due:
  description: Keys that need another run after C(after_s) seconds, and why.
  type: list
  elements: dict
  returned: always
held:
  description: Always empty; sections of nodes have it.
  type: list
  elements: dict
  returned: always
base_mismatch:
  description: Whether a delta did not fit; nothing was changed then.
  type: bool
  returned: always
fenced:
  description: Whether a newer token was seen; nothing was changed then.
  type: bool
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.minik8s.core.faults import NodeFault
from ansible.module_utils.minik8s.core.section import Request, context_for, run_pass
from ansible.module_utils.minik8s.core.shell import ARGUMENTS as SECTION
from ansible.module_utils.minik8s.core.shell import REQUIRED_IF
from ansible.module_utils.minik8s.units.declared import Units
from ansible.module_utils.minik8s.units.folders import home_of
from ansible.module_utils.minik8s.units.systemd import Systemd
from ansible.module_utils.minik8s.units.texts import UNIT_DIR

THREADS = 1  # each effect has systemd read its files again
ARGUMENTS = {
    **{name: SECTION[name] for name in ("node", "mode", "entries", "base", "upsert", "delete", "token")},
    "blob": {"type": "str", "no_log": True},
    "state_dir": {"type": "path"},
    "unit_dir": {"type": "path", "default": UNIT_DIR},
}


def main() -> None:
    """Run one pass."""
    module = AnsibleModule(ARGUMENTS, required_if=REQUIRED_IF, supports_check_mode=True)
    params = module.params
    result, state_dir = {}, params["state_dir"] or home_of(params["node"])
    given = {name: params[name] for name in Request._fields if params.get(name) is not None}
    try:
        request = Request(**{**given, "state_dir": state_dir})
        context = context_for(request, threads=THREADS)
        result = run_pass(Units(Systemd(), params["unit_dir"]), request, context, check=module.check_mode)
    except NodeFault as fault:
        module.fail_json(msg=f"minik8s_units for {params['node']}: {fault}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
