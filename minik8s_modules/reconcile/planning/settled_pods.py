"""What a pod would want of its node until it runs: its decisions, one after the other, as if all went well. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.reconcile.pods.desired import decide_pod
from minik8s_modules.reconcile.pods.observed import ObservedContainer, ObservedPod
from minik8s_modules.reconcile.values.values import Entry, NodeDocument, PodDecision, PodInputs


def settled(pod: JsonObject, seen: ObservedPod, inputs: PodInputs, now: datetime) -> tuple[NodeDocument, PodDecision]:
    """Return all the pod wants until it runs, as if each init container ended well at once, and its last decision."""
    document: dict[str, dict[str, Entry]] = {}
    while True:
        decision = decide_pod(pod, seen, inputs, now)
        for section, entries in decision.entries.items():
            document.setdefault(section, {})
            for key, entry in entries.items():
                document[section].setdefault(key, entry)
        started = [entry for entry in decision.entries.get("containers", {}).values() if _runs_init(entry, seen)]
        if not started:
            return document, decision
        seen = _with_success(pod, seen, started, now)


def _runs_init(entry: Mapping[str, Any], seen: ObservedPod) -> bool:
    last = seen.last(entry["name"])
    ended = last is not None and last.attempt >= entry["attempt"] and last.over
    return entry["type"] == "init" and entry["state"] == "running" and not ended


def _with_success(
    pod: JsonObject, seen: ObservedPod, started: Sequence[Mapping[str, Any]], now: datetime
) -> ObservedPod:
    sandbox = seen.sandbox
    if sandbox is None or not sandbox.alive or sandbox.attempt != started[0]["sandbox_attempt"]:
        sandbox = _imagined(pod, "sandbox", "", started[0]["sandbox_attempt"], "running", now)
    ended = {
        entry["name"]: (_imagined(pod, "init", entry["name"], entry["attempt"], "exited", now, entry["image"]),)
        for entry in started
    }
    return ObservedPod((sandbox,), {**seen.containers, **ended})


def _imagined(
    pod: JsonObject, kind: str, name: str, attempt: int, state: str, now: datetime, image: str = ""
) -> ObservedContainer:
    finished_at = now if state == "exited" else None
    return ObservedContainer(
        id=f"imagined-{name}",
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
