"""Process 1 of ``compute``: what a guest's life is connected to, signals, the socket of ``vmctl`` and the console."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence

from minik8s_virtual_machines.launcher import commands, paths
from minik8s_virtual_machines.launcher.children import Children
from minik8s_virtual_machines.launcher.console import Console
from minik8s_virtual_machines.launcher.disks import Image
from minik8s_virtual_machines.launcher.errors import Unusable
from minik8s_virtual_machines.launcher.guest import UML, Guest
from minik8s_virtual_machines.launcher.life import Life, Outcome
from minik8s_virtual_machines.launcher.machines.machine import Machine
from minik8s_virtual_machines.launcher.machines.qemu import Qemu
from minik8s_virtual_machines.launcher.machines.uml import UserModeLinux


async def live(guest: Guest) -> Outcome:
    """Run the guest."""
    children = Children()
    children.watch()
    os.umask(0o007)

    def make(guest: Guest, images: Sequence[Image]) -> Machine:
        program = paths.UML if guest.machine == UML else paths.QEMU
        if not program.exists():
            raise Unusable(
                f"this node's image of launchers has no machine {guest.machine}: there is no {program} in it"
            )
        return (UserModeLinux if guest.machine == UML else Qemu)(guest, images, children)

    life = Life(guest, Console(sys.stdout.fileno() if guest.logs_serial else None), make)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        loop.add_signal_handler(number, life.stop)
    server = await commands.serve(life, paths.SOCKET)
    try:
        return await life.run()
    finally:
        server.close()
        paths.SOCKET.unlink(missing_ok=True)
