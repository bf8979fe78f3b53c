"""Asks launchers how their guests are: ``vmctl status`` by exec, seldom once a guest runs and its agent answers.

A launcher tells nobody by itself: its readiness probe tells the node when the guest runs, and the end of its container
when that ends. What is between (why it does not start yet, a pause, an agent, addresses) is asked for: each second
while it starts, then with growing pauses up to a minute.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import Clock
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.client.kubeconfig import Access
from minik8s_virtual_machines.controllers.conditions import COMPUTE, Report, report_of, runs
from minik8s_virtual_machines.server.podstreams import Where, run

log = logging.getLogger(__name__)

VMCTL = "/usr/bin/vmctl"
ANSWER_S = 10.0
STARTING_S, SELDOM_S = 1.0, 60.0
Look = Callable[[Where], Report | None]
"""Returns what a launcher says, None where it does not answer."""


def look_by(access: Access) -> Look:
    """Return what asks launchers through the API server."""

    def look(where: Where) -> Report | None:
        try:
            done = asyncio.run(run(access, where, [VMCTL, "status"], ANSWER_S))
            answer = json.loads(done.out.splitlines()[-1]) if done.code == 0 and done.out.strip() else {}
        except (StatusError, TemporaryError, ValueError, OSError) as error:
            log.debug("%s: the launcher did not answer: %s", where, error)
            return None
        return report_of(answer) if isinstance(answer, dict) else None

    return look


class _Known(NamedTuple):
    report: Report
    at_s: float
    pause_s: float


class Reports:
    """The last report of each pod, by uid; asks again when it is time."""

    def __init__(self, look: Look, clock: Clock) -> None:
        self._look, self._clock = look, clock
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}

    def of(self, instance: JsonObject, pod: JsonObject | None) -> tuple[Report, float | None]:
        """Return what the launcher said last, and in how many seconds to ask again; None while it cannot be asked."""
        if pod is None or not runs(pod) or objects.is_deleting(pod):
            return Report(), None
        uid, now = objects.uid(pod), self._clock.monotonic()
        with self._lock:
            known = self._known.get(uid)
        if known is not None and now - known.at_s < known.pause_s and not _surprising(instance, known.report):
            return known.report, known.pause_s - (now - known.at_s)
        found = self._look(Where(objects.namespace(pod), objects.name(pod), COMPUTE))
        report = found if found is not None else (known.report if known else Report())
        settled = report.phase == "Running" and found is not None
        pause = min(SELDOM_S, (known.pause_s if known else STARTING_S) * 2) if settled else STARTING_S
        pause = SELDOM_S if settled and report.agent else pause
        with self._lock:
            self._known[uid] = _Known(report, now, pause)
        return report, pause

    def last(self, uid: str) -> Report:
        """Return what the launcher of a pod said last, nothing where it has not been asked."""
        with self._lock:
            known = self._known.get(uid)
        return known.report if known is not None else Report()

    def forget(self, uids: set[str]) -> None:
        """Keep the reports of these pods alone."""
        with self._lock:
            self._known = {uid: known for uid, known in self._known.items() if uid in uids}


def _surprising(instance: JsonObject, report: Report) -> bool:
    """Return whether the status says otherwise than the last report: somebody has paused the guest, or let it go on."""
    paused = (objects.condition(instance, "Paused") or {}).get("status") == "True"
    return paused != report.paused
