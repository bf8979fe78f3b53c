#!/usr/bin/python
"""Volumes of a node's pods: the thin shell of module_utils/minik8s/volumes/volumes.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: minik8s_volumes
short_description: Volumes of a node's pods
description:
  - Makes emptyDir, configMap, downwardAPI, secret and projected volumes, mounts NFS, checks hostPath and local volumes,
    and deletes what is no longer declared once no container of its pod runs. A hostPath, a local volume and what is on
    an NFS server are never deleted.
  - A server that does not answer is asked in a program of its own, for seconds at most, and holds only the containers
    that are still to be made.
  - A size limit is enforced here for an emptyDir with a medium only; pods that write more to disk are evicted.
extends_documentation_fragment:
  - minik8s_node.section
  - minik8s_node.hold
  - minik8s_entries.volumes
  - minik8s_node.state
  - minik8s_node.run
  - minik8s_node.docker
author: the minik8s authors
"""

EXAMPLES = r"""
- name: A scratch directory and a configuration file
  minik8s_volumes:
    node: worker-1
    entries:
      4ab1c2d3-0000-4000-8000-000000000001/scratch: {kind: emptyDir, medium: "", size_bytes: null}
      4ab1c2d3-0000-4000-8000-000000000001/config:
        kind: configMap
        files:
          app.ini: {data: "{{ 'debug = 1' | b64encode }}", mode: 420}
"""

RETURN = r"""
section:
  description: Name of the section.
  type: str
  returned: always
digest:
  description: Digest of the declared set as it now stands on the node.
  type: str
  returned: always
steps:
  description: What was done (in check mode, what would be done), in order for each key.
  type: list
  elements: dict
  returned: always
  sample:
    - {action: make, key: 4ab1c2d3-…/scratch, detail: /var/lib/minik8s/pods/4ab1c2d3-…/volumes/scratch}
differences:
  description: The diff by key, each with its facets before and after; null where there is nothing.
  type: dict
  returned: in check mode
status:
  description: What is known of each key looked at after the steps; null when there is nothing.
  type: dict
  returned: always
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
  description: Steps that were left undone, because their keys are to stay as somebody else made them.
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
calls:
  description: What CSI drivers were asked in this pass, and how long each call took.
  type: list
  elements: dict
  returned: unless base_mismatch or fenced
  sample: [{driver: hostpath.csi.k8s.io, method: /csi.v1.Node/NodePublishVolume, code: OK, seconds: 0.03}]
in_use:
  description: Attached volumes of CSI drivers that the node may have mounted, as C(status.volumesInUse) has them.
  type: list
  elements: str
  returned: unless base_mismatch or fenced
  sample: [kubernetes.io/csi/hostpath.csi.k8s.io^7d1f]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.minik8s.core.shell import ARGUMENTS, HOLD, REQUIRED_IF, run_module
from ansible.module_utils.minik8s.volumes.volumes import Volumes


def main() -> None:
    """Run one pass."""
    arguments = {**ARGUMENTS, **HOLD}
    run_module(AnsibleModule(arguments, required_if=REQUIRED_IF, supports_check_mode=True), Volumes())


if __name__ == "__main__":
    main()
