"""Does somebody attend this node? And, after a boot, will somebody come? Pure, but for ``look`` and ``answers``.

The gateway touches ``<run_dir>/attended`` every 30 s. What counts is for how long no *new* touch has been seen, by
a clock that cannot be set (CLOCK_BOOTTIME), so a node whose clock jumps an hour neither takes over while it is
attended nor waits an hour. Each look leaves a record (``<run_dir>/attendance.json``) for the next one.
A glance of the shell (reapply.sh) that found a new touch counts as a look, though it leaves only what it saw.

    touched since the boot, less than two minutes ago   → attended: the control plane starts what has to be started
    never touched since the boot                        → booted, for two minutes: the API is asked (``answers``)
    anything else                                       → unattended: the node re-applies its last-good documents
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Mapping
from typing import Any, Callable, NamedTuple, Optional

from ..core.files import read_json

UNATTENDED_S = 120.0  # four touches of the gateway, one every 30 s
ASKED_FOR_S = 10.0  # a control plane that boots along with this node is not waited for
_ONE_CALL_S = 3.0
_PAUSE_S = 0.5
_OK = 200
ATTENDED, BOOTED, UNATTENDED = "attended", "booted", "unattended"


class Look(NamedTuple):
    """What is seen now: seconds since 1970 of the last touch and of now, and seconds by a clock nobody can set."""

    boot: str
    touched_s: Optional[float]  # noqa: UP045 - a runtime annotation on Python 3.9
    wall_s: float
    steady_s: float


class Glance(NamedTuple):
    """What the shell saw, and when it glanced before: 0 where it did not in this boot."""

    seen: Look
    before_s: float


class Record(NamedTuple):
    """What the last look left: all but ``touched_s`` (seconds since 1970) by the steady clock.

    ``came_s``: when the last touch of this boot came, None while there was none. ``since_s``: the boot's first look.
    """

    boot: str
    touched_s: Optional[float]  # noqa: UP045
    since_s: float
    looked_s: float
    came_s: Optional[float]  # noqa: UP045


def judge(look: Look, record: Record | None) -> tuple[str, Record]:
    """Return one of ATTENDED, BOOTED, UNATTENDED, and the record for the next look."""
    same_boot = record is not None and record.boot == look.boot
    since_s = record.since_s if record and same_boot else look.steady_s
    came_s = record.came_s if record and same_boot else None
    if look.touched_s is not None and (record is None or record.touched_s != look.touched_s):
        came_s = _came_s(look, record.looked_s if record and same_boot else None)
    after = Record(look.boot, look.touched_s, since_s, look.steady_s, came_s)
    if came_s is not None:
        return (ATTENDED if look.steady_s - came_s <= UNATTENDED_S else UNATTENDED), after
    return (BOOTED if look.steady_s - since_s < UNATTENDED_S else UNATTENDED), after


def _came_s(look: Look, looked_s: float | None) -> float:
    """Return when a touch that the last look had not seen came, by the steady clock.

    It came between two looks: a file time that says otherwise only tells that the clock was set.
    """
    age_s = look.wall_s - (look.touched_s or 0.0)
    if age_s < 0 or (looked_s is not None and age_s > look.steady_s - looked_s):
        return look.steady_s
    return look.steady_s - age_s


def look(run_dir: str) -> Look:
    """Return what is seen now."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as source:
        boot = source.read().strip()
    try:
        touched_s = float(int(os.stat(os.path.join(run_dir, "attended")).st_mtime))  # as a glance has it
    except FileNotFoundError:
        touched_s = None
    return Look(boot, touched_s, time.time(), time.clock_gettime(time.CLOCK_BOOTTIME))


def record_path(run_dir: str) -> str:
    """Return the file of the last look."""
    return os.path.join(run_dir, "attendance.json")


def read_record(run_dir: str) -> Record | None:
    """Return what the last look left, None where nothing usable is there."""
    found = read_json(record_path(run_dir))
    try:
        boot, touched_s, since_s, looked_s, came_s = (found[name] for name in Record._fields)
        touched_s = None if touched_s is None else int(touched_s)  # a look of before glances has a fraction
        return Record(str(boot), _number(touched_s), float(since_s), float(looked_s), _number(came_s))
    except (KeyError, TypeError, ValueError):
        return None


def read_glance(run_dir: str) -> Glance | None:
    """Return what the shell saw when it last found a new touch, None where nothing usable is there."""
    path = run_dir + ".glance"
    try:
        with open(path, encoding="ascii") as source:
            boot, touched_s, steady_s, before_s = source.read().split()
        seen = Look(boot, float(int(touched_s)), os.stat(path).st_mtime, float(int(steady_s)))
        return Glance(seen, float(int(before_s)))
    except (OSError, ValueError):
        return None


def with_glance(record: Record | None, glance: Glance | None) -> Record | None:
    """Return the record as it would be if the shell had left one, too."""
    if record is None or glance is None or glance.seen.boot != record.boot or glance.seen.steady_s <= record.looked_s:
        return record
    return judge(glance.seen, record._replace(looked_s=max(record.looked_s, glance.before_s)))[1]


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def servers(path: str) -> tuple[str, ...]:
    """Return the API servers' HOST:PORT that the installation wrote down; none where it did not."""
    found = read_json(path)
    listed = found.get("servers") if isinstance(found, Mapping) else None
    return tuple(str(one) for one in listed) if isinstance(listed, list) else ()


def answers(
    addresses: Iterable[str],
    ask: Callable[[str, float], bool] | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Return whether one of the API servers says that it is ready, asking all of them for 10 s."""
    asked, deadline = tuple(addresses), clock() + ASKED_FOR_S
    while asked:
        for address in asked:
            left_s = deadline - clock()
            if left_s <= 0:
                return False
            if (ask or is_ready)(address, min(left_s, _ONE_CALL_S)):
                return True
        sleep(max(0.0, min(_PAUSE_S, deadline - clock())))
    return False


def is_ready(address: str, timeout_s: float) -> bool:
    """Return whether the API server at HOST:PORT answers ``/readyz`` with 200.

    Nothing is sent and nothing but the status is read, and the answer only decides whether this node waits two minutes
    at most. So the certificate is not checked, and nodes need no copy of an authority that may be exchanged.
    """
    import http.client  # noqa: PLC0415 - a third of the start of a program that is started each minute
    import ssl  # noqa: PLC0415

    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        connection = http.client.HTTPSConnection(address, timeout=timeout_s, context=context)
        with contextlib.closing(connection):
            connection.request("GET", "/readyz")
            return connection.getresponse().status == _OK
    except (OSError, ValueError, http.client.HTTPException):
        return False
