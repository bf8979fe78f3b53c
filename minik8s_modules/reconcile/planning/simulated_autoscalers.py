"""What HorizontalPodAutoscalers would do at once: those that are applied, and those of workloads that are.

The controllers' own deciders say it, by what Pods use now and what the metrics APIs answer, as if the controllers had
just begun: nothing was recommended before. A workload outside the bounds of its autoscaler is certain to be scaled, so
that its Pods come and go in the plan; what metrics ask for is of now, and only told. Targets of other kinds than
workloads only the controllers read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.defaulting.conversion import stored_kind, to_storage
from minik8s_modules.api.errors import BadRequest
from minik8s_modules.api.kinds import (
    HORIZONTAL_POD_AUTOSCALER,
    KINDS,
    LEGACY_AUTOSCALER,
    POD_METRICS,
    REPLICA_SET,
    Kind,
)
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.api.selectors import parse_label_selector
from minik8s_modules.base.clock import Clock
from minik8s_modules.client.discovery import kind_at
from minik8s_modules.controllers.autoscaling.autoscalers import (
    Decision,
    Scale,
    ScaleInputs,
    decide_autoscaler,
    needs_metrics,
)
from minik8s_modules.controllers.autoscaling.damping import History
from minik8s_modules.controllers.autoscaling.measuring import measure
from minik8s_modules.controllers.autoscaling.originals import decide_original
from minik8s_modules.controllers.autoscaling.proposals import Measured, Unread
from minik8s_modules.controllers.autoscaling.readings import CUSTOM, EXTERNAL, Readings
from minik8s_modules.controllers.autoscaling.targets import WORKLOADS, kind_of, scale_in
from minik8s_modules.reconcile.feeds.plan_subjects import About, Note, of

_NOBODY = Unread("there are no Pods to measure yet")
_GROUPS = {"Pods": CUSTOM, "Object": CUSTOM, "External": EXTERNAL}


class SimulatedScaling(NamedTuple):
    """What is told of autoscalers, and the workloads that are certain to be scaled, with their new replicas."""

    notes: tuple[Note, ...] = ()
    scaled: tuple[JsonObject, ...] = ()


class _Aimed(NamedTuple):
    """An autoscaler, its kind, its target as it would stand; ``always_shown``: reported even if nothing happens."""

    kind: Kind
    autoscaler: JsonObject
    target_kind: Kind | str
    target: JsonObject | None
    always_shown: bool


def is_autoscaler(obj: JsonObject) -> bool:
    """Return whether an object is an autoscaler, in any version, the original's among them."""
    return _autoscaler_kind(obj) is not None


def _autoscaler_kind(obj: JsonObject) -> Kind | None:
    shown = KINDS.by_api_version(str(obj.get("apiVersion")), str(obj.get("kind")))
    kind = stored_kind(shown) if shown is not None else None
    return kind if kind in {HORIZONTAL_POD_AUTOSCALER, LEGACY_AUTOSCALER} else None


def simulated_scaling(
    applied: Sequence[JsonObject], gone: Collection[JsonObject], pods: Iterable[JsonObject], api: Any, clock: Clock
) -> SimulatedScaling:
    """Return what autoscalers would do; raises as the API does.

    Args:
        applied: the objects that are created or changed: autoscalers, and workloads, which are their targets.
        gone: the objects that are deleted.
        pods: of the cluster.
        api: lists workloads and autoscalers, and what Pods use.
        clock: tells what is starting.
    """
    found = [*_found(applied, gone, api)]
    if not found:
        return SimulatedScaling()
    readings, everything = Readings(api, clock), [*pods]
    readings.refresh(0)
    scalings = [_simulated(one, everything, api, readings, clock.now()) for one in found]
    return SimulatedScaling(
        tuple(note for note, _ in scalings if note is not None),
        tuple(scaled for _, scaled in scalings if scaled is not None),
    )


