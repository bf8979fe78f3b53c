"""``advise``: what containers use, compared with what they request, without acting on it.

    metrics.k8s.io, read again while the command runs ─▶ Seen (each sample once) ─▶ rows by workload and container

Nothing is kept anywhere, so the window is the time that the command runs: a sample a pod and 10 s. Percentiles are by
nearest rank over the samples of all pods of a workload, each counting alike.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple

import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.kinds import KINDS, NODE, POD, POD_METRICS
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.quantities import canonical, parse
from minik8s_modules.base.clock import Clock, SystemClock
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.cli import output
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.options import seconds_of
from minik8s_modules.client.api import ApiClient
from minik8s_modules.client.interface import Reader

_ROUND_S = 5.0  # pods are measured every 10 s (reference/metrics): none is missed
_SERVER_FAULT = 500
_RANKS = {"p50": 0.5, "p90": 0.9, "peak": 1.0}
_MIB = 1024 * 1024


class Workload(NamedTuple):
    """What makes pods: the outermost controller that may be read; a pod without one is its own."""

    namespace: str
    kind: str
    name: str


class Sample(NamedTuple):
    """What a container used at a time: cores and bytes."""

    container: str
    at: str
    used: Mapping[str, Decimal]


class Row(NamedTuple):
    """A container of a workload, and what it uses: by resource the request ("" for none) and the ranks."""

    workload: Workload
    container: str
    pods: int
    samples: int
    resources: Mapping[str, Mapping[str, str]]


class SampledPods:
    """The samples of pods so far, and the pods."""

    def __init__(self) -> None:
        self.pods: dict[str, JsonObject] = {}
        self.samples: dict[str, dict[tuple[str, str], Sample]] = {}

    def take(self, pods: Iterable[JsonObject], metrics: Iterable[JsonObject]) -> None:
        """Take what two lists say; a sample that is known already counts once."""
        found = {objects.key(pod): pod for pod in pods}
        self.pods |= {objects.uid(pod): pod for pod in found.values()}
        for one in metrics:
            if (pod := found.get(objects.key(one))) is not None:
                own = self.samples.setdefault(objects.uid(pod), {})
                own |= {(each.container, each.at): each for each in _samples(one)}

    @property
    def window(self) -> tuple[str, str]:
        """When the first and the last of the samples were taken."""
        times = [at for own in self.samples.values() for _, at in own]
        return (min(times), max(times)) if times else ("", "")


def _samples(metrics: JsonObject) -> Iterator[Sample]:
    for container in metrics.get("containers") or []:
        used = {name: parse(value) for name, value in (container.get("usage") or {}).items() if name in _WRITTEN}
        yield Sample(str(container["name"]), str(metrics["timestamp"]), used)


def rows(seen: SampledPods, workloads: Mapping[str, Workload]) -> list[Row]:
    """Return a row for each container that was measured; ``workloads`` has those of the pods by UID."""
    grouped: dict[tuple[Workload, str], dict[str, list[Sample]]] = {}
    for uid, own in seen.samples.items():
        for sample in own.values():
            grouped.setdefault((workloads[uid], sample.container), {}).setdefault(uid, []).append(sample)
    return [_row(*whose, [seen.pods[uid] for uid in found], [one for own in found.values() for one in own])
            for whose, found in sorted(grouped.items())]  # fmt: skip


def _row(workload: Workload, container: str, pods: Sequence[JsonObject], samples: Sequence[Sample]) -> Row:
    newest = max(pods, key=lambda pod: (objects.metadata(pod).get("creationTimestamp") or "", objects.name(pod)))
    requests = _requests(newest, container)
    resources = {}
    for resource, written in _WRITTEN.items():
        values = sorted(one.used[resource] for one in samples if resource in one.used)
        ranks = {name: written(values[math.ceil(share * len(values)) - 1]) for name, share in _RANKS.items() if values}
        resources[resource] = {"request": requests.get(resource, ""), **ranks}
    return Row(workload, container, len(pods), len(samples), resources)


def _requests(pod: JsonObject, container: str) -> dict[str, str]:
    declared = objects.spec(pod)
    for one in (*(declared.get("containers") or []), *(declared.get("initContainers") or [])):
        if one.get("name") == container:
            requests = (one.get("resources") or {}).get("requests") or {}
            return {name: canonical(value) for name, value in requests.items()}
    return {}


def _cores(value: Decimal) -> str:
    return f"{math.ceil(value * 1000)}m"


def _bytes(value: Decimal) -> str:
    return f"{math.ceil(value / _MIB)}Mi"


_WRITTEN = {"cpu": _cores, "memory": _bytes}


def workload_of(pod: JsonObject, api: Reader, known: dict[str, JsonObject | None]) -> Workload:
    """Return what makes a pod in the end; ``known`` keeps what was read, by UID."""
    space, child = objects.namespace(pod), pod
    kind, name = "Pod", objects.name(pod)
    passed: set[str] = set()
    while (owner := objects.controller_of(child)) is not None and owner.get("kind") != NODE.kind:  # a static pod's
        uid = str(owner.get("uid"))
        if uid in passed:  # whoever writes owners may have them own one another
            break
        passed.add(uid)
        kind, name = str(owner["kind"]), str(owner["name"])
        if uid not in known:
            known[uid] = _read(owner, space, api)
        above = known[uid]
        if above is None:
            break
        child = above
    return Workload(space, kind, name)


def _read(owner: JsonObject, space: str, api: Reader) -> JsonObject | None:
    kind = KINDS.by_api_version(str(owner.get("apiVersion")), str(owner["kind"]))
    if kind is None or not kind.namespaced:
        return None
    try:
        return api.get(kind, str(owner["name"]), space)
    except StatusError:
        return None


class Watched(NamedTuple):
    """Whose pods are looked at: a namespace ("" for all), and a label selector."""

    namespace: str
    selector: str


def observe(seen: SampledPods, api: Reader, whose: Watched, for_s: float, clock: Clock) -> None:
    """Take what is measured from now on for ``for_s`` seconds; what cannot be read for a while is left out.

    Raises:
        StatusError: it may not be read, or nothing could be.
        TemporaryError: nothing could be read.
    """
    failure: TemporaryError | StatusError | None = None
    never, end = threading.Event(), clock.monotonic() + for_s
    while True:
        try:
            pods = api.list(POD, whose.namespace, whose.selector).items
            seen.take(pods, api.list(POD_METRICS, whose.namespace, whose.selector).items)
        except (TemporaryError, StatusError) as error:
            if isinstance(error, StatusError) and error.code < _SERVER_FAULT:
                raise
            failure = error
        left_s = end - clock.monotonic()
        if left_s <= 0:
            break
        clock.wait(never, min(_ROUND_S, left_s))
    if failure is not None and not seen.samples:
        raise failure


def advise(client: ApiClient, options: argparse.Namespace) -> int:
    """Print what is used beside what is requested; 1 where nothing was measured.

    Raises:
        UsageError: the time is none.
    """
    for_s = 0 if options.time == "0" else seconds_of(options.time)
    if for_s is None:
        raise UsageError(f"--for {options.time}: write a time as 90s, 5m or 1h30m, or 0 for what is known now")
    whose = Watched("" if options.all_namespaces else options.namespace or "default", options.selector or "")
    seen = SampledPods()
    with output.progress("pods are measured"), contextlib.suppress(KeyboardInterrupt):  # then what was seen so far
        observe(seen, client, whose, for_s, SystemClock())
    known: dict[str, JsonObject | None] = {}
    found = rows(seen, {uid: workload_of(seen.pods[uid], client, known) for uid in seen.samples})
    print(_form(found, seen, options.output))
    return int(not found)


def _form(found: Sequence[Row], seen: SampledPods, form: str) -> str:
    if form:
        body = as_json(found, seen)
        return json.dumps(body, indent=2) if form == "json" else yaml.safe_dump(body, sort_keys=False).rstrip()
    return table(found, seen)


def as_json(found: Sequence[Row], seen: SampledPods) -> JsonObject:
    """Return the rows for programs."""
    since, until = seen.window
    items = [
        {
            "namespace": one.workload.namespace,
            "workload": {"kind": one.workload.kind, "name": one.workload.name},
            "container": one.container,
            "pods": one.pods,
            "samples": one.samples,
            "resources": {name: dict(ranks) for name, ranks in one.resources.items()},
        }
        for one in found
    ]
    return {"window": {"from": since, "to": until}, "items": items}


def table(found: Sequence[Row], seen: SampledPods) -> str:
    """Return the rows for people, and the window they are of."""
    if not found:
        return "nothing was measured: pods are after they have run for 20 s; `kubectl top pods` shows which are"
    header = ["NAMESPACE", "WORKLOAD", "CONTAINER", "RESOURCE", "REQUEST", "P50", "P90", "PEAK", "PODS", "SAMPLES"]
    lines = [
        [one.workload.namespace, f"{one.workload.kind.lower()}/{one.workload.name}", one.container, resource,
         ranks["request"] or "<none>", *(ranks.get(rank, "<unknown>") for rank in _RANKS), str(one.pods),
         str(one.samples)]
        for one in found for resource, ranks in one.resources.items()
    ]  # fmt: skip
    since, until = seen.window
    return f"{output.aligned(header, lines, output.Paint())}\n\nmeasured from {since} to {until}"
