#!/usr/bin/python
"""Several sections of a node's document by one call: the thin shell of module_utils/minik8s/joining.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: minik8s_sections
short_description: Several sections of a node's document by one call
description:
  - Runs the passes of several sections, one after the other, as their own modules do (M(minik8s_sandboxes),
    M(minik8s_containers) and the others). A section whose pass fails ends the call; what came before it is done.
  - What an item of the live run changes is realized by this module. For a single section, its own module says more.
options:
  sections:
    description: By section, the options of its module, but for C(blob). Sections are realized in their order.
    type: dict
    required: true
  blob:
    description: 'Values of the section C(secrets), as base64 of JSON C({"<namespace>/<name>": {"<key>": "<base64>"}}).'
    type: str
attributes:
  check_mode:
    description: Reports the same steps and diffs, and changes nothing.
    support: full
  diff_mode:
    description: Each section's result has its diff. Secret values are never in it.
    support: partial
  idempotent:
    description: A second run finds nothing to do, unless a key's error or C(due) of a section says otherwise.
    support: full
author: the minik8s authors
"""

EXAMPLES = r"""
- name: A pod's folder and nothing else
  minik8s_sections:
    sections:
      volumes:
        node: worker-1
        entries:
          4ab1c2d3-0000-4000-8000-000000000001/scratch: {kind: emptyDir, medium: "", size_bytes: null}
      sandboxes: {node: worker-1, entries: {}}
      containers: {node: worker-1, entries: {}}
"""

RETURN = r"""
sections:
  description: By section, what its module returns; of a call that failed, those that were realized.
  type: dict
  returned: always
  sample: {sandboxes: {changed: false, section: sandboxes, steps: []}}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.minik8s.joining import ARGUMENTS, run_sections


def main() -> None:
    """Run the passes."""
    run_sections(AnsibleModule(ARGUMENTS, supports_check_mode=True), ArgumentSpecValidator)


if __name__ == "__main__":
    main()
