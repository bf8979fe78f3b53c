"""Boots one node, and boots it again when it reboots: ``python -m tests.lab.supervisor NODE_FOLDER LOCK_FD``.

Killing this process is a power cut: each child asks the kernel to be killed when its parent ends (``setpriv
--pdeathsig``, ``unshare --kill-child``), and a node's processes all live in one pid namespace. Before its first effect
the supervisor writes its own pid and start time beside ``boot.json``; until then it holds the lab's lock, which it
inherited. So a ``lab-down`` after a killed ``lab-up`` waits for this record and then finds the process.

``boot.json`` is read at every boot: ``{"groups": [cgroup folder], "prepare": [argv], "command": [argv]}``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.lab import processes

RECORD = "process.json"
BOOT = "boot.json"
# reboot(2) in a pid namespace ends its first process with SIGHUP, power off with SIGINT (kernel/pid_namespace.c);
# unshare passes the signal on to itself.
REBOOTED = -1


def record(folder: Path) -> None:
    """Write our own mark, whole or not at all."""
    own = processes.mark(os.getpid())
    if own is None:
        raise SystemExit("supervisor: /proc does not show this process")
    partial = folder / f"{RECORD}.part"
    partial.write_text(own.to_json(), encoding="utf-8")
    partial.replace(folder / RECORD)


def boot(folder: Path) -> int:
    """Run the node until it ends and return its status (negative: the signal)."""
    plan = json.loads((folder / BOOT).read_text(encoding="utf-8"))
    for group in plan["groups"]:
        Path(group, "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")
    for argv in plan["prepare"]:
        subprocess.run(argv["argv"], input=argv["input"], text=True, check=argv["check"])
    return subprocess.run(["setpriv", "--pdeathsig", "KILL", *plan["command"]], check=False).returncode


def main(arguments: list[str]) -> int:
    """Record, let go of the lock, and boot until the node powers off."""
    folder = Path(arguments[0])
    record(folder)
    os.close(int(arguments[1]))
    while True:
        status = boot(folder)
        print(f"supervisor: the node ended with status {status}", flush=True)
        if status != REBOOTED:
            return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
