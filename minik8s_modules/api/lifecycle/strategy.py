"""What the server itself decides about an object: the fields clients do not own, and what a deletion means.

Counterpart of Kubernetes' registry strategies (k8s.io/apiserver ``registry/rest``). Defaults and validation are not
here; the order of a write is: dialect, ``structural.type_errors``, ``apply_defaults``, ``prepare_*``, ``validate_*``,
store.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from minik8s_modules.api.access import api_services
from minik8s_modules.api.custom import conditions, definitions
from minik8s_modules.api.defaulting.defaults_workloads import generate_job_selector
from minik8s_modules.api.errors import BadRequest, Conflict
from minik8s_modules.api.kind import Declaration
from minik8s_modules.api.kinds import (
    API_SERVICE,
    MUTATING_WEBHOOK_CONFIGURATION,
    VALIDATING_WEBHOOK_CONFIGURATION,
    Kind,
)
from minik8s_modules.api.lifecycle import pod_strategy
from minik8s_modules.api.lifecycle.propagation import with_policy
from minik8s_modules.api.lifecycle.service_strategy import prepare_service, prepare_service_update
from minik8s_modules.api.objects import (
    JsonObject,
    finalizers,
    is_deleting,
    metadata,
    name,
    spec,
    status,
)
from minik8s_modules.api.pods import resources
from minik8s_modules.base.clock import parse_rfc3339, rfc3339

_DEFINITION = ("apiextensions.k8s.io", "CustomResourceDefinition")
NAMESPACE_FINALIZER = "kubernetes"
NAMESPACE_LABEL = "kubernetes.io/metadata.name"
_LONGEST_BASE = 58  # 63 less the five characters of the suffix
_NOT_A_CLIENTS = ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation")
_DECISIONS = frozenset({"Approved", "Denied"})
# whose labels and annotations a status leaves alone: nodes write those of the first two, and labels decide access
_SEPARATE = frozenset({("", "Pod"), ("", "Node"), ("", "Namespace")})
# kubernetes pkg/registry/apps/deployment/strategy.go, deploymentStatusStrategy
_OWN_LABELS = frozenset({("apps", "Deployment")})
_KEPT = ("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink")


# kinds without a spec whose changes are counted, and the field that counts
_COUNTED = {MUTATING_WEBHOOK_CONFIGURATION.id: "webhooks", VALIDATING_WEBHOOK_CONFIGURATION.id: "webhooks"}
# what Kubernetes shows of the status of a new object: the fields it never leaves out
_FIRST_STATUS: dict[tuple[str, str], JsonObject] = {
    ("apps", "Deployment"): {},
    ("apps", "ReplicaSet"): {"replicas": 0},
    ("", "ReplicationController"): {"replicas": 0},
    ("apps", "StatefulSet"): {"replicas": 0, "availableReplicas": 0},
    ("apps", "DaemonSet"): {
        "currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0,
    },
    ("batch", "Job"): {},
    ("batch", "CronJob"): {},
    ("autoscaling", "HorizontalPodAutoscaler"): {"desiredReplicas": 0},
    ("policy", "PodDisruptionBudget"): {
        "disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0,
    },
    ("", "ResourceQuota"): {},
    ("", "PersistentVolume"): {"phase": "Pending"},
    ("", "PersistentVolumeClaim"): {"phase": "Pending"},
    ("storage.k8s.io", "VolumeAttachment"): {"attached": False},
    ("", "RollingUpdate"): {"phase": "Pending"},
    ("", "DNS"): {},
    ("", "VirtualService"): {},
    ("", "Job"): {"phase": "Pending"},
    ("networking.k8s.io", "Ingress"): {"loadBalancer": {}},
    ("certificates.k8s.io", "CertificateSigningRequest"): {},
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"): {},
}  # fmt: skip


def prepare_create(kind: Kind, obj: JsonObject, *, namespace: str, now: datetime, uid: str, name_suffix: str) -> None:
    """Put in what the server owns on a new object, in place.

    Args:
        kind: the object's kind.
        obj: the object as sent, with defaults.
        namespace: of the request; not looked at for cluster-scoped kinds.
        now: becomes creationTimestamp.
        uid: becomes metadata.uid.
        name_suffix: five random characters, used when the name comes from generateName.

    Raises:
        BadRequest: the object names another namespace than the request.
    """
    obj["apiVersion"], obj["kind"] = kind.api_version, kind.kind
    meta = metadata(obj)
    _set_namespace(kind, meta, namespace)
    for field in _NOT_A_CLIENTS:
        meta.pop(field, None)
    if not meta.get("name") and meta.get("generateName"):
        meta["name"] = f"{meta['generateName'][:_LONGEST_BASE]}{name_suffix}"
    meta["uid"] = uid
    meta["creationTimestamp"] = rfc3339(now)
    if kind.has_spec or kind.id in _COUNTED:
        meta["generation"] = 1
    _reset_on_create(kind, obj, now)


def refuse_revision(obj: JsonObject) -> None:
    """Raise BadRequest where a new object has a resourceVersion: looked at when it is stored, not by a dry run."""
    if metadata(obj).get("resourceVersion"):
        raise BadRequest("resourceVersion should not be set on objects to be created")


def _set_namespace(kind: Kind, meta: JsonObject, namespace: str) -> None:
    if not kind.namespaced:
        meta.pop("namespace", None)
    elif meta.setdefault("namespace", namespace) != namespace:
        raise BadRequest("the namespace of the provided object does not match the namespace sent on the request")


def _reset_on_create(kind: Kind, obj: JsonObject, now: datetime) -> None:
    if kind.custom is not None:
        if kind.custom.status:
            obj.pop("status", None)
        return
    if kind.id == ("", "Pod"):
        obj["status"] = {"phase": "Pending", "qosClass": resources.qos_class(obj)}
    elif kind.id == ("", "Namespace"):
        obj["status"] = {"phase": "Active"}
        metadata(obj).setdefault("labels", {})[NAMESPACE_LABEL] = name(obj)
        wanted = spec(obj).get("finalizers") or []
        obj["spec"] = {"finalizers": [NAMESPACE_FINALIZER, *(f for f in wanted if f != NAMESPACE_FINALIZER)]}
    elif kind.id == ("", "Service"):
        obj["status"] = {"loadBalancer": {}}
        prepare_service(spec(obj))
    elif kind.id in _FIRST_STATUS:
        obj["status"] = dict(_FIRST_STATUS[kind.id])
    elif kind.id == API_SERVICE.id:
        obj["status"] = api_services.first_status(obj, rfc3339(now))
    elif kind.id == _DEFINITION:
        obj.pop("status", None)
        definitions.remember_storage(obj)
    if kind.id == ("batch", "Job"):
        generate_job_selector(obj)


def prepare_update(kind: Kind, new: JsonObject, old: JsonObject, subresource: str = "") -> None:
    """Put into ``new``, in place, what an update through ``subresource`` ("" is the object itself) may not change.

    Server-owned metadata is kept; ``status`` changes only status (and may add labels and annotations, as in
    Kubernetes), everything else leaves status alone; generation rises by one when spec changes. A missing uid is
    filled in, a different one is validation's to refuse.
    """
    new["apiVersion"], new["kind"] = kind.api_version, kind.kind
    if kind.custom is not None:
        _prepare_custom(kind, kind.custom, new, old, subresource)
        return
    if subresource in {"status", "approval"}:
        _keep_all_but_status(kind, new, old)
        if kind.id == ("certificates.k8s.io", "CertificateSigningRequest"):
            _keep_decision(new, old, subresource)
        return
    _keep_metadata(kind, new, old)
    _keep(new, old, "status")
    if subresource == "ephemeralcontainers":
        pod_strategy.keep_all_but_ephemeral(new, old)
    elif subresource == "resize":
        pod_strategy.keep_all_but_resources(new, old)
    if kind.id == ("", "Namespace") and subresource != "finalize":
        held = namespace_finalizers(old)
        _keep(new.setdefault("spec", {}), {"finalizers": held} if held else {}, "finalizers")
    if kind.id == ("", "Service"):
        prepare_service_update(new.setdefault("spec", {}), spec(old))
    if kind.id == _DEFINITION and new.get("spec") != old.get("spec"):
        definitions.remember_storage(new)
    counted = _COUNTED.get(kind.id, "spec" if kind.has_spec else "")
    if counted and new.get(counted) != old.get(counted):
        metadata(new)["generation"] = int(metadata(old).get("generation") or 0) + 1


def _prepare_custom(kind: Kind, declared: Declaration, new: JsonObject, old: JsonObject, subresource: str) -> None:
    """As ``registry/customresource/{strategy,status_strategy}.go``: all but metadata counts for the generation."""
    if declared.status and subresource == "status":
        fields = ("uid", "resourceVersion", "managedFields")
        given = {field: value for field in fields if (value := metadata(new).get(field))}
        wanted = {**old, "metadata": {**metadata(old), **given}}
        _keep(wanted, new, "status")
        new.clear()
        new.update(wanted)
        return
    _keep_metadata(kind, new, old)
    if declared.status:
        _keep(new, old, "status")
    apart = {"metadata", "status"} if declared.status else {"metadata"}
    if any(new.get(field) != old.get(field) for field in (new.keys() | old.keys()) - apart):
        metadata(new)["generation"] = int(metadata(old).get("generation") or 0) + 1


def _keep(new: JsonObject, old: JsonObject, field: str) -> None:
    if field in old:
        new[field] = old[field]
    else:
        new.pop(field, None)


def _keep_metadata(kind: Kind, new: JsonObject, old: JsonObject) -> None:
    meta, before = metadata(new), metadata(old)
    for field in _KEPT:
        _keep(meta, before, field)
    if not kind.namespaced:
        meta.pop("namespace", None)  # manifests may name one
    for field in ("uid", "name", "namespace"):
        if not meta.get(field):
            _keep(meta, before, field)


def _keep_all_but_status(kind: Kind, new: JsonObject, old: JsonObject) -> None:
    meta = dict(metadata(old))
    for field in (
        "uid",
        "resourceVersion",
        "managedFields",
    ):  # the first two are what the client thinks it changes
        if metadata(new).get(field):
            meta[field] = metadata(new)[field]
    if kind.id not in _SEPARATE:
        for field in ("annotations",) if kind.id in _OWN_LABELS else ("labels", "annotations"):
            # nothing goes: whoever writes a status may have read less than there is
            if added := metadata(new).get(field):
                meta[field] = {**(meta.get(field) or {}), **added}
    fresh = new.get("status")
    new.clear()
    new.update(old)
    new["metadata"] = meta
    if fresh is None:
        new.pop("status", None)
    else:
        new["status"] = fresh
        if "qosClass" in status(old) and isinstance(fresh, dict):
            fresh["qosClass"] = status(old)["qosClass"]  # follows from the spec alone


def _keep_decision(new: JsonObject, old: JsonObject, subresource: str) -> None:
    """Approval changes a signing request's conditions alone; status changes all but what was approved or denied."""
    after, before = status(new).get("conditions") or [], status(old).get("conditions") or []
    if subresource == "approval":
        kept = {field: value for field, value in status(old).items() if field != "conditions"}
        new["status"] = {**kept, "conditions": after} if after else kept
        return
    decided = [c for c in before if c.get("type") in _DECISIONS]
    others = [c for c in after if c.get("type") not in _DECISIONS]
    if decided or after:
        new["status"] = {**status(new), "conditions": [*decided, *others]}


