"""What a VirtualMachineInstanceReplicaSet needs next: instances made, or deleted, the newest first. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.controllers.core.owning import without_condition
from minik8s_modules.controllers.core.steps import Create, Delete, Step, WriteStatus, controller_reference
from minik8s_virtual_machines.api.kinds import FINAL, REPLICA_SET, VMI, VMI_FINALIZER
from minik8s_virtual_machines.controllers.conditions import told, with_told
from minik8s_virtual_machines.controllers.machines import CREATED, DELETED

AT_ONCE = 10  # KubeVirt's burst


def decide_replicas(owner: JsonObject, instances: Sequence[JsonObject], now: datetime) -> list[Step]:
    """Return the steps for a replica set; ``instances`` are those it controls."""
    if objects.is_deleting(owner):  # what it owns goes with it, by garbage collection
        return []
    spec = objects.spec(owner)
    alive = [each for each in instances if not objects.is_deleting(each) and not _final(each)]
    steps: list[Step] = []
    if not spec.get("paused"):
        steps += [Delete(VMI, each, DELETED) for each in instances if _final(each) and not objects.is_deleting(each)]
        missing = int(spec.get("replicas", 1)) - len(alive)
        steps += [Create(VMI, _instance(owner), CREATED) for _ in range(min(missing, AT_ONCE))]
        steps += [Delete(VMI, each, DELETED) for each in _first_to_go(alive)[: max(0, -missing)]]
    status = _status(owner, alive, now)
    return [*steps, *([WriteStatus(REPLICA_SET, owner, status)] if status != objects.status(owner) else [])]


def _final(instance: JsonObject) -> bool:
    return objects.status(instance).get("phase") in FINAL


def _is_ready(instance: JsonObject) -> bool:
    return (objects.condition(instance, "Ready") or {}).get("status") == "True"


def _first_to_go(alive: Sequence[JsonObject]) -> list[JsonObject]:
    """Return the instances, those that do not run yet first, then the newest."""
    by_name = sorted(alive, key=objects.name)
    newest = sorted(by_name, key=lambda each: each["metadata"].get("creationTimestamp") or "", reverse=True)
    return sorted(newest, key=_is_ready)


def _instance(owner: JsonObject) -> JsonObject:
    template = objects.spec(owner).get("template") or {}
    return {
        "apiVersion": VMI.api_version,
        "kind": VMI.kind,
        "metadata": {
            "generateName": f"{objects.name(owner)}-",
            "namespace": objects.namespace(owner),
            "labels": objects.labels(template),
            "annotations": objects.annotations(template),
            "ownerReferences": [controller_reference(REPLICA_SET, owner)],
            "finalizers": [VMI_FINALIZER],
        },
        "spec": template.get("spec") or {},
    }


def _status(owner: JsonObject, alive: Sequence[JsonObject], now: datetime) -> JsonObject:
    before = objects.status(owner)
    found = before.get("conditions") or []
    paused = bool(objects.spec(owner).get("paused"))
    found = (
        with_told(found, told("ReplicaPaused", "True", "Paused", "spec.paused is set", now))
        if paused
        else without_condition(found, "ReplicaPaused")
    )
    return {
        **before,
        "replicas": len(alive),
        "readyReplicas": sum(map(_is_ready, alive)),
        "labelSelector": selector_text(objects.spec(owner).get("selector") or {}),
        "conditions": found,
    }


def selector_text(selector: JsonObject) -> str:
    """Return a label selector as query strings and ``scale`` have it."""
    texts = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for each in selector.get("matchExpressions") or []:
        key, values = each.get("key", ""), ",".join(each.get("values") or [])
        form = {"In": "{} in ({})", "NotIn": "{} notin ({})", "Exists": "{}", "DoesNotExist": "!{}"}
        texts.append(form.get(each.get("operator", ""), "{}").format(key, values))
    return ",".join(texts)