class _Targets:
    """Workloads as they would stand, and as they are."""

    def __init__(self, applied: Sequence[JsonObject], api: Any) -> None:
        self._api, self._live = api, dict[tuple[Kind, str], dict[Key, JsonObject]]()
        self.planned = {
            (kind, objects.key(one)): _stored(one) for one in applied if (kind := _workload_kind(one)) is not None
        }

    def live(self, kind: Kind, key: Key) -> JsonObject | None:
        if (kind, key.namespace) not in self._live:
            items = self._api.list(kind, key.namespace).items
            self._live[kind, key.namespace] = {objects.key(one): one for one in items}
        return self._live[kind, key.namespace].get(key)

    def after(self, kind: Kind | str, key: Key) -> JsonObject | None:
        if isinstance(kind, str) or kind not in WORKLOADS:
            return None
        return self.planned.get((kind, key)) or self.live(kind, key)

    def is_rescaled(self, kind: Kind, key: Key) -> bool:
        """Return whether a workload is new, or would have other replicas than now."""
        before = self.live(kind, key)
        return before is None or _replicas(before) != _replicas(self.planned[kind, key])


def _found(applied: Sequence[JsonObject], gone: Collection[JsonObject], api: Any) -> Iterator[_Aimed]:
    targets = _Targets(applied, api)
    for one in applied:
        if (kind := _autoscaler_kind(one)) is not None:
            target = _target(kind, one)
            yield _Aimed(kind, _stored(one), target[0], targets.after(*target), always_shown=True)
    known = {(_autoscaler_kind(one), objects.key(one)) for one in (*applied, *gone)}
    for space in sorted({key.namespace for _, key in targets.planned}):
        for kind in (HORIZONTAL_POD_AUTOSCALER, LEGACY_AUTOSCALER):
            for one in api.list(kind, space).items:
                target_kind, key = _target(kind, one)
                if (kind, objects.key(one)) in known or isinstance(target_kind, str):
                    continue
                if (planned := targets.planned.get((target_kind, key))) is not None:
                    yield _Aimed(kind, one, target_kind, planned, always_shown=targets.is_rescaled(target_kind, key))


def _replicas(workload: JsonObject) -> int:
    return scale_in(workload).replicas


def _workload_kind(obj: JsonObject) -> Kind | None:
    shown = KINDS.by_api_version(str(obj.get("apiVersion")), str(obj.get("kind")))
    kind = stored_kind(shown) if shown is not None else None
    return kind if kind in WORKLOADS else None


def _target(kind: Kind, autoscaler: JsonObject) -> tuple[Kind | str, Key]:
    reference = objects.spec(_stored(autoscaler))["scaleTargetRef"]
    target_kind = REPLICA_SET if kind == LEGACY_AUTOSCALER else kind_of(KINDS, reference)
    return target_kind, Key(objects.namespace(autoscaler), str(reference["name"]))


def _stored(obj: JsonObject) -> JsonObject:
    kind = KINDS.by_api_version(str(obj.get("apiVersion")), str(obj.get("kind")))
    return obj if kind is None else to_storage(kind, obj)


def _simulated(
    found: _Aimed, pods: Iterable[JsonObject], api: Any, readings: Readings, now: datetime
) -> tuple[Note | None, JsonObject | None]:
    """Return what is said of one autoscaler, and its target where that is certain to be scaled."""
    autoscaler, space = found.autoscaler, objects.namespace(found.autoscaler)
    reference, own = objects.spec(autoscaler)["scaleTargetRef"], of(found.kind, space, objects.name(autoscaler))
    said = f"HorizontalPodAutoscaler {space}/{objects.name(autoscaler)}: {reference['kind']} {reference['name']}"
    if isinstance(found.target_kind, str) or found.target_kind not in WORKLOADS:
        return Note(f"{said}: only the controllers can say how many replicas it would have", (own,)), None
    about = (own, of(found.target_kind, space, str(reference["name"])), *_metrics_of(autoscaler, space))
    if found.target is None:
        return Note(f"{said} does not exist: nothing would be scaled", about), None
    scale = scale_in(found.target)
    decide = _original if found.kind == LEGACY_AUTOSCALER else _decided
    decision = decide(autoscaler, scale, pods, api, readings, now)
    bounded = decision.replicas if decision.replicas != scale.replicas and not decision.proposals else None
    if bounded is None and not found.always_shown:
        return None, None
    scaled = None if bounded is None else _scaled(found.target_kind, found.target, bounded)
    return Note(f"{said} {_said(scale, decision)}", about), scaled


