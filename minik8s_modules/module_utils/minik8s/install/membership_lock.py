"""The lock of a cluster's membership: one playbook at a time changes machines, keys or programs. Pure but ``Place``.

It is ``/run/minik8s-membership.json`` on the first machine of the control plane, and names the run that holds it:
``{"holder": {"id", "user", "host", "controller", "pid", "started", "playbook"}, "boot", "since_day_s", "renewed_s",
"lasts_s"}``. ``controller`` is boot id and pid namespace of the machine that runs ansible-playbook, ``id`` a digest of
it and the process. No process keeps the lock:

    renewed     by its holder, as each play begins; a claim that was not renewed for as long as it lasts is over
    taken over  when it is over; when its machine was booted since; when the holder has ended, which only a run on its
                controller knows (plugins/action/minik8s_membership_lock.py); when its id is given to break it
    released    at the end of the last play

Time is the machine's since its boot, so nobody's clock matters; the time of day is only told.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
OPEN_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class Now(NamedTuple):
    """The machine's boot and the seconds since it, and the time of day in seconds since 1970."""

    boot: str
    seconds: float
    day_s: float


class Claim(NamedTuple):
    """Who holds the lock (``holder``: id, user, host, pid, playbook...), since when, and for how long from when on."""

    holder: dict[str, Any]
    boot: str
    since_day_s: float
    renewed_s: float
    lasts_s: float

    def ends_in_s(self, now: Now) -> float:
        """Return after how many seconds it is over; 0 when it is."""
        return max(0.0, self.renewed_s + self.lasts_s - now.seconds) if self.boot == now.boot else 0.0


class Decision(NamedTuple):
    """Whether the asker may go on; ``claim`` is what is to stand in the file then, None for no file."""

    granted: bool
    claim: Claim | None
    reason: str


def take(found: Claim | None, holder: dict[str, Any], lasts_s: float, over: str, now: Now) -> Decision:
    """Return what comes of asking for the lock; ``over`` is the id of a holder that has ended or is given up."""
    mine = Claim(holder, now.boot, now.day_s, now.seconds, lasts_s)
    if found is None:
        return Decision(granted=True, claim=mine, reason="it was free")
    if found.holder.get("id") == holder["id"]:
        return Decision(granted=True, claim=mine._replace(since_day_s=found.since_day_s), reason="it was held already")
    if found.boot != now.boot:
        return Decision(granted=True, claim=mine, reason="the machine was booted since it was taken")
    if not found.ends_in_s(now):
        return Decision(granted=True, claim=mine, reason="its holder has not renewed it in time")
    if over and found.holder.get("id") == over:
        return Decision(granted=True, claim=mine, reason="its holder has ended")
    return Decision(granted=False, claim=found, reason="somebody else holds it")


def release(found: Claim | None, holder: dict[str, Any]) -> Decision:
    """Return what comes of giving the lock back; one that somebody else has taken over stays."""
    if found is None or found.holder.get("id") == holder["id"]:
        return Decision(granted=True, claim=None, reason="it is free")
    return Decision(granted=False, claim=found, reason="somebody else holds it")


def parse(text: str) -> Claim | None:
    """Return the claim that a file holds; None for what none of us wrote whole (a power cut, a full disk)."""
    try:
        return Claim(**json.loads(text))
    except (ValueError, TypeError):
        return None


def machine_now() -> Now:
    """Return this machine's time."""
    return Now(BOOT_ID.read_text(encoding="ascii").strip(), time.clock_gettime(time.CLOCK_BOOTTIME), time.time())


class Place:
    """The file; who has it ``alone`` reads and writes without another one in between."""

    def __init__(self, path: str) -> None:
        self._path = path

    def look(self) -> Claim | None:
        """Return the claim there is, without waiting for anybody."""
        try:
            return parse(Path(self._path).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None

    @contextlib.contextmanager
    def alone(self) -> Iterator[int]:
        """Open and lock the file; yield its descriptor. It exists while this lasts."""
        while True:
            descriptor = os.open(self._path, OPEN_FLAGS, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if self._is(descriptor):  # else it was removed while we waited for it
                    yield descriptor
                    return
            finally:
                os.close(descriptor)

    def write(self, descriptor: int, claim: Claim | None) -> None:
        """Have the file hold ``claim``; None removes it."""
        if claim is None:
            os.unlink(self._path)
            return
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(claim._asdict()).encode() + b"\n", 0)

    def _is(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), os.stat(self._path))
        except FileNotFoundError:
            return False
