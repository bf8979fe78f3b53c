"""warm_local: the local connection, with modules run by a warm interpreter on this machine.

Stock `local` does everything but module payloads; those go to the warm interpreter (`warm/client.py`), which is
started where there is none: as root, once, by ``sudo -n <python> -I -`` when the user is not root.
Tasks carry no become.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.connection.local import Connection as LocalConnection
from ansible.utils.display import Display

try:
    from minik8s_modules.plugins.warm import client, options, payload
except ModuleNotFoundError:  # ansible-playbook in a checkout that is not installed
    sys.path.append(str(Path(__file__).resolve().parents[3]))
    from minik8s_modules.plugins.warm import client, options, payload

DOCUMENTATION = r"""
name: warm_local
short_description: The local connection, with modules run by a warm interpreter
description:
  - Modules run in forks of one interpreter, which stays for O(warm_idle_s) after its last call. Everything else is as
    with C(local), whose options it has.
  - The interpreter is root's, by one C(sudo) where the user is not; tasks need no C(become).
author: the minik8s authors
extends_documentation_fragment: [minik8s_warm, minik8s_warm.local, connection_pipelining]
"""

EXAMPLES = r"""
# hosts.yml: the machine itself is a node
all:
  hosts:
    node1:
      ansible_connection: warm_local
"""
START_TIMEOUT_S = 30
display = Display()


class Connection(LocalConnection):  # type: ignore[misc]  # ansible is not typed
    """See the module's documentation."""

    transport = "warm_local"
    always_pipeline_modules = True  # a module in a file would run without us, and not as root

    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> tuple[int, bytes, bytes]:  # noqa: FBT001, FBT002  Ansible's signature
        """Run a module call in the warm interpreter, anything else as `local` does; see ConnectionBase."""
        found = payload.parse(in_data)
        if found is None or in_data is None or not options.is_for_root(self, cmd):
            code, out, err = super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
            return code, out, err
        directory = options.directory(self, os.geteuid())
        try:
            path = client.server_path(directory, python=options.python(self))
            result = client.run(path, found, lambda: self._start(directory))
        except AnsibleConnectionFailure as error:
            display.warning(f"no warm interpreter, running the module the plain way: {error}")
            result = None
        return result or self._plain(in_data)

    def _start(self, directory: str) -> None:
        idle_s, python, keep_code = options.idle_s(self), options.python(self), options.keeps_code(self)
        self._as_root(client.server_script(directory, idle_s, python, keep_code=keep_code))

    def _plain(self, script: bytes) -> tuple[int, bytes, bytes]:
        done = subprocess.run(options.root_command(self, os.geteuid()), input=script, capture_output=True, check=False)
        return done.returncode, done.stdout, done.stderr

    def _as_root(self, script: bytes) -> None:
        argv = options.root_command(self, os.geteuid())
        try:
            done = subprocess.run(argv, input=script, capture_output=True, timeout=START_TIMEOUT_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise AnsibleConnectionFailure(f"{' '.join(argv)}: {error}") from error
        if done.returncode:
            reason = done.stderr.decode(errors="replace").strip()[-500:]
            raise AnsibleConnectionFailure(f"{' '.join(argv)}: exit code {done.returncode}: {reason}")
