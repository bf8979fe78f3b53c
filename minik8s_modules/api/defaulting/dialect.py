"""The dialect of the original MiniK8s' manifests, turned into canonical objects before anything else looks at them.

One predicate decides (``is_original``): the annotation ``minik8s.io/dialect: original`` (``kubernetes`` denies it), a
``v1`` kind that Kubernetes has elsewhere or not at all, a lower-case protocol, a key that is a field's name in another
case, or a size where Kubernetes has a map (``spec.capacity`` of a volume, ``spec.request`` of a claim). A Namespace
says it by a label of the same name for objects that show nothing; whoever knows the namespace hands that in. The
decision stays on the object as that annotation, so that later updates of it read the same way. Only then the
original's meanings hold: ``command`` is Docker's CMD (Kubernetes' ``args``), containers have a terminal, a privileged
container runs as root, restartPolicy is Never by default and ``None`` means Never; only absent images are pulled; a
replica set of it wants no pods unless it says how many, and its pods restart.

It runs on what clients wrote, before types are checked: nothing here relies on the shape of a value.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.objects import JsonObject, dig
from minik8s_modules.api.pods.mirror_pods import MIRROR
from minik8s_modules.api.schema import structural
from minik8s_modules.api.storage.claims import ORIGINAL_NAMESPACE

ANNOTATION = "minik8s.io/dialect"
"""Of an object; as a label of a Namespace, of the objects in it that do not show how they are to be read."""
ORIGINAL, KUBERNETES = "original", "kubernetes"
_PODS = {  # kinds with a pod's spec: where it stands, and the restartPolicy of pods that name none
    ("", "Pod"): (("spec",), "Never"),
    ("", "ReplicaSet"): (("spec", "template", "spec"), "Always"),
    ("", "RollingUpdate"): (("spec", "newPodSpec"), "Never"),
}
_SIZED = frozenset({("", "PersistentVolume"), ("", "PersistentVolumeClaim")})
_SHARED = frozenset({("", "Pod"), ("", "Service"), *_SIZED})
# kinds that Kubernetes does not have in v1: all their objects are the original's
_OWN = frozenset({("", "ReplicaSet"), ("", "RollingUpdate"), ("", "HorizontalPodAutoscaler")})
_PROTOCOLS = {"tcp": "TCP", "udp": "UDP"}


def to_canonical(kind: Kind, obj: JsonObject, around: str = "", *, known: bool = False) -> JsonObject:
    """Return the object in Kubernetes' own form; one that is in it already is returned as it is.

    Call it on every body and on the result of every patch; it is idempotent. ``around`` is the dialect of the objects
    of its namespace that do not show their own; ``known``: the object has no field that its kind does not have.
    """
    if kind.id not in _SHARED | _OWN:
        return obj
    if not is_original(kind, obj, known=known) and (around != ORIGINAL or not is_unmarked(obj)):
        return obj
    canonical = copy.deepcopy(obj)
    _fold_case(structural.kind_shape(kind), canonical)
    for port in _ports(kind, canonical):
        port["protocol"] = _PROTOCOLS.get(port["protocol"], port["protocol"])
    if kind.id in _PODS:
        _pod(dig(canonical, *_PODS[kind.id][0]), _PODS[kind.id][1])
    _storage(kind, canonical)
    if kind.id == ("", "ReplicaSet") and isinstance(canonical.get("spec"), dict):
        canonical["spec"].setdefault("replicas", 0)
    if kind.id in _SHARED or kind.id == ("", "ReplicaSet"):  # which is kept as one of apps/v1
        _remember(canonical)
    return canonical


def explanation(kind: Kind) -> str:
    """Return what a client is told whose object is read in the original's dialect."""
    if kind.id in _SIZED:
        why, meaning = (
            "a size without resource name",
            "many nodes may mount it at once unless accessModes says otherwise",
        )
    else:
        why = "a lower-case protocol, a miscased key, its namespace's label"
        meaning = (
            "command is Docker's CMD, containers have a terminal, only absent images are pulled and "
            "restartPolicy is Never unless given"
        )
    return f"read in the dialect of the original MiniK8s ({why} or the annotation {ANNOTATION} says so): {meaning}"


def is_original(kind: Kind, obj: JsonObject, *, known: bool = False) -> bool:
    """Return whether the object is written in the original's dialect; ``known`` as for ``to_canonical``."""
    declared = dig(obj, "metadata", "annotations", ANNOTATION)
    if kind.id in _OWN or declared in (ORIGINAL, KUBERNETES):  # a tuple: it may not be hashable
        return kind.id in _OWN or declared == ORIGINAL
    if any(port["protocol"] in _PROTOCOLS for port in _ports(kind, obj)) or _has_scalar_size(kind, obj):
        return True
    return not known and _miscased(structural.kind_shape(kind), obj)


