"""What a live run is on Ansible's Python API: ansible-playbook, but for plays, tasks and strategies; it serves items.

Inventory, variables, playbook and callbacks come by the classes of that API (its Developer Guide), so nothing depends
on strategy plugins, which ansible-core gives up in 2.23. `program.py` starts it, `serving.py` is the rest.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from ansible import context
from ansible.cli import CLI
from ansible.cli.playbook import PlaybookCLI
from ansible.errors import AnsibleError
from ansible.executor.task_queue_manager import TaskQueueManager
from ansible.playbook import Playbook
from ansible.playbook.play_context import PlayContext
from ansible.plugins.loader import add_all_plugin_dirs
from ansible.template import Templar

from minik8s_modules.plugins.live.serving import Ansible, Server

PASSWORDS = {"conn_pass": None, "become_pass": None}


class LivePlaybook(PlaybookCLI):  # type: ignore[misc]  # ansible is not typed
    """Serves items for the first play of a playbook.

    Raises:
        AnsibleError: the playbook, its play or the inventory cannot be used.
    """

    def run(self) -> int:
        """Serve until the socket says stop."""
        CLI.run(self)  # arguments and plugin paths; PlaybookCLI's own would go on to run the play
        path = str(context.CLIARGS["args"][0])
        if not Path(path).is_file():
            raise AnsibleError(f"the playbook: {path} could not be found")
        add_all_plugin_dirs(str(Path(path).resolve().parent))
        loader, inventory, variables = self._play_prereqs()
        manager = TaskQueueManager(
            inventory=inventory, variable_manager=variables, loader=loader, passwords=PASSWORDS, forks=1
        )
        try:
            playbook = Playbook.load(path, variable_manager=variables, loader=loader)
            manager.load_callbacks()
            manager.send_callback("v2_playbook_on_start", playbook)
            serve(playbook.get_plays()[0], manager, inventory, variables, loader)
        finally:
            manager.cleanup()
            loader.cleanup_all_tmp_files()
        return 0


def serve(play: Any, manager: Any, inventory: Any, variables: Any, loader: Any) -> None:
    """Serve items for a play, unless it has no host."""
    play.post_validate(Templar(loader=loader, variables=variables.get_vars(play=play)))
    manager.send_callback("v2_playbook_on_play_start", play)
    if not inventory.get_hosts(play.hosts):
        manager.send_callback("v2_playbook_on_no_hosts_matched")
        return
    with tempfile.TemporaryFile() as lock:  # of connection plugins that ask a person about a host key: one at a time
        play_context = PlayContext(play, PASSWORDS, lock.fileno())
        forks = context.CLIARGS["forks"]
        Server(Ansible(play, play_context, inventory, variables, loader, forks, manager.send_callback)).run()
