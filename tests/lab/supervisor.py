"""Boots one node, and boots it again when it reboots: ``python -m tests.lab.supervisor NODE_FOLDER LOCK_FD``.

Killing this process is a power cut: each child asks the kernel to be killed when its parent ends (``setpriv
--pdeathsig``, ``unshare --kill-child``), and a node's processes all live in one pid namespace. Before its first effect
the supervisor writes its own pid and start time beside ``boot.json``; until then it holds the lab's lock, which it
inherited. So a ``lab-down`` after a killed ``lab-up`` waits for this record and then finds the process.

``boot.json`` is read at every boot: ``{"groups": [cgroup folder], "prepare": [{"argv", "input", "check"}], "command":
argv, "rebooted": status}``.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.lab import processes

RECORD = "process.json"
BOOT = "boot.json"
# The parts of a node's cgroup.
NODE, KEEPER = "node", "keeper"
# A node that ends sooner is broken: to boot it again and again helps nobody.
SHORTEST_BOOT_S = 0.5


def record(folder: Path) -> None:
    """Write our own mark, whole or not at all."""
    own = processes.mark(os.getpid())
    if own is None:
        raise SystemExit("supervisor: /proc does not show this process")
    partial = folder / f"{RECORD}.part"
    partial.write_text(own.to_json(), encoding="utf-8")
    partial.replace(folder / RECORD)


def boot(folder: Path) -> bool:
    """Run the node until it ends and tell whether it is to boot again."""
    plan = json.loads((folder / BOOT).read_text(encoding="utf-8"))
    groups = [Path(group) for group in plan["groups"]]
    for step in plan["prepare"]:
        output = None if step["check"] else subprocess.DEVNULL
        subprocess.run(step["argv"], input=step["input"], text=True, check=step["check"], stdout=output, stderr=output)
    begin = time.monotonic()
    vacate(groups, NODE)
    join(groups, NODE, os.getpid())
    with subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *plan["command"]]) as node:
        keep_out(groups, node)
        status = node.wait()
    seconds = time.monotonic() - begin
    print(f"supervisor: the node ended after {seconds:.1f} s with status {status}", flush=True)
    return bool(status == plan["rebooted"] and seconds >= SHORTEST_BOOT_S)


def join(groups: list[Path], part: str, pid: int) -> None:
    """Move a process into this part of each of the node's cgroups."""
    for group in groups:
        (group / part / "cgroup.procs").write_text(str(pid), encoding="ascii")


def vacate(groups: list[Path], part: str) -> None:
    """Take back how the last boot divided the node's cgroups: version 2 lets no process into one that is divided."""
    for group in groups:
        for folder, _, _ in os.walk(group / part, topdown=False):
            divided = Path(folder) / "cgroup.subtree_control"
            with contextlib.suppress(OSError):  # a process that is still ending keeps its cgroup, and no other
                if divided.exists() and (controllers := divided.read_text(encoding="ascii").split()):
                    divided.write_text(" ".join(f"-{each}" for each in controllers), encoding="ascii")
                if Path(folder) != group / part:
                    Path(folder).rmdir()


def keep_out(groups: list[Path], node: subprocess.Popen[bytes]) -> None:
    """Leave the node's cgroups to the node, ourselves and unshare, once its child is in a cgroup namespace of its own.

    The node's systemd divides its cgroup, which version 2 allows only where no process is in it directly.
    """
    join(groups, KEEPER, os.getpid())
    while node.poll() is None:
        if node.pid in processes.children_by_parent():
            with contextlib.suppress(ProcessLookupError):
                join(groups, KEEPER, node.pid)
            return
        time.sleep(0.02)


def main(arguments: list[str]) -> None:
    """Record, let go of the lock, and boot until the node powers off."""
    folder = Path(arguments[0])
    record(folder)
    os.close(int(arguments[1]))
    while boot(folder):
        pass


if __name__ == "__main__":
    main(sys.argv[1:])
