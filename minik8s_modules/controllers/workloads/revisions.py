"""Revisions of a Deployment: hashes of templates, and the annotations that carry its history. Pure.

Source: kubernetes ``pkg/controller/deployment/util/deployment_util.go`` and ``pkg/util/hash``. The hash is FNV-1a over
the template's canonical JSON, so its values are not those of Kubernetes, which hashes Go's memory; nothing compares
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import orjson

from minik8s_modules.api import objects
from minik8s_modules.api.merging.apply import LAST_APPLIED
from minik8s_modules.api.objects import JsonObject

HASH_LABEL = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
HISTORY = "deployment.kubernetes.io/revision-history"
DESIRED = "deployment.kubernetes.io/desired-replicas"
MAXIMUM = "deployment.kubernetes.io/max-replicas"
_ROLLBACK = "deprecated.deployment.rollback.to"
_OWN = frozenset({LAST_APPLIED, REVISION, HISTORY, DESIRED, MAXIMUM, _ROLLBACK})
_HISTORY_LIMIT = 2000
# apimachinery rand.SafeEncodeString
_SAFE = "bcdfghjklmnpqrstvwxz2456789"
_FNV_OFFSET, _FNV_PRIME = 2166136261, 16777619


def template_hash(template: Mapping[str, object], collisions: int = 0) -> str:
    """Return the label value of a PodTemplateSpec; ``collisions`` (status.collisionCount) gives another one."""
    text = orjson.dumps(template, option=orjson.OPT_SORT_KEYS)
    if collisions:
        text += collisions.to_bytes(8, "little")
    value = _FNV_OFFSET
    for byte in text:
        value = ((value ^ byte) * _FNV_PRIME) & 0xFFFFFFFF
    return "".join(_SAFE[ord(digit) % len(_SAFE)] for digit in str(value))


def same_template(one: JsonObject, other: JsonObject) -> bool:
    """Return whether two templates differ in the hash label at most (``EqualIgnoreHash``)."""
    return _unhashed(one) == _unhashed(other)


def _unhashed(template: JsonObject) -> JsonObject:
    meta = dict(template.get("metadata") or {})
    labels = {key: value for key, value in (meta.get("labels") or {}).items() if key != HASH_LABEL}
    bare = {key: value for key, value in meta.items() if key != "labels" and value}
    return {**template, "metadata": {**bare, **({"labels": labels} if labels else {})}}


def template_of(workload: JsonObject) -> JsonObject:
    """Return the workload's pod template."""
    return objects.spec(workload).get("template") or {}


def created(obj: JsonObject) -> tuple[str, str]:
    """Return what orders objects by age, the oldest first."""
    return str((obj.get("metadata") or {}).get("creationTimestamp") or ""), objects.name(obj)


def new_set(deployment: JsonObject, sets: Iterable[JsonObject]) -> JsonObject | None:
    """Return the oldest replica set that has the deployment's template, or None (``FindNewReplicaSet``)."""
    template = template_of(deployment)
    fitting = [each for each in sets if same_template(template_of(each), template)]
    return min(fitting, key=created, default=None)


def revision(obj: JsonObject) -> int:
    """Return the revision that an annotation says; 0 without one."""
    try:
        return int(objects.annotations(obj).get(REVISION, "0"))
    except ValueError:
        return 0


def next_revision(old_sets: Sequence[JsonObject]) -> int:
    """Return the revision of the set that comes after the old ones."""
    return max(map(revision, old_sets), default=0) + 1


def set_annotations(deployment: JsonObject, replica_set: JsonObject | None, number: int) -> dict[str, str]:
    """Return the annotations of the new set at revision ``number``; None for one that does not exist yet.

    The deployment's own annotations are passed on; a revision only grows, and the ones before it are remembered
    (``SetNewReplicaSetAnnotations``).
    """
    known = dict(objects.annotations(replica_set)) if replica_set is not None else {}
    passed = {key: value for key, value in objects.annotations(deployment).items() if key not in _OWN}
    wanted = {**known, **passed}
    old = revision(replica_set) if replica_set is not None else 0
    if old < number:
        wanted[REVISION] = str(number)
        if old:
            wanted[HISTORY] = _history(known.get(HISTORY, ""), old)
    return wanted


def _history(known: str, added: int) -> str:
    entries = [*(known.split(",") if known else []), str(added)]
    while len(",".join(entries)) > _HISTORY_LIMIT:
        entries.pop(0)
    return ",".join(entries)
