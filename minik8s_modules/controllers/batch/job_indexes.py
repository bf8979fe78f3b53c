"""Indexes of an Indexed Job: which are done, which have failed, which pod is of which. Pure.

Sets of indexes are kept as text, ``1,3-5,7``. With ``backoffLimitPerIndex`` a pod carries how often its index has
failed before it; so the last failed pod of an index keeps its finalizer until a replacement carries the count on.
Source: kubernetes ``pkg/controller/job/{indexed_job_utils,pod_failure_policy,backoff_utils}.go``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.scripts import INDEX

FAILURES = "batch.kubernetes.io/job-index-failure-count"
IGNORED = "batch.kubernetes.io/job-index-ignored-failure-count"
_ENV = "JOB_COMPLETION_INDEX"
_LONGEST_BASE = 58
_PAIR = 2
_LONGEST_NUMBER = 10  # digits; Python refuses to read numbers of more than 4,300


def is_indexed(job: JsonObject) -> bool:
    """Return whether every completion of the job has an index."""
    return bool(objects.spec(job).get("completionMode") == "Indexed")


def per_index_limit(job: JsonObject) -> int | None:
    """Return how often an index may fail and be tried again; None where failures count for the whole job."""
    limit = objects.spec(job).get("backoffLimitPerIndex")
    return int(limit) if limit is not None and is_indexed(job) else None


def parse_indexes(text: str | None, below: int) -> set[int]:
    """Return the indexes that ``text`` names and that are less than ``below``; what is no index is passed over."""
    found: set[int] = set()
    for part in (text or "").split(","):
        first, _, last = part.partition("-")
        low, high = _number(first), _number(last or first)
        if low is not None and high is not None:
            found |= set(range(low, min(high + 1, below)))
    return found


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < _LONGEST_NUMBER else None


def format_indexes(indexes: Iterable[int]) -> str:
    """Return indexes as text: runs of three and more as ``first-last``."""
    runs: list[list[int]] = []
    for each in sorted(indexes):
        if runs and runs[-1][-1] == each - 1:
            runs[-1].append(each)
        else:
            runs.append([each])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > _PAIR else ",".join(map(str, run)) for run in runs)


def index_of(pod: JsonObject) -> int | None:
    """Return the pod's completion index; None where it has none that can be read."""
    return _number(objects.annotations(pod).get(INDEX, ""))


def by_index(pods: Iterable[JsonObject], completions: int) -> dict[int, list[JsonObject]]:
    """Return the pods by their index, as far as it is one of ``completions``."""
    found: dict[int, list[JsonObject]] = {}
    for pod in pods:
        index = index_of(pod)
        if index is not None and index < completions:
            found.setdefault(index, []).append(pod)
    return found


def superfluous(active: Sequence[JsonObject], completions: int) -> list[JsonObject]:
    """Return active pods beyond the indexes there are, and those whose index another, better one has."""
    indexed = by_index(active, completions)
    kept = {objects.uid(max(pods, key=_goodness)) for pods in indexed.values()}
    return [pod for pod in active if objects.uid(pod) not in kept]


def _goodness(pod: Mapping[str, Any]) -> tuple[bool, bool, str]:
    assigned = bool(objects.spec(pod).get("nodeName"))
    ready = (objects.condition(pod, "Ready") or {}).get("status") == "True"
    return ready, assigned, objects.uid(pod)


def count_of(pod: JsonObject, annotation: str) -> int:
    """Return the number in one of the pod's annotations; 0 without one."""
    return _number(objects.annotations(pod).get(annotation, "")) or 0


def tries_of(pod: JsonObject) -> int:
    """Return how many pods of its index failed before this one, counted or not."""
    return count_of(pod, FAILURES) + count_of(pod, IGNORED)


def dress(pod: JsonObject, job: JsonObject, index: int, counts: Mapping[str, int]) -> JsonObject:
    """Return the pod as that of ``index``: annotation, label, hostname, ``JOB_COMPLETION_INDEX`` in each container."""
    meta, spec = pod["metadata"], pod["spec"]
    value, base = str(index), f"{objects.name(job)}-{index}"
    numbers = {key: str(number) for key, number in counts.items()}
    dressed = {
        **meta,
        "generateName": f"{base[: _LONGEST_BASE - 1]}-",
        "labels": {**(meta.get("labels") or {}), INDEX: value},
        "annotations": {**(meta.get("annotations") or {}), INDEX: value, **numbers},
    }
    containers = {
        field: [*map(_with_index, spec[field])] for field in ("initContainers", "containers") if field in spec
    }
    return {**pod, "metadata": dressed, "spec": {**spec, **containers, "hostname": base}}


def _with_index(container: JsonObject) -> JsonObject:
    env = container.get("env") or []
    if any(each.get("name") == _ENV for each in env):
        return container
    variable = {"name": _ENV, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX}']"}}}
    return {**container, "env": [*env, variable]}
