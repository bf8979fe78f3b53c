"""QEMU as a machine: a q35 by KVM where the pod has the device, else by TCG, which is some ten times slower.

It is steered by QMP. Serial console, guest agent and VNC are Unix sockets that the launcher alone connects to.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minik8s_virtual_machines.launcher import paths
from minik8s_virtual_machines.launcher.children import Children, kill_group
from minik8s_virtual_machines.launcher.disks import QCOW2, Image, refuse_foreign_base
from minik8s_virtual_machines.launcher.errors import Refused, Unusable
from minik8s_virtual_machines.launcher.guest import Q35, Guest
from minik8s_virtual_machines.launcher.machines import usage
from minik8s_virtual_machines.launcher.machines.machine import CRASHED, OFF, End
from minik8s_virtual_machines.launcher.machines.qemu_command import BALLOON, command
from minik8s_virtual_machines.launcher.machines.qmp import Monitor

_BALLOON_EVERY_S = 30
_SOCKETS = ("qmp.sock", "serial.sock", "agent.sock", "vnc.sock")


def has_kvm(device: Path = paths.KVM) -> bool:
    """Return whether the pod may use the processor's own virtualization."""
    return os.access(device, os.R_OK | os.W_OK)


class Qemu:
    """One start."""

    name = Q35

    def __init__(self, guest: Guest, images: Sequence[Image], children: Children, run: Path = paths.RUN) -> None:
        for image in images:
            if image.format == QCOW2:
                refuse_foreign_base(image.path)
        self._guest, self._images, self._children, self._run = guest, images, children, run
        self._kvm = has_kvm()
        self.accelerator = "kvm" if self._kvm else "tcg: the pod has no /dev/kvm, so the guest is some ten times slower"
        self.console: socket.socket | None = None
        self.agent: socket.socket | None = None
        self._monitor = Monitor(self._on_event)
        self._pid = 0
        self._end: asyncio.Future[int] | None = None
        self._is_off = False

    async def start(self, *, paused: bool) -> None:
        """See Machine; what QEMU says to its standard error is the message where it refuses to start."""
        for name in _SOCKETS:
            (self._run / name).unlink(missing_ok=True)
        words = self._run / "qemu.log"
        with words.open("wb") as log:
            argv = command(self._guest, self._images, self._run, kvm=self._kvm, paused=paused)
            self._pid, self._end = self._children.start(
                argv, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._run
            )
        while not await self._is_up():
            if self._end.done():
                said = words.read_text(errors="replace").strip().splitlines()
                raise Unusable(f"QEMU does not start: {said[-1] if said else 'it says nothing'}")
            await asyncio.sleep(0.01)
        with contextlib.suppress(Refused):
            await self._monitor.ask(
                "qom-set", path=str(BALLOON), property="guest-stats-polling-interval", value=_BALLOON_EVERY_S
            )
        if self._guest.serial:
            self.console = await self._connected("serial.sock")
        self.agent = await self._connected("agent.sock")

    async def _is_up(self) -> bool:
        try:
            await self._monitor.connect(self._run / "qmp.sock")
        except (OSError, Refused):
            return False
        return True

    async def _connected(self, name: str) -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(0)
        await asyncio.get_running_loop().sock_connect(made, str(self._run / name))
        return made

    def _on_event(self, name: str, data: dict[str, Any]) -> None:
        if name == "SHUTDOWN":
            self._is_off = data.get("guest", False) or data.get("reason") == "host-qmp-quit"

    async def wait(self) -> End:
        """See Machine; a guest that reboots goes on in the same QEMU."""
        assert self._end is not None  # noqa: S101 - started before
        code = await self._end
        if code == 0 and self._is_off:
            return End(OFF)
        how = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
        said = (self._run / "qemu.log").read_text(errors="replace").strip()[-500:]
        return End(CRASHED, f"QEMU {how}" + (f": {said}" if said else ""))

    async def shutdown(self) -> None:
        """Press the power button (ACPI)."""
        await self._monitor.ask("system_powerdown")

    async def reboot(self) -> None:
        """Press the power button; the launcher starts a guest again that has ended by it."""
        await self._monitor.ask("system_powerdown")

    async def pause(self) -> None:
        """See Machine."""
        await self._monitor.ask("stop")

    async def unpause(self) -> None:
        """See Machine."""
        await self._monitor.ask("cont")

    async def screenshot(self) -> bytes:
        """See Machine."""
        self._needs_display()
        path = self._run / "screen.png"
        try:
            await self._monitor.ask("screendump", filename=str(path), format="png")
            return path.read_bytes()
        finally:
            path.unlink(missing_ok=True)

    async def display(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """See Machine."""
        self._needs_display()
        return await asyncio.open_unix_connection(self._run / "vnc.sock")

    async def figures(self) -> dict[str, float]:
        """See Machine; a guest without a driver of the balloon says nothing of its memory."""
        found = usage.of_processes(self._pid)
        with contextlib.suppress(Refused):
            answer = await self._monitor.ask("qom-get", path=str(BALLOON), property="guest-stats")
            found |= usage.of_balloon(answer)
        return found

    def _needs_display(self) -> None:
        if not self._guest.graphics:
            raise Refused("the machine has no display: devices.autoattachGraphicsDevice is false")

    def kill(self) -> None:
        """See Machine."""
        kill_group(self._pid)
