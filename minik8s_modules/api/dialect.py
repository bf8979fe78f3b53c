"""The dialect of the original MiniK8s' manifests, turned into canonical objects before anything else looks at them.

One predicate decides (``is_original``): the annotation ``minik8s.io/dialect: original``, a lower-case protocol, or a
key that is a field's name in another case. The decision stays on the object as that annotation, so that later updates
of it read the same way. Only then the original's meanings hold: ``command`` is Docker's CMD (Kubernetes' ``args``),
containers have a terminal, a privileged container runs as root, restartPolicy is Never by default and ``None`` means
Never. Kinds that only the original has get their rules here with them.

It runs on what clients wrote, before types are checked: nothing here relies on the shape of a value.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from minik8s_modules.api import schema
from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.objects import JsonObject, dig

ANNOTATION = "minik8s.io/dialect"
ORIGINAL = "original"
_KINDS = frozenset({("", "Pod"), ("", "Service")})
_PROTOCOLS = {"tcp": "TCP", "udp": "UDP"}


def to_canonical(kind: Kind, obj: JsonObject) -> JsonObject:
    """Return the object in Kubernetes' own form; one that is in it already is returned as it is.

    Call it on every body and on the result of every patch; it is idempotent.
    """
    if kind.id not in _KINDS or not is_original(kind, obj):
        return obj
    canonical = copy.deepcopy(obj)
    _fold_case(schema.kind_shape(kind), canonical)
    for port in _ports(canonical):
        if isinstance(port.get("protocol"), str):
            port["protocol"] = _PROTOCOLS.get(port["protocol"], port["protocol"])
    if kind.id == ("", "Pod"):
        _pod(canonical)
    _remember(canonical)
    return canonical


def is_original(kind: Kind, obj: JsonObject) -> bool:
    """Return whether the object is written in the original's dialect."""
    if dig(obj, "metadata", "annotations", ANNOTATION) == ORIGINAL:
        return True
    return any(port.get("protocol") in _PROTOCOLS for port in _ports(obj)) or _miscased(schema.kind_shape(kind), obj)


def _dicts(value: Any) -> list[JsonObject]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _containers(obj: JsonObject) -> list[JsonObject]:
    return _dicts(dig(obj, "spec", "containers")) + _dicts(dig(obj, "spec", "initContainers"))


def _ports(obj: JsonObject) -> Iterator[JsonObject]:
    """Yield the ports of a pod's containers, or of a service, whose protocol can be compared."""
    ports = _dicts(dig(obj, "spec", "ports"))
    for container in _containers(obj):
        ports += _dicts(container.get("ports"))
    return (port for port in ports if isinstance(port.get("protocol"), str))


def _children(shape: schema.Shape, value: Any) -> Iterator[tuple[schema.Shape, Any]]:
    if shape.kind == "object" and isinstance(value, dict):
        yield from ((shape.fields[name], inner) for name, inner in value.items() if name in shape.fields)
    elif shape.kind == "list" and shape.items is not None and isinstance(value, list):
        yield from ((shape.items, inner) for inner in value)


def _miscased(shape: schema.Shape, value: Any) -> bool:
    if shape.kind == "object" and isinstance(value, dict):
        unknown = [name for name in value if name not in shape.fields]
        if unknown and any(_field(shape, name) for name in unknown):
            return True
    return any(_miscased(inner_shape, inner) for inner_shape, inner in _children(shape, value))


def _field(shape: schema.Shape, name: str) -> str:
    """Return the field whose name is ``name`` in another case, or ""."""
    return next((field for field in shape.fields if field.lower() == name.lower()), "")


def _fold_case(shape: schema.Shape, value: Any) -> None:
    """Rename miscased keys; where both spellings stand, the right one wins (behaviour Y-02)."""
    if shape.kind == "object" and isinstance(value, dict):
        for name in [name for name in value if name not in shape.fields]:
            field = _field(shape, name)
            if field:
                inner = value.pop(name)
                value.setdefault(field, inner)
    for inner_shape, inner in _children(shape, value):
        _fold_case(inner_shape, inner)


def _pod(pod: JsonObject) -> None:
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return
    if spec.get("restartPolicy") in {None, "", "None"}:
        spec["restartPolicy"] = "Never"
    for container in _containers(pod):
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
