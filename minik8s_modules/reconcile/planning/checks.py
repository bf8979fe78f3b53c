"""Asks nodes what they would do: check items through the same live run as everything else."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping

from minik8s_modules.reconcile.loop.section_changes import Request
from minik8s_modules.reconcile.values.items import Outcome, Runner, SectionRequest, WorkItem


class Checks:
    """Check items through the runner: submits and waits; thread-safe."""

    def __init__(self, runner: Runner, token: tuple[int, int]) -> None:
        self._runner = runner
        self._token = token
        self._lock = threading.Lock()
        self._ids = itertools.count(1)
        self._waiting: dict[str, tuple[threading.Event, list[Outcome]]] = {}

    def run(self, node: str, requests: Mapping[str, Request], timeout_s: float) -> Outcome:
        """Return what the node would do; its status is ``cancelled`` when it did not answer in time."""
        done, answers = threading.Event(), list[Outcome]()
        item_id = f"{node}-{self._token[1]}-plan{next(self._ids)}"
        with self._lock:
            self._waiting[item_id] = (done, answers)
        token = {"token": list(self._token)}
        sections = {section: SectionRequest(request.options | token) for section, request in requests.items()}
        self._runner.submit(WorkItem(item_id, node, True, self._token, sections, "check"))  # noqa: FBT003
        if not done.wait(timeout_s):
            self._runner.cancel(item_id)
        with self._lock:
            del self._waiting[item_id]
        return answers[0] if answers else Outcome(item_id, node, "cancelled", {}, f"no answer in {timeout_s:.0f} s")

    def on_outcome(self, outcome: Outcome) -> None:
        """Take over the outcome of a check; it may come after nobody waits for it any more."""
        with self._lock:
            waiting = self._waiting.get(outcome.id)
        if waiting is not None:
            waiting[1].append(outcome)
            waiting[0].set()
