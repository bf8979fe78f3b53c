"""A thread for each host: declares its units, asks how they are, and never waits for another host."""

from __future__ import annotations

import base64
import json
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.backoff import Backoff
from minik8s_modules.base.clock import Clock
from minik8s_modules.virtual.providers.ansible_units.machines import MachineFault, Machines
from minik8s_modules.virtual.providers.ansible_units.statuses import Told

log = logging.getLogger(__name__)

AWAY = Backoff(initial_s=1.0, maximum_s=60.0)
SOON_S = 1.0
Entries = Mapping[str, JsonObject]
Environments = Mapping[str, Mapping[str, str]]
Wanted = Callable[[], tuple[Entries, Environments]]
"""Returns the units that a host shall have, and the values of their variables, by uid."""


class Follower:
    """One host; thread-safe. ``on_pass`` is called after each pass, and told whether the host answered."""

    def __init__(
        self, node: str, host: str, machines: Machines, wanted: Wanted, on_pass: Callable[[bool], None],
        clock: Clock, period_s: float,
    ) -> None:  # fmt: skip
        self._node, self._host, self._machines = node, host, machines
        self._wanted, self._on_pass, self._clock, self._period_s = wanted, on_pass, clock, period_s
        self._lock = threading.Lock()
        self._states: dict[str, Mapping[str, Any] | None] = {}
        self._errors: dict[str, tuple[str, str]] = {}
        self._cpu: dict[str, tuple[float, int, int]] = {}
        self._trouble = ""
        self._digest = ""
        self._confirmed: Entries | None = None
        self._wake, self._stop, self.looked = threading.Event(), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"units-{host}", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def wake(self) -> None:
        """Have a pass now."""
        self._wake.set()

    def stop(self, patience_s: float) -> None:
        """End after the pass under way; units go on."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(patience_s)

    def told(self, uid: str) -> Told:
        """Return what is known of a unit."""
        with self._lock:
            return Told(self._states.get(uid), self._errors.get(uid), self._trouble)

    def is_away(self) -> bool:
        """Return whether the host did not answer when it was asked last."""
        with self._lock:
            return bool(self._trouble)

    def usage(self, uid: str) -> tuple[int, int, int]:
        """Return the CPU time so far in nanoseconds, how many of a second it took lately, and the memory in bytes."""
        with self._lock:
            state = self._states.get(uid) or {}
            rate = self._cpu.get(uid, (0.0, 0, 0))[2]
        return state.get("cpu_ns", 0), rate, state.get("memory_bytes", 0)

    def step(self) -> bool:
        """Make one pass; return whether another is to follow soon.

        Raises:
            MachineFault: nothing is known.
        """
        entries, environments = self._wanted()
        if self._confirmed == entries:
            options: JsonObject = {"mode": "delta", "base": self._digest, "upsert": {}, "delete": []}
        else:
            values = {uid: {"environment": one} for uid, one in environments.items() if one}
            options = {
                "mode": "full",
                "entries": entries,
                "blob": base64.b64encode(json.dumps(values).encode()).decode(),
            }
        result = self._machines.call(self._host, {"node": self._node, **options})
        if result["base_mismatch"]:
            self._confirmed = None
            return True
        self._take(result)
        # what lacked values is sent them; what somebody has to put right there is tried with each pass
        self._digest, self._confirmed = str(result["digest"]), None if result["errors"] else entries
        return bool(result["steps"] or result["due"])

    def _take(self, result: JsonObject) -> None:
        now_s = self._clock.monotonic()
        with self._lock:
            self._states = dict(result["status"])
            self._errors = {uid: (str(e["reason"]), str(e["message"])) for uid, e in result["errors"].items()}
            self._cpu = {
                uid: _rate(self._cpu.get(uid), now_s, state.get("cpu_ns", 0))
                for uid, state in self._states.items()
                if state
            }
            self._trouble = ""
        self.looked.set()

    def _run(self) -> None:
        failures, pause_s = 0, 0.0
        while not self._stop.is_set():
            self._clock.wait(self._wake, pause_s)
            self._wake.clear()
            if self._stop.is_set():
                return
            try:
                soon = self.step()
            except MachineFault as error:
                log.warning("units: %s", error)
                failures += 1
                pause_s = self._away_s(failures, str(error))
            except Exception as error:  # the loop's edge
                log.exception("units of %s", self._host)
                failures += 1
                pause_s = self._away_s(failures, f"{type(error).__name__}: {error}")
            else:
                failures, pause_s = 0, SOON_S if soon else self._period_s
            try:
                self._on_pass(not failures)
            except Exception:  # a disk that takes no change of a record: the host is followed all the same
                log.exception("units of %s", self._host)

    def _away_s(self, failures: int, why: str) -> float:
        """Note why nothing is known; return how long to wait."""
        with self._lock:
            self._trouble = why
        self.looked.set()
        return AWAY.delay_s(failures)


def _rate(before: tuple[float, int, int] | None, now_s: float, cpu_ns: int) -> tuple[float, int, int]:
    """Return when CPU time was read, how much it was, and how much of a second was used since."""
    if before is None or now_s <= before[0] or cpu_ns < before[1]:
        return now_s, cpu_ns, 0
    return now_s, cpu_ns, int((cpu_ns - before[1]) / (now_s - before[0]))
