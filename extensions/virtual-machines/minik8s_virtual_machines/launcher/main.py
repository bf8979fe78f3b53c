"""The pod's programs: ``virt-launcher prepare`` in the init container, ``virt-launcher`` as process 1 of ``compute``.

Process 1 is what KubeVirt calls the monitor: it forwards SIGTERM to the guest as the press of a power button, reaps
whatever ends in the container, and when it dies, by whatever signal, the kernel ends the machine with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Sequence

from minik8s_virtual_machines.launcher import commands, paths
from minik8s_virtual_machines.launcher.children import Children
from minik8s_virtual_machines.launcher.console import Console
from minik8s_virtual_machines.launcher.disks import Image
from minik8s_virtual_machines.launcher.errors import LauncherError, Unusable
from minik8s_virtual_machines.launcher.guest import UML, Guest, parse
from minik8s_virtual_machines.launcher.life import Life, Outcome
from minik8s_virtual_machines.launcher.machines.machine import Machine
from minik8s_virtual_machines.launcher.machines.qemu import Qemu
from minik8s_virtual_machines.launcher.machines.uml import UserModeLinux
from minik8s_virtual_machines.launcher.prepare import prepare

log = logging.getLogger("virt-launcher")


def main() -> None:
    """Do what the first argument says."""
    logging.basicConfig(level=logging.INFO, format="virt-launcher: %(message)s", stream=sys.stderr)
    try:
        guest = parse(json.loads(os.environ[paths.ENVIRONMENT]))
        if sys.argv[1:] == ["prepare"]:
            prepare(guest)
            return
        outcome = asyncio.run(live(guest))
    except LauncherError as error:
        outcome = Outcome(1, str(error))
    finish(outcome)


def finish(outcome: Outcome) -> None:
    """End as the guest did, with the reason where Kubernetes looks for it."""
    log.info("%s", outcome.message)
    with contextlib.suppress(OSError):
        paths.TERMINATION.write_text(outcome.message, encoding="utf-8")
    sys.exit(outcome.code)


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
