"""The way to a node: its Docker socket as a local path, and the file that says somebody attends it.

``LocalLink`` is this machine. ``SshLink`` keeps one ssh master with the node's Docker socket forwarded to a
local one, and one sftp channel through it. A master survives a killed gateway and is adopted by the next.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Protocol

from minik8s_modules.gateway.errors import NodeUnreachable
from minik8s_modules.gateway.inventory import NodeAddress
from minik8s_modules.gateway.sftp import SftpChannel
from minik8s_modules.gateway.ssh import SshMaster

ATTENDED = "attended"


class Link(Protocol):
    """The way to one node."""

    def open(self) -> str:
        """Make the way, if it is not there, and return the local path of the node's Docker socket.

        Raises:
            NodeUnreachable: there is no way now.
        """

    def touch_attended(self) -> None:
        """Set the attended file's time to now.

        Raises:
            NodeUnreachable: it was not done.
        """

    def close(self) -> None:
        """Give the way up; ends what ``open`` started."""


class LocalLink:
    """This machine as a node."""

    def __init__(self, address: NodeAddress) -> None:
        self._address = address

    def open(self) -> str:
        """Return the node's own socket."""
        return self._address.docker_socket

    def touch_attended(self) -> None:
        """Write the file, and its directory where that is missing."""
        path = Path(self._address.run_dir) / ATTENDED
        try:
            path.parent.mkdir(mode=0o755, exist_ok=True)
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            with contextlib.closing(os.fdopen(handle, "wb")) as file:
                file.truncate(0)
                file.write(b"%d\n" % time.time())
        except OSError as error:
            raise NodeUnreachable(f"cannot write {path}: {error.strerror}") from error

    def close(self) -> None:
        """Do nothing: nothing was opened."""


class SshLink:
    """A machine behind ssh; ``directory`` holds its sockets on this one."""

    def __init__(self, address: NodeAddress, directory: Path) -> None:
        self._address = address
        self._master = SshMaster(address, directory)
        self._sftp: SftpChannel | None = None

    def open(self) -> str:
        """Adopt or start the master and return the forwarded socket."""
        return str(self._master.ensure())

    def touch_attended(self) -> None:
        """Write the file through the sftp channel, which is opened when it is not."""
        if self._sftp is None:
            self._sftp = SftpChannel(self._master.sftp_argv())
        try:
            self._sftp.write_file(f"{self._address.run_dir}/{ATTENDED}", b"%d\n" % time.time())
        except NodeUnreachable:
            self._sftp.close()
            self._sftp = None
            raise

    def close(self) -> None:
        """End channel and master."""
        if self._sftp is not None:
            self._sftp.close()
            self._sftp = None
        self._master.close()


def link_to(address: NodeAddress, directory: Path) -> Link:
    """Return the link the node's connection asks for."""
    return SshLink(address, directory) if address.connection == "warm_ssh" else LocalLink(address)
