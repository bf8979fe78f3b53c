"""The shell of the original's autoscalers: keeps what their pods used, has it decided, scales and tells.

Samples and the time of the last change are in memory: after a restart they begin again, the window with the restart.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from minik8s_modules.api import objects, quantities
from minik8s_modules.api.kinds import LEGACY_AUTOSCALER, POD, REPLICA_SET
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.api.selectors import parse_label_selector
from minik8s_modules.client.interface import Raw
from minik8s_modules.client.silences import Silences
from minik8s_modules.controllers.autoscaling.autoscalers import Scale
from minik8s_modules.controllers.autoscaling.controller import TICK_S
from minik8s_modules.controllers.autoscaling.originals import Outcome, Used, decide_original
from minik8s_modules.controllers.autoscaling.readings import Readings, Use
from minik8s_modules.controllers.autoscaling.targets import Targets
from minik8s_modules.controllers.core import pods as podlib
from minik8s_modules.runtime.controller import Context, Loop, Looping, own_keys
from minik8s_modules.runtime.informers import BY_LABEL, BY_NAMESPACE, selected

log = logging.getLogger(__name__)

# the longest period of a policy
_KEPT = timedelta(seconds=1800)
_TICK = Key("", "")
_COMPONENT = "horizontal-pod-autoscaler"


class OriginalAutoscalerController(Looping):
    """Scales what autoscalers of the original name; ``readings`` are shared with the other autoscalers."""

    def __init__(self, context: Context, client: Raw, readings: Readings) -> None:
        self._context = context
        self._readings = readings
        self._began = context.clock.now()
        self._used: dict[str, deque[Used]] = {}
        self._changed: dict[Key, datetime] = {}
        # one worker: what pods used is kept without a lock
        self._loop = Loop(context, LEGACY_AUTOSCALER.singular_name, self.sync, workers=1)
        self._own = self._loop.watch(LEGACY_AUTOSCALER, own_keys)
        self._pods = self._loop.reads(POD, BY_LABEL, BY_NAMESPACE)
        self._targets = Targets(client, {REPLICA_SET: self._loop.reads(REPLICA_SET)}, Silences(context.clock))

    def start(self) -> None:
        """Begin when the copies are complete; returns at once."""
        self._loop.add(_TICK)
        super().start()

    def sync(self, key: Key) -> None:
        """Decide on one autoscaler; the tick reads what pods use, and decides on all.

        Raises:
            TemporaryError: the API did not answer.
        """
        if key == _TICK:
            self._loop.add_after(_TICK, TICK_S)
            for each in self.due():
                self._loop.add(each)
            return
        autoscaler = self._own.get(*key)
        if autoscaler is None:
            self._changed.pop(key, None)
            return
        name = objects.spec(autoscaler)["scaleTargetRef"]["name"]
        scale = self._targets.scale(REPLICA_SET, key.namespace, name)
        if isinstance(scale, str):
            self._context.recorder.event(autoscaler, "Warning", "FailedGetScale", scale, component=_COMPONENT)
            return
        pods = self._running(key.namespace, scale)
        used = {objects.name(pod): [*self._used.get(objects.uid(pod), ())] for pod in pods}
        last = self._changed.get(key, self._began)
        outcome = decide_original(autoscaler, scale, used, last, self._context.clock.now())
        if outcome.replicas != scale.replicas:
            self._scale(key, autoscaler, scale, outcome)

    def due(self) -> list[Key]:
        """Read what pods use, and return the autoscalers."""
        autoscalers = self._own.list()
        if not autoscalers:
            return []
        self._readings.refresh(TICK_S / 2)
        now, seen = self._context.clock.now(), set()
        for each in autoscalers:
            key = objects.key(each)
            scale = self._targets.scale(REPLICA_SET, key.namespace, objects.spec(each)["scaleTargetRef"]["name"])
            if isinstance(scale, Scale):
                seen |= set(self._remember(self._running(key.namespace, scale), now))
        for uid in self._used.keys() - seen:
            del self._used[uid]
        return [objects.key(each) for each in autoscalers]

    def _running(self, namespace: str, scale: Scale) -> list[JsonObject]:
        if not scale.selector:
            return []
        found = selected(self._pods, namespace, parse_label_selector(scale.selector))
        return [pod for pod in found if podlib.phase(pod) == "Running" and not objects.is_deleting(pod)]

    def _remember(self, pods: Sequence[JsonObject], now: datetime) -> Iterable[str]:
        for pod in pods:
            kept, use = self._used.setdefault(objects.uid(pod), deque()), self._readings.use_of(objects.key(pod))
            if use is not None and (not kept or kept[-1].at < use.at):
                kept.append(_used(use))
            while kept and kept[0].at < now - _KEPT:
                kept.popleft()
            yield objects.uid(pod)

    def _scale(self, key: Key, autoscaler: JsonObject, scale: Scale, outcome: Outcome) -> None:
        name = objects.spec(autoscaler)["scaleTargetRef"]["name"]
        failure = self._targets.change(REPLICA_SET, key.namespace, name, scale.replicas, outcome.replicas)
        text = f"New size: {outcome.replicas}; reason: {outcome.reason}"
        recorder = self._context.recorder
        if failure:
            recorder.event(autoscaler, "Warning", "FailedRescale", f"{text}; error: {failure}", component=_COMPONENT)
            return
        self._changed[key] = self._context.clock.now()
        recorder.event(autoscaler, "Normal", "SuccessfulRescale", text, component=_COMPONENT)
        log.info("%s: replica set %s has %d replicas: %s", key, name, outcome.replicas, outcome.reason)


def _used(use: Use) -> Used:
    amounts = [*use.containers.values()]
    milli = sum(quantities.to_milli(each.get("cpu", "0")) for each in amounts)
    return Used(use.at, milli / 1000, sum(quantities.to_bytes(each.get("memory", "0")) for each in amounts))
