"""Stages of a simulated Pod's life: which one comes next, when, and what the status is then. Pure.

As KWOK's Stage, in fewer words. Each has ``when`` (the state a Pod is in), ``next`` (the state it comes to), a
``delay`` in seconds with a ``jitter`` that is added by chance, and a ``weight`` where several begin in one state.

    created ─▶ running ─▶ succeeded | failed          deleted ─▶ gone

Only Pods whose restartPolicy is not Always go on from ``running``, unless a stage says ``always: true``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.errors import ConfigurationError

State = Literal["created", "running", "succeeded", "failed", "deleted", "gone"]
_FOLLOWS: Mapping[State, frozenset[State]] = {
    "created": frozenset({"running", "failed"}),
    "running": frozenset({"succeeded", "failed"}),
    "deleted": frozenset({"gone"}),
}
_KEYS = frozenset({"when", "next", "delay", "jitter", "weight", "always", "selector", "exit_code"})


class Stage(NamedTuple):
    """One step; see the top of this file. ``selector`` are labels that the Pod must have."""

    when: State
    next: State
    delay_s: float = 0.0
    jitter_s: float = 0.0
    weight: float = 1.0
    always: bool = False
    selector: Mapping[str, str] = {}
    exit_code: int = 0


DEFAULT = (
    Stage("created", "running", 0.0),
    Stage("running", "succeeded", 1.0),
    Stage("deleted", "gone", 0.0),
)
"""As KWOK's ``pod-ready``, ``pod-complete`` and ``pod-delete``."""


class Due(NamedTuple):
    """What comes next, and in how many seconds."""

    stage: Stage
    after_s: float


def next_stage(pod: JsonObject, state: State, stages: Sequence[Stage], random: Callable[[], float]) -> Due | None:
    """Return what comes after ``state`` for ``pod``, None where it stays so. ``random`` gives numbers in [0, 1)."""
    fitting = [stage for stage in stages if stage.when == state and _fits(stage, pod)]
    total = sum(stage.weight for stage in fitting)
    if not total:
        return None
    mark = random() * total
    for stage in fitting:
        mark -= stage.weight
        if mark < 0:
            break
    else:
        stage = fitting[-1]
    return Due(stage, stage.delay_s + stage.jitter_s * random())


def _fits(stage: Stage, pod: JsonObject) -> bool:
    lasting = (objects.spec(pod).get("restartPolicy") or "Always") == "Always"
    if stage.when == "running" and lasting and not stage.always:
        return False
    labels = objects.labels(pod)
    return all(labels.get(key) == value for key, value in stage.selector.items())


def status_in(pod: JsonObject, state: State, now: str, address: str, exit_code: int = 0) -> JsonObject:
    """Return the status of ``pod`` when it has come to ``state``."""
    before = objects.status(pod)
    began = before.get("startTime") or now
    if state == "running":
        return _status(pod, "Running", "True", {"running": {"startedAt": now}}, began, now) | {
            name: value for name, value in (("hostIP", address), ("podIP", before.get("podIP"))) if value
        }
    code = exit_code or (1 if state == "failed" else 0)
    reason = "Completed" if not code else "Error"
    ended = {"terminated": {"exitCode": code, "reason": reason, "startedAt": began, "finishedAt": now}}
    phase = "Failed" if state == "failed" else "Succeeded"
    return {**before, **_status(pod, phase, "False", ended, began, now)}


def _status(pod: JsonObject, phase: str, ready: str, state: JsonObject, began: str, now: str) -> JsonObject:
    kinds = (("Initialized", "True"), ("ContainersReady", ready), ("Ready", ready))
    running = ready == "True"
    containers = [
        {
            "name": container["name"],
            "image": container.get("image", ""),
            "imageID": "",
            "ready": running,
            "started": running,
            "restartCount": 0,
            "state": state,
        }
        for container in objects.containers(pod)
    ]
    return {
        "phase": phase,
        "startTime": began,
        "conditions": [{"type": kind, "status": status, "lastTransitionTime": now} for kind, status in kinds],
        "containerStatuses": containers,
    }


def parse_stages(rows: object, where: str) -> tuple[Stage, ...]:
    """Return the stages that a configuration lists; a state that none begins with has the default ones.

    Raises:
        ConfigurationError: a row cannot be used.
    """
    if not isinstance(rows, list):
        raise ConfigurationError(f"{where}: stages must be a list")
    found = [_row(row, f"{where}: stages[{at}]") for at, row in enumerate(rows)]
    named = {stage.when for stage in found}
    return (*found, *(stage for stage in DEFAULT if stage.when not in named))


def _row(row: object, where: str) -> Stage:
    if not isinstance(row, Mapping):
        raise ConfigurationError(f"{where} must be a mapping with when and next")
    if unknown := sorted(map(str, row.keys() - _KEYS)):
        raise ConfigurationError(f"{where}: {', '.join(unknown)} is not known; known: {', '.join(sorted(_KEYS))}")
    when, following = row.get("when"), row.get("next")
    known = next((state for state in _FOLLOWS if state == when), None)
    if known is None:
        raise ConfigurationError(f"{where}: when must be one of {', '.join(_FOLLOWS)}, not {when!r}")
    state: State | None = next((each for each in get_args(State) if each == following), None)
    if state is None or state not in _FOLLOWS[known]:
        raise ConfigurationError(f"{where}: after {known} next is one of {', '.join(sorted(_FOLLOWS[known]))}")
    numbers = dict(_numbers(row, where))
    selector, always, code = row.get("selector") or {}, row.get("always", False), row.get("exit_code", 0)
    if not isinstance(selector, Mapping) or not isinstance(always, bool) or not isinstance(code, int):
        raise ConfigurationError(f"{where}: selector must be a mapping, always true or false, exit_code a number")
    return Stage(
        known,
        state,
        numbers["delay"],
        numbers["jitter"],
        numbers["weight"],
        always,
        {str(key): str(value) for key, value in selector.items()},
        code,
    )


def _numbers(row: Mapping[str, Any], where: str) -> Iterator[tuple[str, float]]:
    for name, default in (("delay", 0.0), ("jitter", 0.0), ("weight", 1.0)):
        value = row.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise ConfigurationError(f"{where}: {name} must be a number from 0, not {value!r}")
        yield name, float(value)
