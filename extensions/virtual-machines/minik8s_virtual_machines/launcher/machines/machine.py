"""What every machine does, and what it says when it does not."""

from __future__ import annotations

import asyncio
import socket
from typing import NamedTuple, Protocol

OFF, REBOOT, CRASHED = "off", "reboot", "crashed"


class End(NamedTuple):
    """How a machine ended: ``off`` by its guest, ``reboot`` where the guest wants another start, or ``crashed``."""

    kind: str
    message: str = ""


class Machine(Protocol):
    """One start of a guest. What it lacks raises Refused and names the machine."""

    name: str
    console: socket.socket | None
    agent: socket.socket | None
    accelerator: str
    """How it computes, for the status."""

    async def start(self, *, paused: bool) -> None:
        """Start it; raises Unusable with its own words where it does not come up."""

    async def wait(self) -> End:
        """Wait for its end."""

    async def shutdown(self) -> None:
        """Ask the guest to power itself off."""

    async def reboot(self) -> None:
        """Ask the guest to end for another start; whether it does is its own matter."""

    async def pause(self) -> None:
        """Stop its CPUs."""

    async def unpause(self) -> None:
        """Let them go on."""

    async def screenshot(self) -> bytes:
        """Return the display as PNG."""

    async def display(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection to its VNC server."""

    async def figures(self) -> dict[str, float]:
        """Return what it uses (usage.py)."""

    def kill(self) -> None:
        """End it now."""
