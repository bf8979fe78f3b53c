"""The shell of autoscalers: reads, has it decided, scales, writes the status and tells.

Each tick reads what all pods use, once for all autoscalers. An autoscaler is decided on every 15 seconds (Kubernetes'
sync period), and sooner when every pod it has measured has a newer sample: a sample is never older than a tick when it
is decided on. What windows need to know is kept in memory; a process that begins again begins them again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.errors import BadRequest, NotFound
from minik8s_modules.api.kinds import HORIZONTAL_POD_AUTOSCALER, POD, Kind
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.api.selectors import parse_label_selector
from minik8s_modules.client.discovery import kind_at
from minik8s_modules.client.interface import Raw
from minik8s_modules.client.silences import Silences
from minik8s_modules.controllers.autoscaling.autoscalers import (
    Decision,
    Scale,
    ScaleInputs,
    after_scaling,
    decide_autoscaler,
    needs_metrics,
)
from minik8s_modules.controllers.autoscaling.damping import History
from minik8s_modules.controllers.autoscaling.figures import AutoscalerFigures
from minik8s_modules.controllers.autoscaling.measuring import measure
from minik8s_modules.controllers.autoscaling.readings import ASK_S, Readings
from minik8s_modules.controllers.autoscaling.selecting import Selecting
from minik8s_modules.controllers.autoscaling.targets import WORKLOADS, Targets, kind_of
from minik8s_modules.runtime.controller import Context, Loop, Looping
from minik8s_modules.runtime.informers import BY_LABEL, BY_NAMESPACE, selected

log = logging.getLogger(__name__)

TICK_S, PERIOD_S = 4.0, 15.0
_TICK = Key("", "")
_COMPONENT = "horizontal-pod-autoscaler"
_OF_PODS = frozenset({"Resource", "ContainerResource"})


class _Last(NamedTuple):
    """The last decision on an autoscaler: when, on samples of which times, and what is remembered."""

    at_s: float = float("-inf")
    samples: dict[str, datetime] = {}  # noqa: RUF012 - never written to
    selector: str = ""
    history: History = History()


class AutoscalerController(Looping):
    """Scales what HorizontalPodAutoscalers name."""

    def __init__(self, context: Context, client: Raw, readings: Readings, figures: AutoscalerFigures) -> None:
        self._context = context
        self._client = client
        self._figures = figures
        self._lock = threading.Lock()
        self._last: dict[Key, _Last] = {}
        self._selecting = Selecting()
        self._loop = Loop(context, HORIZONTAL_POD_AUTOSCALER.singular_name, self.sync)
        self._own = self._loop.watch(HORIZONTAL_POD_AUTOSCALER, _if_declared_anew)
        self._pods = self._loop.reads(POD, BY_LABEL, BY_NAMESPACE)
        self._readings = readings
        self._silences = Silences(context.clock)
        self._targets = Targets(client, {kind: self._loop.reads(kind) for kind in WORKLOADS}, self._silences)

    def start(self) -> None:
        """Begin when the copies are complete; returns at once."""
        self._loop.add(_TICK)
        super().start()

    def sync(self, key: Key) -> None:
        """Decide on one autoscaler; the tick finds those that are due.

        Raises:
            StatusError: the status was refused.
            TemporaryError: the API did not answer.
        """
        if key == _TICK:
            self._loop.add_after(_TICK, TICK_S)
            for each in self.due():
                self._loop.add(each)
            return
        autoscaler = self._own.get(*key)
        if autoscaler is None:
            self._forget(key)
            return
        with self._figures.reconciliation() as outcome:
            kind, seen = self._see(key, autoscaler)
            decision = self._decide(key, autoscaler, seen)
            if decision.replicas is not None and isinstance(seen.scale, Scale) and isinstance(kind, Kind):
                decision = self._scale(key, autoscaler, kind, seen.scale, decision)
            outcome.took(seen.scale, decision)
            self._tell(autoscaler, decision)

    # --- when -------------------------------------------------------------------------------------

    def due(self) -> list[Key]:
        """Read what pods use, and return which autoscalers are to be decided on."""
        autoscalers = self._own.list()
        if any(_measures_pods(each) for each in autoscalers):
            self._readings.refresh(TICK_S / 2)
        return [key for each in autoscalers if self._is_due(key := objects.key(each))]

    def _is_due(self, key: Key) -> bool:
        last = self._last.get(key, _Last())
        if self._context.clock.monotonic() - last.at_s >= PERIOD_S:
            return True
        if not last.samples:
            return False
        times = self._readings.times(self._selected(key.namespace, last.selector))
        known = [(at, times[name]) for name, at in last.samples.items() if name in times]
        return bool(known) and all(before < now for before, now in known)

    # --- what is seen -----------------------------------------------------------------------------

    def _see(self, key: Key, autoscaler: JsonObject) -> tuple[Kind | str, ScaleInputs]:
        reference = objects.spec(autoscaler)["scaleTargetRef"]
        kind = self._kind(reference)
        scale = self._targets.scale(kind, key.namespace, reference["name"])
        if isinstance(scale, str) or not needs_metrics(autoscaler, scale):
            return kind, ScaleInputs(scale)
        with self._lock:
            self._selecting.put(key, scale.selector)
            pods = self._selected(key.namespace, scale.selector)
            others = self._selecting.of(pods)
        if _measures_pods(autoscaler):
            self._readings.refresh(2 * TICK_S)
        metrics = objects.spec(autoscaler).get("metrics") or []
        asked = (key.namespace, scale.selector, pods, self._readings, self._kind)
        measured = [measure(metric, *asked) for metric in metrics]
        return kind, ScaleInputs(scale, pods, measured, others)

    def _kind(self, reference: JsonObject) -> Kind | str:
        found = kind_of(self._context.informers.custom.registry, reference)
        if isinstance(found, Kind):
            return found
        # neither built in nor custom: an APIService may serve it
        api_version = str(reference.get("apiVersion") or "")
        with self._silences.asking(api_version, "resources"):
            return kind_at(self._client, api_version, str(reference.get("kind")), ASK_S) or found

    def _selected(self, namespace: str, selector: str) -> list[JsonObject]:
        """Return the pods that match; none where the text is no selector, which the decision then tells."""
        if not selector:
            return []
        try:
            return list(selected(self._pods, namespace, parse_label_selector(selector)))
        except BadRequest:
            return []

    # --- what is done -----------------------------------------------------------------------------

    def _decide(self, key: Key, autoscaler: JsonObject, seen: ScaleInputs) -> Decision:
        clock, last = self._context.clock, self._last.get(key, _Last())
        decision = decide_autoscaler(autoscaler, seen, last.history, clock.now())
        selector = seen.scale.selector if isinstance(seen.scale, Scale) and seen.measured else ""
        times = self._readings.times(seen.pods) if _measures_pods(autoscaler) and seen.measured else {}
        self._last[key] = _Last(clock.monotonic(), times, selector, decision.history)
        return decision

    def _scale(self, key: Key, autoscaler: JsonObject, kind: Kind, scale: Scale, decision: Decision) -> Decision:
        name, wanted = objects.spec(autoscaler)["scaleTargetRef"]["name"], decision.replicas
        if wanted is None:
            raise TypeError("nothing is to be scaled")
        failure = self._targets.change(kind, key.namespace, name, scale.replicas, wanted)
        decided = after_scaling(autoscaler, decision, scale, self._context.clock.now(), failure)
        self._last[key] = self._last[key]._replace(history=decided.history)
        if not failure:
            log.info(
                "%s: %s %s has %d replicas, was %d: %s", key, kind.kind, name, wanted, scale.replicas, decided.reason
            )
        return decided

    def _tell(self, autoscaler: JsonObject, decision: Decision) -> None:
        for event in decision.events:
            self._context.recorder.event(autoscaler, *event, component=_COMPONENT)
        if decision.status == objects.status(autoscaler):
            return
        try:
            body = {**autoscaler, "status": decision.status}
            self._context.client.update(HORIZONTAL_POD_AUTOSCALER, body, subresource="status")
        except NotFound:
            log.debug("%s is gone", objects.key(autoscaler))

    def _forget(self, key: Key) -> None:
        with self._lock:
            self._selecting.forget(key)
        self._last.pop(key, None)


def _measures_pods(autoscaler: JsonObject) -> bool:
    return any(each.get("type") in _OF_PODS for each in objects.spec(autoscaler).get("metrics") or [])


def _if_declared_anew(old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
    """Return the key unless only the status has changed: that is the controller's own writing."""
    if old is not None and new is not None and objects.spec(old) == objects.spec(new):
        return []
    return [objects.key(each) for each in (new or old,) if each is not None]
