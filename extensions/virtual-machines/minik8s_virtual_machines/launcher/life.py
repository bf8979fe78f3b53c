"""A guest's life in its pod: wait for its images, start the machine, start it again or end.

The pod ends as the guest ended: 0 when it powered itself off or was told to, 1 when the machine crashed or could not
start. Whether there is another pod is for the VirtualMachine's run strategy.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from minik8s_virtual_machines.launcher import dhcp, disks, locks, network
from minik8s_virtual_machines.launcher.agent import Agent
from minik8s_virtual_machines.launcher.console import Console
from minik8s_virtual_machines.launcher.errors import LauncherError, Refused
from minik8s_virtual_machines.launcher.guest import Guest
from minik8s_virtual_machines.launcher.machines.machine import CRASHED, REBOOT, End, Machine

_LOCK_AGAIN_S = 0.3
_REBOOT_S = 300.0
"""A guest that has not ended so long after it was told to reboot ignores that; when it ends later, it powers off."""


class Outcome(NamedTuple):
    """How the pod ends."""

    code: int
    message: str = ""


def _now() -> float:
    return asyncio.get_running_loop().time()


def after(end: End, *, stopping: bool, rebooting: bool) -> Outcome | None:
    """Return how the pod ends after its machine did, None where the machine is to be started again. Pure."""
    if stopping:
        return Outcome(0, "the guest was shut down")
    if end.kind == CRASHED:
        return Outcome(1, end.message)
    if end.kind == REBOOT or rebooting:
        return None
    return Outcome(0, "the guest powered itself off")


class Life:
    """``make`` returns the machine for one start."""

    def __init__(self, guest: Guest, console: Console, make: Callable[[Guest, Sequence[disks.Image]], Machine]) -> None:
        self.guest, self.console, self.agent = guest, console, Agent()
        self._make = make
        self._machine: Machine | None = None
        self._locks: list[int] = []
        self._stopping, self._reboot_until = asyncio.Event(), 0.0
        self._phase, self._reason, self._message = "Scheduled", "Preparing", "the disks are being made"
        self.is_paused = self._has_started = False
        self._runs = asyncio.Event()

    async def run(self) -> Outcome:
        """Live."""
        tasks = [asyncio.create_task(self.agent.watch())]
        up = network.kept()
        if self.guest.interface is not None and up is not None:
            lease = dhcp.lease_of(self.guest.interface.mac, self.guest.hostname, up.mtu, dhcp.resolver())
            tasks.append(asyncio.create_task(dhcp.serve(lease)))
        try:
            images = disks.make(self.guest)
            if not await self._lock(images):
                return Outcome(0, "the guest was stopped before it started")
            while (outcome := await self._once(images)) is None:
                pass
        except (LauncherError, OSError) as error:
            self._say("Failed", "CannotStart", str(error))
            return Outcome(1, str(error))
        finally:
            for task in tasks:
                task.cancel()
        return outcome

    def _say(self, phase: str, reason: str, message: str) -> None:
        self._phase, self._reason, self._message = phase, reason, message

    async def _lock(self, images: Sequence[disks.Image]) -> bool:
        """Take the images that are written to, one after the other, however long that takes; False: stopped first."""
        for path in sorted({image.path for image in images if image.disk.is_written}):
            while (taken := locks.take(path)) is None:
                name = next(image.disk.name for image in images if image.path == path)
                self._say("Scheduled", "DiskInUse", f"disk {name}: {path.name} is in use by another machine; waiting")
                if await self._stopped_within(_LOCK_AGAIN_S):
                    return False
            self._locks.append(taken)
        return not self._stopping.is_set()

    async def _stopped_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)
        return self._stopping.is_set()

    async def _once(self, images: Sequence[disks.Image]) -> Outcome | None:
        """Start the machine and wait for its end; return how the pod ends, None where the guest starts again."""
        self._reboot_until = 0.0
        machine = self._make(self.guest, images)
        paused = self.guest.starts_paused and not self._has_started
        await machine.start(paused=paused)
        self._machine, self.is_paused, self._has_started = machine, paused, True
        self._say("Running", "", "")
        self._runs.set()
        await self.agent.attach(machine.agent)
        reading = asyncio.create_task(self.console.attach(machine.console)) if machine.console else None
        stopping = asyncio.create_task(self._stop(machine))
        try:
            end = await machine.wait()
        finally:
            stopping.cancel()
            self._machine = None
            self._runs.clear()
        if reading is not None:
            await asyncio.wait([reading], timeout=1)  # the guest's last words
        outcome = after(end, stopping=self._stopping.is_set(), rebooting=_now() < self._reboot_until)
        if outcome is not None:
            self._say("Failed" if outcome.code else "Succeeded", end.kind, outcome.message)
        return outcome

    async def _stop(self, machine: Machine) -> None:
        """Once told to, ask the guest to power off; after its grace period end it."""
        await self._stopping.wait()
        if self.guest.grace_s:
            with contextlib.suppress(Refused):
                if self.is_paused:
                    await self.unpause()
                await machine.shutdown()
            await asyncio.sleep(self.guest.grace_s)
        machine.kill()

    def stop(self) -> None:
        """Shut the guest down; safe to call again."""
        self._stopping.set()

    def machine(self) -> Machine:
        """Return the machine that runs.

        Raises:
            Refused: none does.
        """
        if self._machine is None:
            raise Refused(f"the machine does not run: {self._message or 'it is between two starts'}")
        return self._machine

    async def running(self, patience_s: float) -> None:
        """Wait until the machine runs.

        Raises:
            Refused: it does not, in time.
        """
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._runs.wait(), patience_s)
        self.machine()

    async def pause(self) -> None:
        """Stop the guest's CPUs; again is the same."""
        machine = self.machine()
        if not self.is_paused:
            await machine.pause()
            self.is_paused = True

    async def unpause(self) -> None:
        """Let them go on; again is the same."""
        machine = self.machine()
        if self.is_paused:
            await machine.unpause()
            self.is_paused = False

    async def reboot(self) -> None:
        """Have the guest end by the key or button that its machine has, and start it again."""
        machine = self.machine()
        if self.is_paused:
            raise Refused("the machine is paused; unpause it first")
        self._reboot_until = _now() + _REBOOT_S
        await machine.reboot()

    async def told(self) -> dict[str, Any]:
        """Return what ``vmctl status`` tells: the status, and what the machine uses."""
        machine = self._machine
        figures = await machine.figures() if machine is not None else {}
        memory = {"domain_bytes": float(self.guest.memory_bytes)} if figures else {}
        return {**self.status(), "figures": {**figures, **memory}}

    def status(self) -> dict[str, Any]:
        """Return how the guest is."""
        machine, up = self._machine, network.kept()
        interface = self.guest.interface
        return {
            "phase": self._phase,
            "paused": self.is_paused,
            "reason": self._reason,
            "message": self._message,
            "agentConnected": self.agent.is_connected,
            "machine": self.guest.machine,
            "accelerator": machine.accelerator if machine is not None else "",
            "interfaces": []
            if interface is None or up is None
            else [
                {
                    "name": interface.name,
                    "mac": interface.mac,
                    "ipAddress": up.address,
                    "ipAddresses": [up.address],
                    "infoSource": "domain",
                }
            ],
        }