@dataclass(frozen=True, slots=True)
class Deletion:
    """What a DELETE means now.

    Attributes:
        action: ``remove`` the key from the store; ``mark``: store ``obj``, whose deletion time or grace has changed;
            ``wait``: the deletion was asked for before and nothing changes.
        obj: the object to store and to answer with (for ``remove`` the last state, to answer with).
        graceful: whether someone else (a node, a finalizer's owner) still has work before the object goes.
    """

    action: Literal["remove", "mark", "wait"]
    obj: JsonObject
    graceful: bool = False


def check_preconditions(kind: Kind, obj: JsonObject, options: JsonObject) -> None:
    """Raise Conflict unless the object has the uid and resourceVersion that ``options.preconditions`` names."""
    wanted = options.get("preconditions") or {}
    for field, label in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        asked, found = wanted.get(field), metadata(obj).get(field, "")
        if asked is not None and asked != found:
            why = f"Precondition failed: {label} in precondition: {asked}, {label} in object meta: {found}"
            raise Conflict(kind, name(obj), why)


def graceful_deletion(kind: Kind, obj: JsonObject, options: JsonObject, now: datetime) -> Deletion:
    """Return what a DELETE with ``options`` (metav1.DeleteOptions) does to ``obj``; ``obj`` is left as it is.

    A pod that runs somewhere is marked with its grace period (the options', else the spec's) and goes when its node
    says so by a DELETE with grace 0; a second DELETE can only shorten the time. A pod never scheduled or already ended,
    and every other object, goes at once unless finalizers hold it: its own, or the one that the options' policy for
    dependents adds. Source: apiserver ``rest.BeforeDelete``, ``podStrategy.CheckGracefulDelete``.
    """
    before, obj = obj, with_policy(kind, obj, options)
    grace_s = _grace_s(kind, obj, options)
    if not is_deleting(obj):
        if grace_s:
            return Deletion("mark", _marked(obj, now + timedelta(seconds=grace_s), grace_s), graceful=True)
        return _immediate(kind, obj, now)
    current_s = metadata(obj).get("deletionGracePeriodSeconds") or 0
    if not current_s and not _held(kind, obj):
        return Deletion("remove", obj)
    if grace_s >= current_s:
        return Deletion("wait" if obj is before else "mark", obj, graceful=True)
    if grace_s == 0:
        return _immediate(kind, obj, now)
    began = parse_rfc3339(metadata(obj)["deletionTimestamp"]) - timedelta(seconds=current_s)
    return Deletion("mark", _marked(obj, began + timedelta(seconds=grace_s), grace_s), graceful=True)


