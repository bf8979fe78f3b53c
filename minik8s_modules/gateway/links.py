"""The way to a node: its Docker socket as a local path, and the file that says somebody attends it.

``LocalLink`` is this machine. ``SshLink`` keeps one ssh master with the node's Docker socket forwarded to a
local one, and one sftp channel through it. A master survives a killed gateway and is adopted by the next.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from minik8s_modules.gateway.errors import FileRefused, NodeUnreachable
from minik8s_modules.gateway.inventory import NodeAddress
from minik8s_modules.gateway.metrics import Disk
from minik8s_modules.gateway.sftp import SftpChannel
from minik8s_modules.gateway.ssh import SshMaster

ATTENDED = "attended"
READ_BYTES = 32768
T = TypeVar("T")


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

    def read(self, path: str) -> bytes:
        """Return the first 32 KB of a file of the node; from any thread.

        Raises:
            NodeUnreachable: it was not read.
        """

    def disk(self, path: str) -> Disk:
        """Return the node's file system that holds ``path``; from any thread.

        Raises:
            NodeUnreachable: it cannot be told.
        """

    def cadvisor(self) -> str:
        """Return where the node's cAdvisor answers here: a port, a socket's path, "" for nowhere."""

    def beat(self, within_s: float) -> None:
        """Return when the node has answered a small question.

        Raises:
            NodeUnreachable: it has not, within so many seconds.
        """

    def end_beats(self) -> None:
        """Give up what beats go over."""

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

    def read(self, path: str) -> bytes:
        """Read the file."""
        try:
            with Path(path).open("rb") as file:
                return file.read(READ_BYTES)
        except OSError as error:
            raise FileRefused(f"cannot read {path}: {error.strerror}") from error

    def disk(self, path: str) -> Disk:
        """Ask the kernel."""
        try:
            found = os.statvfs(path)
        except OSError as error:
            raise NodeUnreachable(f"cannot look at the file system of {path}: {error.strerror}") from error
        size = found.f_frsize
        return Disk(found.f_blocks * size, found.f_bavail * size, found.f_files, found.f_ffree)

    def cadvisor(self) -> str:
        """Return the port."""
        return str(self._address.cadvisor_port or "")

    def beat(self, within_s: float) -> None:
        """Return at once: who asks is the node itself."""

    def end_beats(self) -> None:
        """Do nothing: nothing was opened."""

    def close(self) -> None:
        """Do nothing: nothing was opened."""


class SshLink:
    """A machine behind ssh; ``directory`` holds its sockets on this one."""

    def __init__(self, address: NodeAddress, directory: Path) -> None:
        self._address = address
        self._master = SshMaster(address, directory)
        self._sftp: SftpChannel | None = None
        self._lock = threading.Lock()
        self._beats: SftpChannel | None = None

    def open(self) -> str:
        """Adopt or start the master and return the forwarded socket."""
        return str(self._master.ensure())

    def touch_attended(self) -> None:
        """Write the file through the sftp channel, which is opened when it is not."""
        path, data = f"{self._address.run_dir}/{ATTENDED}", b"%d\n" % time.time()
        self._through(lambda channel: channel.write_file(path, data))

    def read(self, path: str) -> bytes:
        """Read the file through the sftp channel."""
        return self._through(lambda channel: channel.read_file(path))

    def disk(self, path: str) -> Disk:
        """Ask through the sftp channel."""
        _, size, blocks, _, available, files, free, *_ = self._through(lambda channel: channel.file_system(path))
        return Disk(blocks * size, available * size, files, free)

    def cadvisor(self) -> str:
        """Return the socket that ssh forwards to the node's port."""
        return str(self._master.cadvisor) if self._address.cadvisor_port else ""

    def beat(self, within_s: float) -> None:
        """Ask over a channel of its own, which waits behind nothing; one thread."""
        if self._beats is None:
            self._beats = SftpChannel(self._master.sftp_argv(), within_s)
        try:
            self._beats.beat()
        except NodeUnreachable:
            self.end_beats()
            raise

    def end_beats(self) -> None:
        """End that channel."""
        beats, self._beats = self._beats, None
        if beats is not None:
            beats.close()

    def _through(self, do: Callable[[SftpChannel], T]) -> T:
        """Return what ``do`` answers; a channel that failed is ended, the next call opens another."""
        with self._lock:
            if self._sftp is None:
                self._sftp = SftpChannel(self._master.sftp_argv())
            try:
                return do(self._sftp)
            except NodeUnreachable:
                self._sftp.close()
                self._sftp = None
                raise

    def close(self) -> None:
        """End channel and master."""
        with self._lock:
            if self._sftp is not None:
                self._sftp.close()
                self._sftp = None
        self._master.close()


def link_to(address: NodeAddress, directory: Path) -> Link:
    """Return the link the node's connection asks for."""
    return SshLink(address, directory) if address.connection == "warm_ssh" else LocalLink(address)
