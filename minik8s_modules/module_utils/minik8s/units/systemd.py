"""What ``systemctl`` is asked and told, each with a time limit."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ..core.faults import KeyFault, PassFault

COMMAND_S = 30.0
_SHOWN = (
    "Id", "LoadState", "ActiveState", "SubState", "Result", "ExecMainCode", "ExecMainStatus", "NRestarts",
    "ExecMainStartTimestampMonotonic", "ExecMainExitTimestampMonotonic", "CPUUsageNSec", "MemoryCurrent",
)  # fmt: skip
_EXITED = 1  # CLD_EXITED; what was killed has a signal for its status
_UNSET = (1 << 64) - 1
_LIVE = frozenset({"active", "activating", "reloading", "deactivating"})
BOOT_ID = "/proc/sys/kernel/random/boot_id"


class Shown(NamedTuple):
    """A unit as systemd tells of it; times are seconds since 1970, 0 where there is none."""

    active: str = "inactive"
    sub: str = "dead"
    result: str = "success"
    code: int = 0
    started_s: float = 0.0
    ended_s: float = 0.0
    restarts: int = 0
    cpu_ns: int = 0
    memory_bytes: int = 0

    @property
    def is_live(self) -> bool:
        """Return whether its program runs, or will again by itself."""
        return self.active in _LIVE and self.sub != "exited"

    @property
    def has_run(self) -> bool:
        """Return whether systemd knows of an end."""
        return not self.is_live and (self.active == "failed" or self.sub == "exited" or self.ended_s > 0)


class Systemd:
    """The machine's own."""

    def boot(self) -> str:
        """Return what tells this boot from others."""
        with open(BOOT_ID, encoding="ascii") as source:
            return source.read().strip()

    def show(self, units: Iterable[str]) -> dict[str, Shown]:
        """Return what is known of units by name.

        Raises:
            PassFault: systemd does not answer.
        """
        names = [*units]
        if not names:
            return {}
        try:
            done = _run("show", f"--property={','.join(_SHOWN)}", "--", *names)
        except FileNotFoundError:
            raise PassFault("this machine has no systemctl: units need systemd") from None
        except subprocess.TimeoutExpired:
            raise PassFault(f"systemctl gave no answer in {COMMAND_S:g} s") from None
        if done.returncode:
            raise PassFault(f"systemctl show failed: {done.stderr.strip()[-500:]}")
        return parse_shown(done.stdout, time.time() - time.monotonic())

    def reload(self) -> None:
        """Have units' files read again. Raises KeyFault."""
        _act("daemon-reload")

    def start(self, unit: str, *, at_boot: bool) -> None:
        """Start a unit, and at each boot where that is wanted; one that fails at once tells that itself.

        Raises:
            KeyFault: systemd did not begin.
        """
        if at_boot:
            _act("enable", "--quiet", "--", unit)
        try:
            _act("start", "--", unit)
        except KeyFault:
            shown = self.show([unit]).get(unit, Shown())
            if not shown.is_live and not shown.has_run:
                raise

    def stop(self, unit: str) -> None:
        """Have a unit end, without waiting for it. Raises KeyFault."""
        _act("stop", "--no-block", "--", unit)

    def forget(self, unit: str) -> None:
        """Have nothing of a unit that has ended left: not at boot, not as one that ended well, and not as a failure."""
        _run("stop", "--", unit)
        _run("disable", "--quiet", "--", unit)
        _run("reset-failed", "--", unit)


def _act(*words: str) -> None:
    try:
        done = _run(*words)
    except subprocess.TimeoutExpired:
        raise KeyFault("SystemdUnavailable", f"systemctl {words[0]} gave no answer in {COMMAND_S:g} s") from None
    if done.returncode:
        raise KeyFault("UnitFailed", f"systemctl {words[0]}: {done.stderr.strip()[-500:]}")


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemctl", "--no-pager", "--no-ask-password", *words], stdin=subprocess.DEVNULL, capture_output=True,
        text=True, errors="replace", check=False, timeout=COMMAND_S,
    )  # fmt: skip


def parse_shown(text: str, boot_s: float) -> dict[str, Shown]:
    """Return units by name; ``boot_s`` is when the machine's monotonic clock was 0, in seconds since 1970."""
    found = {}
    for block in text.split("\n\n"):
        said = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if "Id" in said:
            found[said["Id"]] = _shown(said, boot_s)
    return found


def _shown(said: Mapping[str, Any], boot_s: float) -> Shown:
    status = _number(said, "ExecMainStatus")
    began, ended = (_number(said, f"ExecMain{which}TimestampMonotonic") / 1e6 for which in ("Start", "Exit"))
    return Shown(
        active=said.get("ActiveState", "inactive"),
        sub=said.get("SubState", "dead"),
        result=said.get("Result", "success"),
        code=status if _number(said, "ExecMainCode") in {0, _EXITED} else 128 + status,
        started_s=boot_s + began if began else 0.0,
        ended_s=boot_s + ended if ended else 0.0,
        restarts=_number(said, "NRestarts"),
        cpu_ns=_number(said, "CPUUsageNSec"),
        memory_bytes=_number(said, "MemoryCurrent"),
    )


def _number(said: Mapping[str, Any], name: str) -> int:
    text = said.get(name, "")
    number = int(text) if text.isdigit() else 0
    return 0 if number == _UNSET else number