def _grace_s(kind: Kind, obj: JsonObject, options: JsonObject) -> int:
    if kind.id != ("", "Pod") or not spec(obj).get("nodeName") or status(obj).get("phase") in {"Succeeded", "Failed"}:
        return 0
    asked = options.get("gracePeriodSeconds")
    grace_s = spec(obj).get("terminationGracePeriodSeconds", 30) if asked is None else asked
    return int(grace_s) if grace_s >= 0 else 1


def _held(kind: Kind, obj: JsonObject) -> bool:
    return bool(finalizers(obj)) or (kind.id == ("", "Namespace") and bool(namespace_finalizers(obj)))


def namespace_finalizers(namespace: JsonObject) -> list[str]:
    """Return ``spec.finalizers``; where they cannot be read, what keeps a namespace until its contents are gone."""
    declared = {} if namespace.get("spec") is None else namespace["spec"]
    found = declared.get("finalizers") if isinstance(declared, dict) else False
    if found is None:
        return []
    kept = [each for each in found if isinstance(each, str)] if isinstance(found, list) else []
    return kept if kept == found else kept or [NAMESPACE_FINALIZER]


def _immediate(kind: Kind, obj: JsonObject, now: datetime) -> Deletion:
    if kind.id == _DEFINITION and not is_deleting(obj):  # its objects go first
        meta = {**metadata(obj), "deletionTimestamp": rfc3339(now), "deletionGracePeriodSeconds": 0}
        return Deletion("mark", conditions.marked({**obj, "metadata": meta}, rfc3339(now)), graceful=True)
    if not _held(kind, obj):
        return Deletion("remove", obj)
    marked = _marked(obj, now, 0)
    if kind.id == ("", "Namespace"):
        marked["status"] = {**status(obj), "phase": "Terminating"}
        if held := namespace_finalizers(obj):
            marked["spec"] = {"finalizers": held}  # readable from now on
    return Deletion("mark", marked, graceful=True)


