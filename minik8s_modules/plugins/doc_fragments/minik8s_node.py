"""What several modules of library/ say of themselves in the same words; ansible-doc puts it into each one's page.

``minik8s_node.section`` are options and attributes of a section of the node's document, without the entries
(minik8s_entries.py); ``.state``, ``.run`` and ``.docker`` tell where a module finds what is kept. The argument specs
that go with them are ``shell.ARGUMENTS`` and ``paths.PLACES`` in ``module_utils/minik8s``.
"""

from __future__ import annotations


class ModuleDocFragment:
    """Ansible looks for this name; an attribute is a fragment."""

    SECTION = r"""
options:
  node:
    description: Name of the node. Only state that carries this name is looked at or changed.
    type: str
    required: true
  mode:
    description:
      - With V(full), O(entries) is the whole declared set; what is not in it is removed.
      - With V(delta), O(upsert) and O(delete) change the set whose digest is O(base); only their keys are looked at.
    type: str
    choices: [full, delta]
    default: full
  base:
    description: Digest of the set a delta builds on. Another one on the node answers RV(base_mismatch).
    type: str
  delete:
    description: Keys a delta removes.
    type: list
    elements: str
  token:
    description:
      - Fencing token, epoch and revision. A node that has seen a newer one answers RV(fenced) and changes nothing.
      - Left out (a run by hand), only the node's lock is taken.
    type: list
    elements: int
attributes:
  check_mode:
    description: Reports the same steps and diff, and changes nothing.
    support: full
  diff_mode:
    description: The diff shows, for each key that differs, what is and what will be. Secret values are never in it.
    support: full
  idempotent:
    description: A second run finds nothing to do, unless a key's error or RV(due) says otherwise.
    support: full
"""

    HOLD = r"""
options:
  hold:
    description:
      - Keys to leave as somebody else made them. Their steps are returned as RV(held), and are not done.
      - A key counts that was declared alike before, realized since, and not since the machine was started. Any other is
        realized.
    type: list
    elements: str
"""

    STATE = r"""
options:
  state_dir:
    description: Directory of what survives a boot (token, last declared sets, pods' files).
    type: path
    default: /var/lib/minik8s
"""

    RUN = r"""
options:
  run_dir:
    description: Directory of what does not survive a boot (secret values, stop markers).
    type: path
    default: /run/minik8s
"""

    DOCKER = r"""
options:
  docker_socket:
    description: Unix socket of the node's Docker daemon.
    type: path
    default: /var/run/docker.sock
"""
