"""``describe``: an object as a person reads it, its Events, and the cause when something is not as wished.

The cause is looked for where it is nearest to the fault: a pod's node that is gone or not ready, then a container that
waits or has died, then a workload's pods (``workload_causes.py``), then a condition that is not true, then the newest
Warning event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.merging.apply import LAST_APPLIED
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli.output import aligned, as_yaml
from minik8s_modules.cli.service_endpoints import Behind, endpoint_lines, service_cause
from minik8s_modules.cli.workload_causes import workload_causes

# a container that waits for these is simply on its way
ON_THE_WAY = {"ContainerCreating", "PodInitializing"}


NodeOf = Callable[[str], JsonObject | None]


def describe(
    obj: JsonObject,
    events: Sequence[JsonObject],
    node_of: NodeOf,
    pods: Sequence[JsonObject] = (),
    found: Behind | None = None,
    ways: Sequence[str] = (),
) -> str:
    """Return the description of ``obj``; ``events`` are those whose involvedObject it is, oldest first.

    ``node_of(name)`` returns a Node or None; ``pods`` are a workload's, ``found`` is behind a Service, ``ways``
    say what is wrong with the ways of an Ingress or DNS object.
    """
    metadata = obj.get("metadata", {})
    parts = [*_heading(obj, metadata)]
    if causes := ways or [cause for cause in (find_cause(obj, events, node_of, pods, found),) if cause]:
        parts.append(f"{'Cause:':<14}{(chr(10) + ' ' * 14).join(causes)}")
    shown = [title for title in ("spec", "data", "status") if obj.get(title)]
    if found is not None:
        parts += endpoint_lines(obj, found, lambda pod: find_cause(pod, (), node_of))
    parts += [f"{title.capitalize()}:\n{_indented(as_yaml(_shown(obj, title)))}" for title in shown]
    parts.append(_event_table(events))
    return "\n".join(parts)


def find_cause(
    obj: JsonObject,
    events: Sequence[JsonObject],
    node_of: NodeOf,
    pods: Sequence[JsonObject] = (),
    found: Behind | None = None,
    ways: Sequence[str] = (),
) -> str:
    """Return why ``obj`` is not as wished in one line; empty when nothing is wrong."""
    if ways:
        return "; ".join(ways)
    of_pods = workload_causes(obj, pods, lambda pod: find_cause(pod, (), node_of))
    for cause in (*_node_causes(obj, node_of), *_container_causes(obj), *of_pods, *_condition_causes(obj)):
        return cause
    if found is not None and (of_service := service_cause(obj, found, lambda pod: find_cause(pod, (), node_of))):
        return of_service
    warnings = [event for event in events if event.get("type") == "Warning"]
    if warnings and _unsettled(obj):
        return f"{warnings[-1].get('reason', '')}: {warnings[-1].get('message', '')}"
    return ""


def _unsettled(obj: JsonObject) -> bool:
    return obj.get("status", {}).get("phase") in ("Pending", "Failed", "Unknown")


def _node_causes(obj: JsonObject, node_of: NodeOf) -> Iterator[str]:
    """Yield what is wrong with the node of a pod: what its status says is then as old as that."""
    name = objects.spec(obj).get("nodeName")
    if obj.get("kind") != "Pod" or not name or objects.status(obj).get("phase") in ("Succeeded", "Failed"):
        return
    node = node_of(name)
    if node is None:
        yield f"node {name} does not exist"
        return
    ready = objects.condition(node, "Ready") or {}
    if ready.get("status") != "True":
        yield f"node {name} is not ready: {ready.get('message') or 'it has not reported yet'}"


def _container_causes(obj: JsonObject) -> Iterator[str]:
    status = obj.get("status", {})
    for entry in [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]:
        state = entry.get("state", {})
        waiting, ended = state.get("waiting", {}), state.get("terminated", {})
        if waiting.get("message") or waiting.get("reason", "ContainerCreating") not in ON_THE_WAY:
            before = entry.get("lastState", {}).get("terminated", {})
            ending = f" ({_ending(before)})" if "exitCode" in before else ""
            yield f"container {entry['name']}: {waiting.get('reason', '')}: {waiting.get('message', '')}{ending}"
        elif ended and ended.get("exitCode"):
            yield f"container {entry['name']}: {_ending(ended)}"


def _ending(ended: JsonObject) -> str:
    """Return how a container ended, as in ``OOMKilled: it exited with 137``."""
    how = ended.get("message") or f"it exited with {ended['exitCode']}"
    return f"{ended.get('reason', 'Error')}: {how}"


def _condition_causes(obj: JsonObject) -> Iterator[str]:
    for condition in obj.get("status", {}).get("conditions", []):
        if condition.get("status") != "True" and condition.get("message") and condition.get("type") not in PRESSURES:
            yield f"{condition['type']}: {condition.get('reason', '')}: {condition['message']}"


# node conditions for which "False" is the good news
PRESSURES = {"MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"}


def _heading(obj: JsonObject, metadata: JsonObject) -> Iterator[str]:
    yield f"Name:         {metadata.get('name', '')}"
    if metadata.get("namespace"):
        yield f"Namespace:    {metadata['namespace']}"
    yield f"Kind:         {obj.get('kind', '')} ({obj.get('apiVersion', '')})"
    yield f"Created:      {metadata.get('creationTimestamp', '<unknown>')}"
    if metadata.get("deletionTimestamp"):
        yield f"Deleted:      {metadata['deletionTimestamp']}, grace {metadata.get('deletionGracePeriodSeconds', 0)} s"
    for title, key in (("Labels", "labels"), ("Annotations", "annotations")):
        entries = sorted(metadata.get(key, {}).items())
        # the last-applied manifest repeats the whole object; kubectl hides it too
        shown = [f"{name}={value.strip()}" for name, value in entries if name != LAST_APPLIED]
        yield f"{title + ':':<14}{(chr(10) + ' ' * 14).join(shown) or '<none>'}"


def _shown(obj: JsonObject, title: str) -> Any:
    """A secret's values are shown by their size only, as kubectl does."""
    if obj.get("kind") != "Secret" or title != "data":
        return obj[title]
    return {name: f"{len(value) * 3 // 4 - value.count('=')} bytes" for name, value in obj[title].items()}


def _event_table(events: Sequence[JsonObject]) -> str:
    if not events:
        return "Events:       <none>"
    rows = [
        [
            event.get("type", ""),
            event.get("reason", ""),
            event.get("lastTimestamp") or event.get("eventTime") or "",
            str(event.get("count", 1)),
            event.get("source", {}).get("component", "") or event.get("reportingComponent", ""),
            event.get("message", "").strip(),
        ]
        for event in events
    ]
    return f"Events:\n{_indented(aligned(['Type', 'Reason', 'Last seen', 'Count', 'From', 'Message'], rows))}"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
