"""Which playbook keeps others from changing the cluster's machines, for root on the machine that has the lock.

The file is ``module_utils/minik8s/install/membership_lock.py``'s, which describes it; whether its holder has ended is
known where it ran, by the controller's boot, process namespace and the process' start.
"""

from __future__ import annotations

import json
import shlex
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from minik8s_modules.cli.causes.faults import Fault

LOCK = Path("/run/minik8s-membership.json")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def lock_faults(path: Path = LOCK) -> list[Fault]:
    """Return who holds the membership lock or has left it; [] where nobody does, or this user may not read it."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        claim = json.loads(path.read_text(encoding="utf-8"))
        left_s = claim["renewed_s"] + claim["lasts_s"] - time.clock_gettime(time.CLOCK_BOOTTIME)
        if claim["boot"] == _boot() and left_s > 0:
            since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(claim["since_day_s"]))
            return [_fault(claim["holder"], since, round(left_s / 60))]
    return []


def _fault(holder: Mapping[str, Any], since: str, left_min: int) -> Fault:
    who, what = f"{holder['user']}@{holder['host']}", f"{holder['playbook']} (process {holder['pid']})"
    way_out = f"-e membership_lock_break={holder['id']}"
    if _has_ended(holder):
        cause = f"{what} of {who} has ended and left the membership lock that it took at {since}"
        free = f"playbooks from other machines are refused for {left_min} min more, or until one has {way_out}"
        return Fault(f"{cause}: {free}", f"ansible-playbook playbooks/{shlex.quote(holder['playbook'])} {way_out}")
    cause = f"{who} runs {what} since {since}, and other playbooks that change machines are refused meanwhile"
    look = ["ps", "-fp", str(holder["pid"])]
    here = holder["host"] == socket.gethostname()
    lead = shlex.join(look if here else ["ssh", str(holder["host"]), *look])
    return Fault(f"{cause}; if that has ended, {way_out} frees the lock", lead)


def _has_ended(holder: Mapping[str, Any]) -> bool:
    """Return whether the holder ran here and is no more."""
    if holder.get("controller") != f"{_boot()} {Path('/proc/self/ns/pid').readlink()}":
        return False
    try:
        text = Path(f"/proc/{int(holder['pid'])}/stat").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return True
    state, *rest = text.rpartition(")")[2].split()
    return state == "Z" or rest[18] != holder.get("started")


def _boot() -> str:
    return _BOOT_ID.read_text(encoding="ascii").strip()
