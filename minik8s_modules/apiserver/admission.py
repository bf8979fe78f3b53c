"""What a write depends on besides its own object: the namespace it goes to."""

from __future__ import annotations

from minik8s_modules.api.errors import Forbidden, NotFound
from minik8s_modules.api.kinds import NAMESPACE, Kind
from minik8s_modules.api.objects import JsonObject, deletion_timestamp, name
from minik8s_modules.apiserver.backend import Backend
from minik8s_modules.apiserver.target import Target
from minik8s_modules.store.cached import CachedObject


def admit_create(backend: Backend, target: Target, obj: JsonObject) -> None:
    """Check a new object's surroundings.

    Raises:
        NotFound: the namespace does not exist.
        Forbidden: the namespace is being deleted.
    """
    if target.kind.namespaced:
        _check_namespace(backend, target, obj)


def _check_namespace(backend: Backend, target: Target, obj: JsonObject) -> None:
    found = _namespace(backend, target.namespace)
    if not deletion_timestamp(found.object):
        return
    why = f"unable to create new content in namespace {target.namespace} because it is being terminated"
    error = Forbidden(target.kind, name(obj), why)
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {target.namespace} is being terminated",
        "field": "metadata.namespace",
    }
    error.details["causes"] = [cause]
    raise error


def _namespace(backend: Backend, namespace: str) -> CachedObject:
    found = backend.cache.get(NAMESPACE.key("", namespace))
    if found is None:
        # another server may have made it a moment ago
        entry = backend.store.get(NAMESPACE.key("", namespace))
        if entry is None:
            raise NotFound(NAMESPACE, namespace)
        return backend.latest(Target(NAMESPACE, "", namespace))
    return found


def warnings(kind: Kind, obj: JsonObject) -> list[str]:
    """Return texts for the client about what this server does not do with an object yet."""
    if kind.id == ("", "Service") and (obj.get("spec") or {}).get("type") != "ExternalName":
        return ["Service: stored, but nothing routes to it yet"]
    return []
