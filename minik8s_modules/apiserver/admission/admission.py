"""What a write depends on besides its own object: its namespace, and the address and node ports of a Service."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from minik8s_modules.api.errors import Forbidden
from minik8s_modules.api.kinds import NAMESPACE, PRIORITY_CLASS, SERVICE, Kind
from minik8s_modules.api.objects import MISREAD, JsonObject, deletion_timestamp, name, uid
from minik8s_modules.api.pods.priority_classes import SYSTEM_CLASSES
from minik8s_modules.apiserver.admission import service_addresses
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.store.cached import CachedObject
from minik8s_modules.store.errors import StoreUnavailable

log = logging.getLogger(__name__)

# plugin/pkg/admission/namespace/lifecycle
IMMORTAL_NAMESPACES = frozenset({"default", "kube-system", "kube-public"})


def check_namespace(backend: Backend, target: Target, obj: JsonObject) -> None:
    """Check the namespace a new object goes to.

    Raises:
        NotFound: the namespace does not exist.
        Forbidden: the namespace is being deleted.
    """
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


def stays(target: Target) -> bool:
    """Return whether an object is a PriorityClass of every cluster (registry/scheduling/priorityclass/storage)."""
    return target.kind is PRIORITY_CLASS and target.name in SYSTEM_CLASSES


def check_deletion(target: Target) -> None:
    """Check that an object may be deleted at all.

    Raises:
        Forbidden: it is a namespace the cluster cannot be without, or a PriorityClass that every cluster has.
    """
    if stays(target):
        raise Forbidden(target.kind, target.name, "this is a system priority class and cannot be deleted")
    if target.kind is NAMESPACE and target.name in IMMORTAL_NAMESPACES:
        raise Forbidden(NAMESPACE, target.name, "this namespace may not be deleted")


def _namespace(backend: Backend, namespace: str) -> CachedObject:
    found = backend.cache.get(NAMESPACE.key("", namespace))
    if found is None or deletion_timestamp(found.object):
        # another server may have made it, or made it again, a moment ago
        return backend.latest(Target(NAMESPACE, "", namespace))
    return found


@contextmanager
def reserved(
    backend: Backend, kind: Kind, obj: JsonObject, options: Options, old: JsonObject | None = None
) -> Iterator[None]:
    """Reserve what ``obj`` needs beyond what ``old`` had while it is stored; gives it back when storing fails.

    When the store does not answer, the object may have been stored: then nothing is given back here, and
    ``service_addresses.repair`` decides later. What only the old object had is given back after the write.
    """
    if kind is not SERVICE:
        yield
        return
    claims = service_addresses.Claims(backend, obj, old, dry_run=options.dry_run)
    try:
        for text in claims.make():
            options.warn(text)
        yield
    except StoreUnavailable:
        raise
    except Exception:
        claims.undo()
        raise
    _later(obj, claims.done)


def removed(backend: Backend, kind: Kind, obj: JsonObject) -> None:
    """Give back what a removed object had; ``service_addresses.repair`` does it later if the store fails now."""
    if kind is SERVICE:
        _later(obj, lambda: service_addresses.release(backend, service_addresses.held(obj), uid(obj)))


def _later(service: JsonObject, give_back: Callable[[], None]) -> None:
    try:
        give_back()
    except (StoreUnavailable, *MISREAD) as error:
        log.warning("what service %s had is given back later: %s", name(service), error)
