"""The live run as a strategy plugin of ansible-playbook: a play that never ends and serves items (`live/serving.py`).

ansible-core removes strategies of others in 2.23; `live/program.py` does the same without one. What else knows
ansible-core's insides is `live/worker.py`, `live/results.py`, `live/play.py` and, for payloads, `warm/payload.py`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from ansible.plugins.strategy import StrategyBase

try:
    from minik8s_modules.plugins.live import serving
except ModuleNotFoundError:  # ansible-playbook in a checkout that is not installed
    sys.path.append(str(Path(__file__).resolve().parents[3]))
    from minik8s_modules.plugins.live import serving
from minik8s_modules.plugins.live.process import die_with_parent

DOCUMENTATION = """
name: reconcile
short_description: Runs the tasks of a host whenever a work item for it arrives
description:
  - Event-driven; work items arrive as JSON lines on a Unix socket, named by E(MINIK8S_ITEM_SOCKET).
  - Runs flat plays of named tasks without loops, handlers or registered variables.
version_added: "0.1"
author: the minik8s authors
"""

EXAMPLES = """
# With MINIK8S_ITEM_SOCKET=/run/items.sock, ansible-playbook -i hosts.yml of:
- name: Reconcile nodes
  hosts: all
  gather_facts: false
  strategy: reconcile
  tasks:
    - name: network
      minik8s_network:
        node: "{{ inventory_hostname }}"
"""


class StrategyModule(StrategyBase):  # type: ignore[misc]  # ansible is not typed
    """See the module's documentation."""

    ALLOW_BASE_THROTTLING = False

    def run(self, iterator: Any, play_context: Any) -> int:
        """Serve items until the socket says stop, the process is told to end, or its parent has gone."""
        if not die_with_parent(int(os.environ.get("MINIK8S_PARENT") or os.getppid())):
            return int(self._tqm.RUN_ERROR)
        manager = self._tqm
        given = serving.Ansible(
            play=iterator._play,  # noqa: SLF001  no accessor
            play_context=play_context,
            inventory=self._inventory,
            variables=self._variable_manager,
            loader=self._loader,
            forks=manager._forks,  # noqa: SLF001  no accessor
            send_callback=manager.send_callback,
        )
        serving.Server(given).run()
        return int(manager.RUN_OK)
