"""The pod's programs: ``virt-launcher prepare`` in the init container, ``virt-launcher`` as process 1 of ``compute``.

Process 1 is what KubeVirt calls the monitor: it forwards SIGTERM to the guest as the press of a power button, reaps
whatever ends in the container, and when it dies, by whatever signal, the kernel ends the machine with it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys

from minik8s_virtual_machines.launcher import paths
from minik8s_virtual_machines.launcher.errors import LauncherError
from minik8s_virtual_machines.launcher.guest import Guest, parse
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
        code, message = _live(guest)
    except LauncherError as error:
        code, message = 1, str(error)
    finish(code, message)


def _live(guest: Guest) -> tuple[int, str]:
    """Run the guest; return how it ended. What only it needs is half of all imports, and ``prepare`` does without."""
    import asyncio  # noqa: PLC0415 - see above

    from minik8s_virtual_machines.launcher.running import live  # noqa: PLC0415 - see above

    return asyncio.run(live(guest))


def finish(code: int, message: str) -> None:
    """End as the guest did, with the reason where Kubernetes looks for it."""
    log.info("%s", message)
    with contextlib.suppress(OSError):
        paths.TERMINATION.write_text(message, encoding="utf-8")
    sys.exit(code)
