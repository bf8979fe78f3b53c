"""Why a node that answers is not attended: an Event of the Node when a pass fails as a whole, and when it is over.

Whole passes fail where a lock is held, where Ansible does not come in, or where its Python is gone.
"""

from __future__ import annotations

from collections.abc import Callable

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import Clock
from minik8s_modules.reconcile.events.pod_events import Recorder
from minik8s_modules.reconcile.values.items import Outcome

REASON = "FailedToReconcile"
RECOVERED = "Reconciled"
AGAIN_S = 300.0
"""A failure that lasts is told again: who reads the Event sees that it is not over."""


class PassEvents:
    """Tells each failure, again every ``AGAIN_S``, until it is over; the runner's one thread calls it.

    Args:
        recorder: of Events.
        node: the Node of a name.
        clock: tells when to tell again.
    """

    def __init__(self, recorder: Recorder, node: Callable[[str], JsonObject | None], clock: Clock) -> None:
        self._recorder, self._node, self._clock = recorder, node, clock
        self._recorded: dict[str, tuple[str, float]] = {}

    def on_outcome(self, outcome: Outcome) -> None:
        """Take over how a pass ended; one that was called off says nothing."""
        node = self._node(outcome.node)
        if node is None or outcome.status == "cancelled":
            return
        if outcome.status == "ok":
            if self._recorded.pop(outcome.node, None):
                self._recorder.event(node, "Normal", RECOVERED, "passes over the node end well again")
            return
        text = " ".join((outcome.message or outcome.status).split())
        before, at_s = self._recorded.get(outcome.node, ("", 0.0))
        now_s = self._clock.monotonic()
        if before != text or now_s - at_s >= AGAIN_S:
            self._recorded[outcome.node] = (text, now_s)
            self._recorder.event(node, "Warning", REASON, text)