def _marked(obj: JsonObject, moment: datetime, grace_s: int) -> JsonObject:
    meta = {**metadata(obj), "deletionTimestamp": rfc3339(moment), "deletionGracePeriodSeconds": grace_s}
    if not is_deleting(obj) and meta.get("generation"):
        meta["generation"] += 1
    return {**obj, "metadata": meta}


def ready_to_remove(kind: Kind, obj: JsonObject) -> bool:
    """Return whether a deleted object's last finalizer is gone, so that its update must remove it."""
    grace_s: Any = metadata(obj).get("deletionGracePeriodSeconds") or 0
    return is_deleting(obj) and not grace_s and not _held(kind, obj)


def bind(kind: Kind, pod: JsonObject, binding: JsonObject, now: datetime) -> JsonObject:
    """Return the pod with the node that a v1 Binding names; ``pod`` is left as it is.

    Raises:
        BadRequest: the binding names no node.
        Conflict: the pod has a node already, is being deleted, has scheduling gates, or is another than the
            binding's uid says.
    """
    target = binding.get("target") or {}
    node = target.get("name")
    if not node or target.get("kind") not in {None, "", "Node"}:
        raise BadRequest("the target of a binding must be a named Node")
    asked = (binding.get("metadata") or {}).get("uid")
    check_preconditions(kind, pod, {"preconditions": {"uid": asked}} if asked else {})
    if is_deleting(pod):
        raise Conflict(kind, name(pod), f"pod {name(pod)} is being deleted, cannot be assigned to a host")
    if spec(pod).get("nodeName"):
        raise Conflict(kind, name(pod), f'pod {name(pod)} is already assigned to node "{spec(pod)["nodeName"]}"')
    if spec(pod).get("schedulingGates"):
        raise Conflict(kind, name(pod), f"pod {name(pod)} has non-empty .spec.schedulingGates")
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": rfc3339(now)}
    others = [c for c in status(pod).get("conditions") or [] if c.get("type") != "PodScheduled"]
    added = (binding.get("metadata") or {}).get("annotations") or {}
    meta = {**metadata(pod)}
    if added:
        meta["annotations"] = {**(meta.get("annotations") or {}), **added}
    return {
        **pod,
        "metadata": meta,
        "spec": {**spec(pod), "nodeName": node},
        "status": {**status(pod), "conditions": [*others, scheduled]},
    }