def is_unmarked(obj: JsonObject) -> bool:
    """Return whether a person wrote the object, neither a controller nor a node, and did not say in which dialect."""
    owners = _dicts(dig(obj, "metadata", "ownerReferences"))
    annotations = dig(obj, "metadata", "annotations")
    marks = annotations if isinstance(annotations, dict) else {}
    return not any(owner.get("controller") for owner in owners) and ANNOTATION not in marks and MIRROR not in marks


def _has_scalar_size(kind: Kind, obj: JsonObject) -> bool:
    """Return whether a volume or claim says its size as the original does."""
    if kind.id == ("", "PersistentVolume"):
        return isinstance(dig(obj, "spec", "capacity"), str)
    return kind.id == ("", "PersistentVolumeClaim") and isinstance(dig(obj, "spec", "request"), str)


def _storage(kind: Kind, obj: JsonObject) -> None:
    """Say, in place, the size of a volume or claim as Kubernetes does; many nodes may mount it, as in the original."""
    spec = obj.get("spec")
    if not isinstance(spec, dict) or not _has_scalar_size(kind, obj):
        return
    if kind.id == ("", "PersistentVolume"):
        spec["capacity"] = {"storage": spec["capacity"]}
        _remember_namespace(obj)
    else:
        resources = spec.get("resources")
        spec["resources"] = {**(resources if isinstance(resources, dict) else {})}
        spec["resources"]["requests"] = {"storage": spec.pop("request")}
    if not spec.get("accessModes"):
        spec["accessModes"] = ["ReadWriteMany"]


def _remember_namespace(volume: JsonObject) -> None:
    """Note, in place, the namespace of a volume: only claims of it may have the volume, which has none here."""
    meta = volume.get("metadata")
    space = meta.get("namespace") if isinstance(meta, dict) else None
    if isinstance(meta, dict) and isinstance(space, str) and isinstance(meta.setdefault("annotations", {}) or {}, dict):
        meta["annotations"] = {**(meta["annotations"] or {}), ORIGINAL_NAMESPACE: space}


def _dicts(value: Any) -> list[JsonObject]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _containers(spec: Any) -> list[JsonObject]:
    """Return the containers of a pod's spec, init containers last."""
    return _dicts(dig(spec, "containers")) + _dicts(dig(spec, "initContainers"))


def _ports(kind: Kind, obj: JsonObject) -> Iterator[JsonObject]:
    """Yield the ports of a service, or of containers, whose protocol can be compared."""
    ports = _dicts(dig(obj, "spec", "ports"))
    for container in _containers(dig(obj, *_PODS[kind.id][0])) if kind.id in _PODS else ():
        ports += _dicts(container.get("ports"))
    return (port for port in ports if isinstance(port.get("protocol"), str))


def _children(shape: structural.Shape, value: Any) -> Iterator[tuple[structural.Shape, Any]]:
    if shape.kind == "object" and isinstance(value, dict):
        yield from ((shape.fields[name], inner) for name, inner in value.items() if name in shape.fields)
    elif shape.kind == "list" and shape.items is not None and isinstance(value, list):
        yield from ((shape.items, inner) for inner in value)


def _miscased(shape: structural.Shape, value: Any) -> bool:
    if shape.kind == "object" and isinstance(value, dict):
        unknown = [name for name in value if name not in shape.fields]
        if unknown and any(_field(shape, name) for name in unknown):
            return True
    return any(_miscased(inner_shape, inner) for inner_shape, inner in _children(shape, value))


def _field(shape: structural.Shape, name: str) -> str:
    """Return the field whose name is ``name`` in another case, or ""."""
    return next((field for field in shape.fields if field.lower() == name.lower()), "")


def _fold_case(shape: structural.Shape, value: Any) -> None:
    """Rename miscased keys; where both spellings stand, the right one wins (behaviour Y-02)."""
    if shape.kind == "object" and isinstance(value, dict):
        for name in [name for name in value if name not in shape.fields]:
            field = _field(shape, name)
            if field:
                inner = value.pop(name)
                value.setdefault(field, inner)
    for inner_shape, inner in _children(shape, value):
        _fold_case(inner_shape, inner)


def _pod(spec: Any, restart_policy: str) -> None:
    if not isinstance(spec, dict):
        return
    if spec.get("restartPolicy") in (None, "", "None"):  # a tuple: what is no text may not be hashable
        spec["restartPolicy"] = restart_policy
    for container in _containers(spec):
        if not container.get("imagePullPolicy"):
            container["imagePullPolicy"] = "IfNotPresent"  # also of :latest: the original pulls what is absent
        if "command" in container:
            container["args"] = container.pop("command")
        if dig(container, "securityContext", "privileged") is True:
            container["securityContext"].pop("runAsUser", None)
    for container in _dicts(spec.get("containers")):  # not init containers: a shell with a terminal would never end
        container.setdefault("tty", True)


def _remember(obj: JsonObject) -> None:
    meta = obj.setdefault("metadata", {})
    if isinstance(meta, dict) and isinstance(meta.setdefault("annotations", {}) or {}, dict):
        meta["annotations"] = {**(meta["annotations"] or {}), ANNOTATION: ORIGINAL}
