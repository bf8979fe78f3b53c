"""What a pod would want of its node until it runs: its decisions, one after the other, as if all went well. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from datetime import datetime
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.reconcile.pods.desired import decide_pod
from minik8s_modules.reconcile.pods.observed import ObservedContainer, ObservedPod
from minik8s_modules.reconcile.pods.probes import POST_START
from minik8s_modules.reconcile.values.values import CheckResult, Entry, NodeDocument, PodDecision, PodInputs

_STARTING = ("startup", POST_START)


def settled(pod: JsonObject, seen: ObservedPod, inputs: PodInputs, now: datetime) -> tuple[NodeDocument, PodDecision]:
    """Return all the pod wants until it runs, and its last decision.

    It is as if each init container ended well at once, and each that runs beside the others had started.
    """
    document: dict[str, dict[str, Entry]] = {}
    lasting = frozenset(each["name"] for each in objects.lasting_containers(pod))
    well = {f"{_id(name)}/{check}": CheckResult("success", 1) for name in lasting for check in _STARTING}
    inputs = inputs._replace(checks={**inputs.checks, **well})
    while True:
        decision = decide_pod(pod, seen, inputs, now)
        for section, entries in decision.entries.items():
            document.setdefault(section, {})
            for key, entry in entries.items():
                document[section].setdefault(key, entry)
        started = [entry for entry in decision.entries.get("containers", {}).values() if _runs_init(entry, seen)]
        if not started:
            return document, decision
        seen = _with_success(pod, seen, started, lasting, now)


def _runs_init(entry: Mapping[str, Any], seen: ObservedPod) -> bool:
    last = seen.last(entry["name"])
    done = last is not None and last.attempt >= entry["attempt"] and (last.over or last.id == _id(entry["name"]))
    return entry["type"] == "init" and entry["state"] == "running" and not done


def _with_success(
    pod: JsonObject, seen: ObservedPod, started: Sequence[Mapping[str, Any]], lasting: Set[str], now: datetime
) -> ObservedPod:
    sandbox = seen.sandbox
    if sandbox is None or not sandbox.alive or sandbox.attempt != started[0]["sandbox_attempt"]:
        sandbox = _imagined(pod, "sandbox", "", started[0]["sandbox_attempt"], "running", now)
    done = {
        name: (_imagined(pod, "init", name, entry["attempt"], state, now, entry["image"]),)
        for entry in started
        for name, state in [(entry["name"], "running" if entry["name"] in lasting else "exited")]
    }
    return ObservedPod((sandbox,), {**seen.containers, **done})


def _id(name: str) -> str:
    return f"imagined-{name}"


def _imagined(
    pod: JsonObject, kind: str, name: str, attempt: int, state: str, now: datetime, image: str = ""
) -> ObservedContainer:
    finished_at = now if state == "exited" else None
    return ObservedContainer(
        id=_id(name),
        type=kind,
        pod_uid=objects.uid(pod),
        pod_name=objects.name(pod),
        pod_namespace=objects.namespace(pod),
        container=name,
        attempt=attempt,
        state=state,
        exit_code=0,
        oom_killed=False,
        error="",
        created_at=now,
        started_at=now,
        finished_at=finished_at,
        image=image,
        image_id="",
    )
