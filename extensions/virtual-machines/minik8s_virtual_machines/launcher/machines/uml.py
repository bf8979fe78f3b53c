"""User-Mode Linux as a machine: the kernel is a process, without rights; a guest is there in a second.

Its serial console is its standard input and output, its second serial line the guest agent's; it is steered by its
management console. What it lacks is refused: a display, other CPUs, qcow2.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from pathlib import Path

from minik8s_virtual_machines.launcher import paths
from minik8s_virtual_machines.launcher.children import Children, kill_group
from minik8s_virtual_machines.launcher.disks import RAW, Image, root_device
from minik8s_virtual_machines.launcher.errors import Refused, Unusable
from minik8s_virtual_machines.launcher.guest import UML, Guest
from minik8s_virtual_machines.launcher.machines import mconsole, usage
from minik8s_virtual_machines.launcher.machines.machine import CRASHED, OFF, REBOOT, End

_ID = "vm"
REBOOTED = 77
"""Status of the program that a rebooting kernel executes in place of itself."""


class UserModeLinux:
    """One start."""

    name = UML
    accelerator = "none: the kernel is a process"

    def __init__(self, guest: Guest, images: Sequence[Image], children: Children, run: Path = paths.RUN) -> None:
        self._guest, self._children, self._run = guest, children, run
        self._argv = command(guest, images, run)
        self._socket = run / _ID / "mconsole"
        self.console: socket.socket | None = None
        self.agent: socket.socket | None = None
        self._pid = 0
        self._end: asyncio.Future[int] | None = None

    async def start(self, *, paused: bool) -> None:
        """Start the kernel."""
        self._socket.unlink(missing_ok=True)
        self.console, inner = socket.socketpair()
        self.agent, line = socket.socketpair()
        with inner, line:
            # a rebooting kernel executes its own name
            self._pid, self._end = self._children.start(
                [str(paths.UML_REBOOTED), *self._argv, f"ssl0=fd:{line.fileno()}"],
                executable=str(paths.UML),
                stdin=inner,
                stdout=inner,
                stderr=inner,
                pass_fds=(line.fileno(),),
                env={"TMPDIR": str(self._run), "PATH": "/usr/bin:/bin", "HOME": str(self._run)},
                cwd=self._run,
            )
        while not self._socket.exists() and not self._end.done():
            await asyncio.sleep(0.005)
        if paused and not self._end.done():
            await self.pause()

    async def wait(self) -> End:
        """See Machine."""
        assert self._end is not None  # noqa: S101 - started before
        code = await self._end
        kill_group(self._pid)  # the guest's processes are processes here, which a killed kernel leaves behind
        return end_of(code)

    async def shutdown(self) -> None:
        """Press Ctrl-Alt-Del, the one key that a guest without a display knows; it reboots or powers off by it."""
        await self._ask("cad")

    async def reboot(self) -> None:
        """Press Ctrl-Alt-Del."""
        await self._ask("cad")

    async def pause(self) -> None:
        """See Machine."""
        await self._ask("stop")

    async def unpause(self) -> None:
        """See Machine."""
        await self._ask("go")

    async def screenshot(self) -> bytes:
        """See Machine."""
        raise Refused("machine uml has no display")

    async def display(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """See Machine."""
        raise Refused("machine uml has no display")

    async def figures(self) -> dict[str, float]:
        """See Machine."""
        return usage.of_processes(self._pid)

    def kill(self) -> None:
        """See Machine."""
        kill_group(self._pid)

    async def _ask(self, command: str) -> None:
        await mconsole.ask(self._socket, command, self._run / "mconsole-answers")


def end_of(code: int) -> End:
    """Return what a kernel's exit status means."""
    if code == REBOOTED:
        return End(REBOOT)
    if code == 0:
        return End(OFF)
    how = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
    return End(CRASHED, f"machine uml {how}; the end of its console says more")


def command(guest: Guest, images: Sequence[Image], run: Path) -> list[str]:
    """Return the kernel's parameters; pure.

    Raises:
        Unusable: an image is not raw.
    """
    for image in images:
        if image.format != RAW:
            raise Unusable(f"disk {image.disk.name} is {image.format}; machine uml takes raw images alone")
    words = [
        f"mem={guest.memory_bytes >> 20}M",
        f"uml_dir={run}/",
        f"umid={_ID}",
        f"hostfs={run}/none",  # what a guest may see of the pod's files: a folder that is not there
        "seccomp=auto",
        "con0=fd:0,fd:1",
        "con=null",
        "ssl=null",
        "console=tty0",
        "panic=-1",
        *(["root=" + root_device(images[0].path), "rw"] if images else []),
        *(_disk(number, image) for number, image in enumerate(images)),
    ]
    if guest.interface is not None:
        words.append(f"vec0:transport=tap,ifname=tap0,depth=64,mac={guest.interface.mac}")
    return [*words, *guest.kernel_arguments]


def _disk(number: int, image: Image) -> str:
    """Return a disk's parameter; ``c`` keeps the kernel from locking what the launcher has locked."""
    flags = "c" if image.disk.is_written else "rc"
    serial = f",,{image.disk.serial}" if image.disk.serial else ""
    return f"ubd{number}{flags}={image.path}{serial}"
