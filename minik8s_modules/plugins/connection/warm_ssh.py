"""warm_ssh: the ssh connection, with modules run by a warm interpreter on the node.

The ControlPersist master carries calls: it forwards the interpreter's socket to a local one (``ssh -O forward``), so a
call costs no process on either side but the module's own fork. Stock `ssh` does everything else, and starts the
interpreter: as root, once, by ``sudo -n <python> -I -`` where the login user is not root. Host keys are pinned: an
unknown or changed key ends the connection, whatever the user's ssh configuration says.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.connection.ssh import Connection as SshConnection
from ansible.utils.display import Display

try:
    from minik8s_modules.plugins.warm import client, options, payload
except ModuleNotFoundError:  # ansible-playbook in a checkout that is not installed
    sys.path.append(str(Path(__file__).resolve().parents[3]))
    from minik8s_modules.plugins.warm import client, options, payload

DOCUMENTATION = r"""
name: warm_ssh
short_description: The ssh connection, with modules run by a warm interpreter on the node
description:
  - Modules run in forks of one interpreter, which stays for O(warm_idle_s) after its last call and is reached through
    the connection's own master. Everything else is as with C(ssh), whose options it has.
  - The interpreter is root's, by one C(sudo) where the login user is not, unless O(warm_as_root=false). Tasks need no
    C(become), and those that have it lose nothing, where it is C(sudo) to root without a password.
  - An unknown or changed host key ends the connection, whatever the user's configuration says.
author: the minik8s authors
options:
  warm_known_hosts:
    description: File of pinned host keys, used instead of the user's and the system's.
    type: path
    env: [{name: MINIK8S_KNOWN_HOSTS}]
    vars: [{name: minik8s_known_hosts}]
extends_documentation_fragment: [minik8s_warm, minik8s_warm.ssh, connection_pipelining]
"""

EXAMPLES = r"""
# hosts.yml, as the installation writes it
all:
  hosts:
    worker1:
      ansible_connection: warm_ssh
      ansible_host: 192.0.2.21
      ansible_user: minik8s-node
      ansible_ssh_private_key_file: /var/lib/minik8s-node/.ssh/id_ed25519
      minik8s_known_hosts: /etc/minik8s/inventory/known_hosts
"""
FORWARD_TIMEOUT_S = 10
display = Display()


class Connection(SshConnection):  # type: ignore[misc]  # ansible is not typed
    """See the module's documentation."""

    transport = "warm_ssh"
    always_pipeline_modules = True  # a module in a file would run without us, and not as root

    def _build_command(self, binary: str, subsystem: str, *other_args: bytes | str) -> list[bytes]:
        """Put the pinned host keys in front: ssh takes the first value it sees."""
        command: list[bytes] = super()._build_command(binary, subsystem, *other_args)
        at = command.index(os.fsencode(binary)) + 1
        pinned = ["StrictHostKeyChecking=yes", "BatchMode=yes", "UpdateHostKeys=no"]
        if known_hosts := self.get_option("warm_known_hosts"):
            pinned += [f"UserKnownHostsFile={known_hosts}", "GlobalKnownHostsFile=/dev/null"]
        return command[:at] + [part for option in pinned for part in (b"-o", os.fsencode(option))] + command[at:]

    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> tuple[int, bytes, bytes]:  # noqa: FBT001, FBT002  Ansible's signature
        """Run a module call in the node's warm interpreter, anything else as `ssh` does; see ConnectionBase."""
        found = payload.parse(in_data)
        if found is None or not options.is_for_root(self, cmd):
            return self._stock(cmd, in_data, sudoable=sudoable)
        self._connect()
        try:
            result = client.run(str(self._local_path()), found, self._start)
        except (OSError, subprocess.SubprocessError) as error:
            display.warning(f"{self.host}: no warm interpreter, running the module the plain way: {error}")
            result = None
        return result or self._stock(self._root_command(), in_data, sudoable=False)

    def _stock(self, cmd: str, in_data: bytes | None, *, sudoable: bool) -> tuple[int, bytes, bytes]:
        code, out, err = super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        return code, out, err

    def _root_command(self) -> str:
        # the login user is known to the node alone; `id -u` would cost a round trip, so the shell there decides
        as_root, as_user = (shlex.join(options.root_command(self, uid)) for uid in (0, 1))
        return f'if [ "$(id -u)" = 0 ]; then exec {as_root}; else exec {as_user}; fi'

    def _local_path(self) -> Path:
        """Return our end of the forwarded socket, beside the master's own: a directory only we can enter."""
        directory = Path(self.get_option("control_path_dir")).expanduser()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = directory.lstat()
        if found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise AnsibleConnectionFailure(f"{directory} must be ours and closed to others: chmod 700, or remove it")
        names = ("host", "port", "remote_user", "warm_directory", "warm_python", "warm_as_root")
        node = "|".join(str(self.get_option(name)) for name in names)
        version = client.server_path("").encode()  # of all its source
        return directory / f"warm-{hashlib.sha256(node.encode() + version).hexdigest()[:16]}.sock"

    def _start(self) -> None:
        """Start the interpreter over plain ssh (this brings the master up, too), then forward its socket."""
        local = self._local_path()
        with self._one_starter(local):
            directory = str(self.get_option("warm_directory"))
            idle_s, python, keep_code = options.idle_s(self), options.python(self), options.keeps_code(self)
            script = client.server_script(directory, idle_s, python, keep_code=keep_code)
            code, out, err = self._stock(self._root_command(), script, sudoable=False)
            if code:
                raise OSError(f"it did not start: exit code {code}: {err.decode(errors='replace').strip()[-500:]}")
            if not _listens(local):
                self._forward(local, out.decode().strip().splitlines()[-1])

    def _forward(self, local: Path, remote: str) -> None:
        local.unlink(missing_ok=True)
        target = f"{local}:{remote}"
        command = self._build_command("ssh", "ssh", "-O", "forward", "-L", target, self.host)
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=FORWARD_TIMEOUT_S, check=False
        )
        if done.returncode:
            reason = done.stderr.decode(errors="replace").strip()[-500:]
            raise OSError(f"ssh -O forward: exit code {done.returncode}: {reason}")

    @contextlib.contextmanager
    def _one_starter(self, local: Path) -> Iterator[None]:
        lock = os.open(local.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(str(path)) == 0
