"""A node as a thing on this host: its supervisor's processes, namespace, cgroups, disk. Boots, powers off, removes.

Everything is found by names and the supervisor's record, so a machine whose start was killed half-way is stopped the
same way as a whole one, and stopping a stopped one does nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from tests.lab import boots, groups, processes, records, supervisor
from tests.lab.errors import LabNodeFailed
from tests.lab.host import Host
from tests.lab.network import NETNS
from tests.lab.parts.kernels import Kernel
from tests.lab.places import Places
from tests.lab.records import LabRecord, Names, NodeRecord

END_TIMEOUT_S = 20
POLL_S = 0.03
CONSOLE_LINES = 15
# Each native node's systemd, Docker and names take some ten of them, all of the host's root; the kernel gives 128.
INSTANCES, NEEDED = Path("/proc/sys/fs/inotify/max_user_instances"), 1024


@dataclass(frozen=True)
class Remains:
    """The name of a node and where it lies: enough to end and remove whatever there is of it."""

    host: Host
    folder: Path
    lab: str
    name: str

    @property
    def own(self) -> Path:
        """The node's folder."""
        return records.node_folder(self.folder, self.name)

    @property
    def space(self) -> Path:
        """A native node's network namespace."""
        return Path(NETNS) / Names(self.lab).node_network(self.name)

    def running(self) -> processes.Mark | None:
        """Return the supervisor if it runs."""
        return processes.read_mark(self.own / supervisor.RECORD)

    def cut_power(self) -> list[processes.Mark]:
        """Kill the node and return its processes, which may take a moment to end."""
        top = self.running()
        known = [] if top is None else [top, *processes.descendants(top)]
        if top is not None:
            processes.kill(top)
        # What the chain of parents missed, when somebody else killed the supervisor, is still in the node's cgroup.
        strays = groups.members(Names(self.lab).group(self.name))
        for stray in strays:
            processes.kill(stray)
        return [*known, *strays]

    def settle(self, ending: list[processes.Mark]) -> None:
        """Wait until the processes have ended, and remove what a powered-off node does not have.

        Raises:
            LabNodeFailed: Something of it does not end.
        """
        left = processes.wait_ended(ending, END_TIMEOUT_S)
        if left:
            raise LabNodeFailed(f"{self.name}: processes {[one.pid for one in left]} do not end after SIGKILL")
        groups.remove(Names(self.lab).group(self.name))
        if self.space.exists():
            self.host.run(["ip", "netns", "del", self.space.name])
        _wait_loop_released(self.own / "disk.ext4")
        (self.own / supervisor.RECORD).unlink(missing_ok=True)


@dataclass(frozen=True)
class Machine(Remains):
    """A node of a lab that is known."""

    places: Places
    record: LabRecord
    node: NodeRecord

    @property
    def address(self) -> str:
        """The node's address."""
        return self.record.node_address(self.node)

    def start(self) -> None:
        """Switch the node on, if it is off."""
        if self.running():
            return
        self.settle(self.cut_power())
        self.write_plan()
        allow_instances()
        self.host.spawn_supervisor(self.own, self.places.project)

    def write_plan(self) -> None:
        """Write what the supervisor does at the next boot."""
        records.write(self.own / supervisor.BOOT, json.dumps(self._plan().to_json(), indent=1))

    def _plan(self) -> boots.BootPlan:
        made = groups.make(Names(self.lab).group(self.name))
        if self.node.kind == "uml":
            processors = sorted(os.sched_getaffinity(0))
            processor = processors[self.node.number % len(processors)]
            return boots.uml(self.record, self.node, self.folder, made, Kernel(Path(self.node.kernel)), processor)
        for name in ("root", "disk"):
            (self.own / name).mkdir(exist_ok=True)
        self._make_disk()
        return boots.native(self.record, self.node, self.folder, made)

    def _make_disk(self) -> None:
        disk = self.own / "disk.ext4"
        if disk.exists() or not has_own_disk():
            return
        partial = disk.with_suffix(".part")
        self.host.run(["cp", "--sparse=always", f"{self.node.image}/empty.ext4", partial])
        partial.replace(disk)

    def answers(self) -> bool:
        """Tell whether the node's SSH server greets."""
        try:
            with socket.create_connection((self.address, 22), timeout=2) as connection:
                return connection.recv(4) == b"SSH-"
        except OSError:
            return False

    def wait_ready(self, timeout_s: float) -> None:
        """Return when the node answers.

        Raises:
            LabNodeFailed: It died, or did not answer in time; the message holds the end of its console.
        """
        deadline = time.monotonic() + timeout_s
        while not self.answers():
            died = (self.own / supervisor.RECORD).exists() and not self.running()
            if died or time.monotonic() > deadline:
                what = "died" if died else f"does not answer on {self.address} after {timeout_s:.0f} s"
                raise LabNodeFailed(f"{self.name} {what}; its console ends:\n{self.console(CONSOLE_LINES)}")
            time.sleep(POLL_S)

    def console(self, lines: int) -> str:
        """Return the last lines of the node's console."""
        text = (self.own / "console.log").read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-lines:])


def allow_instances() -> None:
    """Let the host have enough inotify instances for many nodes: without one, systemd ends with 255 while it boots.

    It is a limit of the whole machine, only ever raised; where it cannot be written, it stays as it is.
    """
    with contextlib.suppress(OSError):
        if int(INSTANCES.read_text(encoding="ascii")) < NEEDED:
            INSTANCES.write_text(f"{NEEDED}\n", encoding="ascii")


def has_own_disk() -> bool:
    """Tell whether native nodes get file systems of their own here (loop devices), so that these can be full."""
    return Path("/dev/loop-control").exists() and shutil.which("losetup") is not None


def _wait_loop_released(disk: Path, timeout_s: float = 10) -> None:
    """Wait until no loop device holds the file: it goes with the last mount namespace, a moment after the processes."""
    deadline = time.monotonic() + timeout_s
    while any(_backing(device) == str(disk) for device in Path("/sys/block").glob("loop*/loop/backing_file")):
        if time.monotonic() > deadline:
            raise LabNodeFailed(f"{disk} is still held by a loop device; is one of its mounts held elsewhere?")
        time.sleep(POLL_S)


def _backing(device: Path) -> str:
    try:
        return device.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