def _scaled(kind: Kind, target: JsonObject, replicas: int) -> JsonObject:
    spec = {**objects.spec(target), "replicas": replicas}
    return {**target, "apiVersion": kind.api_version, "kind": kind.kind, "spec": spec}


def _metrics_of(autoscaler: JsonObject, space: str) -> Iterator[About]:
    """Yield what is read for an autoscaler: who may not read it is told nothing."""
    yield of(POD_METRICS, space)
    types = {str(each.get("type")) for each in objects.spec(autoscaler).get("metrics") or []}
    for group in sorted({_GROUPS[one] for one in types if one in _GROUPS}):
        yield About(f"{group}/v1beta1", "*", space)


def _selected(autoscaler: JsonObject, scale: Scale, pods: Iterable[JsonObject]) -> list[JsonObject] | None:
    try:
        selector = parse_label_selector(scale.selector)
    except BadRequest:
        return None
    space = objects.namespace(autoscaler)
    return [pod for pod in pods if objects.namespace(pod) == space and selector.matches(objects.labels(pod))]


def _decided(
    autoscaler: JsonObject, scale: Scale, pods: Iterable[JsonObject], api: Any, readings: Readings, now: datetime
) -> Decision:
    own = _selected(autoscaler, scale, pods) if needs_metrics(autoscaler, scale) else None
    if own is None:
        return decide_autoscaler(autoscaler, ScaleInputs(scale), History(), now)

    def kind_at_all(reference: JsonObject) -> Kind | str:
        found = kind_of(KINDS, reference)
        named = str(reference.get("apiVersion") or ""), str(reference.get("kind"))
        return found if isinstance(found, Kind) else kind_at(api, *named) or found

    def measured(metric: JsonObject) -> Measured:
        if not own and metric["type"] in {"Resource", "ContainerResource"}:
            return _NOBODY
        return measure(metric, objects.namespace(autoscaler), scale.selector, own, readings, kind_at_all)

    metrics = objects.spec(autoscaler).get("metrics") or []
    return decide_autoscaler(autoscaler, ScaleInputs(scale, own, [*map(measured, metrics)]), History(), now)


def _original(
    autoscaler: JsonObject, scale: Scale, _pods: Iterable[JsonObject], _api: Any, _readings: Readings, now: datetime
) -> Decision:
    """Return what is certain of an autoscaler of the original: its bounds. Its means are of minutes, not of now."""
    outcome = decide_original(autoscaler, scale, {}, None, now)
    replicas = None if outcome.replicas == scale.replicas else outcome.replicas
    error = "it decides by averages over its windows, which only the controllers know" if outcome.asks else ""
    return Decision({}, (), History(), replicas, outcome.reason, error=error)


def _said(scale: Scale, decision: Decision) -> str:
    wanted = decision.replicas
    if wanted is not None and wanted != scale.replicas:
        return f"would have {wanted} replicas instead of {scale.replicas}: {decision.reason}"
    if decision.error and decision.recommended is None:
        return f"would keep its {scale.replicas} replicas, as what it uses is not known: {decision.error}"
    return "; ".join([f"would keep its {scale.replicas} replicas", *_damped(scale, decision)])


def _damped(scale: Scale, decision: Decision) -> Iterator[str]:
    if decision.recommended not in {None, scale.replicas}:
        yield f"its metrics ask for {decision.recommended}, which windows, policies or bounds hold back"
