"""Commands on nodes over SSH, through one shared connection a node, whose sockets lie in the lab's folder.

Ansible's shared connections have their sockets there as well (``ansible_control_path_dir``): a power cut leaves those
as a real one would, hanging; ``lab-down`` ends them all.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.lab.errors import LabNodeFailed
from tests.lab.host import Host

LAST_CHARACTERS = 3000


@dataclass(frozen=True)
class Remote:
    """The nodes of the lab with this folder, by name."""

    folder: Path

    def login(self, node: str) -> list[str]:
        """Return the command line that logs in to a node; append a command for its shell."""
        return ["ssh", "-F", str(self.folder / "ssh_config"), node]

    def run(self, node: str, argv: Sequence[str], text: str, timeout_s: float) -> str:
        """Run a command as root, with ``text`` on its standard input, and return what it printed on both streams.

        Raises:
            LabNodeFailed: It ended with another status than 0, or not in time.
        """
        *ssh, name = self.login(node)
        shared = ["-o", "ControlMaster=auto", "-o", "ControlPersist=60"]
        shared += ["-o", f"ControlPath={self.folder}/masters/lab-{node}"]
        try:
            done = subprocess.run(
                [*ssh, *shared, name, shlex.join(argv)],
                input=text,
                text=True,
                errors="replace",
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise LabNodeFailed(f"{node}: {shlex.join(argv)} did not end within {timeout_s:.0f} s") from error
        if done.returncode:
            said = done.stdout[-LAST_CHARACTERS:]
            raise LabNodeFailed(f"{node}: {shlex.join(argv)} ended with {done.returncode}:\n{said}")
        return done.stdout

    def hang_up(self, host: Host, node: str) -> None:
        """End our own connection to a node."""
        self._end(host, f"lab-{node}")

    def hang_up_all(self, host: Host) -> None:
        """End all shared connections, Ansible's too; they would outlive the nodes by a minute."""
        self._end(host, "*")

    def _end(self, host: Host, pattern: str) -> None:
        found = (self.folder / "masters").glob(pattern)
        # warm_ssh has sockets there, too (.sock), which go with the master that forwards them
        sockets = [path for path in found if path.is_socket() and path.suffix != ".sock"]
        for path in sockets:
            host.run(["ssh", "-o", f"ControlPath={path}", "-O", "exit", "lab"], check=False, timeout_s=10)
            path.unlink(missing_ok=True)
