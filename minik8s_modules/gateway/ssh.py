"""One ssh master a node, with the node's Docker socket forwarded to a local unix socket.

The master is a process of its own: killed with kill -9, the gateway leaves it behind, and the next one
adopts it by its recorded pid and start time. What cannot be adopted is ended by those, never
by name. Host keys are pinned: an unknown or changed key ends the attempt. The runner's connections may
share the master (inventory variable ``ansible_control_path``), since both run as one user.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import signal
import subprocess
import time
from pathlib import Path

from minik8s_modules.base.places import place
from minik8s_modules.gateway.errors import NodeUnreachable
from minik8s_modules.gateway.inventory import NodeAddress
from minik8s_modules.runtime.identity import start_time

log = logging.getLogger(__name__)

START_TIMEOUT_S = 15.0
_END_TIMEOUT_S = 5.0
_LONGEST_STEM = 32
# A silent node is given up after 3 * 5 s, well below the 40 s after which its Lease is stale
_OPTIONS = (
    "BatchMode=yes",
    "StrictHostKeyChecking=yes",
    "UpdateHostKeys=no",
    "PasswordAuthentication=no",
    "ConnectTimeout=10",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
    "ExitOnForwardFailure=yes",
    "StreamLocalBindUnlink=yes",
    "StreamLocalBindMask=0177",
    "ForwardAgent=no",
    "ForwardX11=no",
    "ControlPersist=no",
    "Compression=no",
)


class Paths:
    """Where a node's sockets and records lie on this machine; ``directory`` is only ours (0700)."""

    def __init__(self, address: NodeAddress, directory: Path) -> None:
        # a unix socket's path ends at 107 bytes, and ssh binds its own under a name 17 bytes longer
        stem = address.name
        if len(stem) > _LONGEST_STEM:
            stem = hashlib.sha256(stem.encode()).hexdigest()[:_LONGEST_STEM]
        self.control = Path(address.control_path or directory / f"{stem}.ssh")
        self.docker = directory / f"{stem}.docker"
        self.cadvisor = directory / f"{stem}.cadvisor"
        self.record = directory / f"{stem}.pid"
        self.log = directory / f"{stem}.log"


def connection_options(address: NodeAddress, control: Path) -> list[str]:
    """Return ssh's options for ``address``; the host comes after them."""
    argv = ["-F", "none", "-p", str(address.port), "-o", f"ControlPath={control}"]
    for option in _OPTIONS:
        argv += ["-o", option]
    if address.known_hosts:
        argv += ["-o", f"UserKnownHostsFile={address.known_hosts}", "-o", "GlobalKnownHostsFile=/dev/null"]
    if address.key_file:
        argv += ["-o", "IdentitiesOnly=yes", "-i", address.key_file]
    if address.user:
        argv += ["-l", address.user]
    return argv


def master_argv(address: NodeAddress, paths: Paths) -> list[str]:
    """Return the command that becomes the master, with the Docker socket and cAdvisor's port forwarded."""
    forward = ["-L", f"{paths.docker}:{address.docker_socket}"]
    if address.cadvisor_port:
        forward += ["-L", f"{paths.cadvisor}:127.0.0.1:{address.cadvisor_port}"]
    options = connection_options(address, paths.control)
    return ["ssh", "-N", "-T", "-M", *options, *forward, "--", address.host]


def reach_argv(address: NodeAddress, directory: Path, host: str, port: int) -> list[str]:
    """Return the command whose stdin and stdout are a TCP connection from the node to ``host``:``port``."""
    options = connection_options(address, Paths(address, directory).control)
    return ["ssh", "-T", *options, "-o", "ControlMaster=no", "-W", place(host, port), "--", address.host]


def shell_argv(address: NodeAddress, directory: Path) -> list[str]:
    """Return the command that runs on the node, through its master, the command that follows it."""
    options = connection_options(address, Paths(address, directory).control)
    return ["ssh", "-T", *options, "-o", "ControlMaster=no", "--", address.host]


class SshMaster:
    """The master of one node; used by one thread at a time."""

    def __init__(self, address: NodeAddress, directory: Path) -> None:
        self._address = address
        self._paths = Paths(address, directory)
        self._process: subprocess.Popen[bytes] | None = None

    def ensure(self) -> Path:
        """Return the local path of the node's Docker socket, behind a living master.

        Raises:
            NodeUnreachable: no master could be started; the message is ssh's.
        """
        if self._alive():
            return self._paths.docker
        self._end_recorded()
        self._start()
        return self._paths.docker

    @property
    def cadvisor(self) -> Path:
        """The local socket that leads to the node's cAdvisor."""
        return self._paths.cadvisor

    def sftp_argv(self) -> list[str]:
        """Return the command that opens an sftp channel through the master."""
        options = connection_options(self._address, self._paths.control)
        return ["ssh", "-T", *options, "-o", "ControlMaster=no", "-s", "--", self._address.host, "sftp"]

    def close(self) -> None:
        """End the master."""
        self._end_recorded()
        if self._process is not None:
            self._process.wait()
            self._process = None

    def _alive(self) -> bool:
        """Return whether the recorded master lives and listens; a hung one ends itself by its ServerAlive options."""
        recorded = self._recorded()
        if recorded is None or start_time(recorded[0]) != recorded[1]:
            return False
        return self._paths.control.exists() and self._paths.docker.exists()

    def _start(self) -> None:
        for path in (self._paths.control, self._paths.docker, self._paths.cadvisor):
            path.unlink(missing_ok=True)
        try:
            # a file, not a pipe: the master outlives a killed gateway and may still have something to say
            with os.fdopen(_private(self._paths.log), "wb") as log_file:
                process = subprocess.Popen(
                    master_argv(self._address, self._paths),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=log_file,
                    start_new_session=True,
                )
        except OSError as error:
            raise NodeUnreachable(f"cannot start ssh: {error.strerror}") from error
        self._process = process
        self._record(process.pid)
        end = time.monotonic() + START_TIMEOUT_S
        while not (self._paths.control.exists() and self._paths.docker.exists()):
            if process.poll() is not None or time.monotonic() > end:
                raise NodeUnreachable(f"ssh to {self._address.name}: {self._give_up(process)}")
            time.sleep(0.02)
        log.info("%s: connected by ssh", self._address.name)

    def _give_up(self, process: subprocess.Popen[bytes]) -> str:
        process.kill()
        process.wait()
        self._process = None
        error = self._paths.log.read_text(encoding="utf-8", errors="replace").strip()
        return error[-500:] or f"no connection within {START_TIMEOUT_S:.0f} s"

    def _record(self, pid: int) -> None:
        with os.fdopen(_private(self._paths.record), "w", encoding="ascii") as file:
            file.write(f"{pid} {start_time(pid)}\n")

    def _recorded(self) -> tuple[int, str] | None:
        """Return pid and start time of the master that this or an earlier gateway started."""
        try:
            pid, started = self._paths.record.read_text(encoding="ascii").split()
            return int(pid), started
        except (OSError, ValueError):
            return None

    def _end_recorded(self) -> None:
        """End that master, if that very process still lives."""
        recorded = self._recorded()
        if recorded is not None:
            _end(*recorded)
        self._paths.record.unlink(missing_ok=True)


def _private(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _end(pid: int, started: str) -> None:
    """End the process ``pid`` if it began at ``started``: politely, after 5 s by force."""
    end = time.monotonic() + _END_TIMEOUT_S
    number = signal.SIGTERM
    while start_time(pid) == started:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        if time.monotonic() > end:
            number = signal.SIGKILL
        time.sleep(0.02)
