"""What pods refer to: one informer per kind and namespace, only where a pod refers to any.

That is ConfigMaps, Secrets, claims and, once those are bound, their volumes (one informer for all), with the CSIDrivers
and VolumeAttachments of those, and the Secrets that their drivers are told. Secrets of namespaces that nothing of this
refers to never come into this process. Pods wait until the informer of their namespace has listed once, so that one is
kept for a while after its last pod: the next one of a Job, say, needs it again. A node's own reconciler may read single
objects only, while a pod refers to them (apiserver/access/node_access.py): it has an informer each, and keeps none.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Set
from typing import NamedTuple, Protocol

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import (
    CONFIG_MAP,
    CSI_DRIVER,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    SECRET,
    VOLUME_ATTACHMENT,
    Kind,
)
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.pod_claims import claim_of
from minik8s_modules.api.storage.attachments import attachment_name, driver_of, node_secrets
from minik8s_modules.api.storage.claims import is_bound
from minik8s_modules.reconcile.storage.projections import projected_sources

log = logging.getLogger(__name__)

_PATIENCE_S = 30.0
KEPT_S = 60.0
"""A list, a TLS connection for the watch, and their ends cost 4 ms of CPU here, and the API server more."""


class Reference(NamedTuple):
    """A ConfigMap, Secret, claim or volume by kind, namespace ("" for a volume) and name."""

    kind: str
    namespace: str
    name: str


class Cache(Protocol):
    """The part of an ``Informer`` needed here."""

    def start(self) -> None:
        """Start following."""

    def stop(self) -> None:
        """End."""

    def get(self, namespace: str, name: str) -> JsonObject | None:
        """Return the object, or None."""

    def list(self) -> list[JsonObject]:
        """Return all objects."""

    def add_handler(self, handler: Callable[[JsonObject | None, JsonObject | None], None]) -> None:
        """Call ``handler(old, new)`` for every change."""

    def wait_synced(self, timeout_s: float) -> bool:
        """Return whether the first list is complete."""


_KINDS: Mapping[str, Kind] = {
    kind.kind: kind
    for kind in (CONFIG_MAP, SECRET, PERSISTENT_VOLUME_CLAIM, PERSISTENT_VOLUME, CSI_DRIVER, VOLUME_ATTACHMENT)
}


def references(pod: JsonObject) -> frozenset[Reference]:
    """Return what the pod's variables and volumes refer to."""
    namespace = objects.namespace(pod)
    found: set[Reference] = set()
    for _, _, container in objects.every_container(pod):
        for kind, name in _of_container(container):
            found.add(Reference(kind, namespace, name))
    for secret in objects.spec(pod).get("imagePullSecrets") or []:
        found.add(Reference("Secret", namespace, str(secret.get("name") or "")))
    for volume in objects.spec(pod).get("volumes") or []:
        found.update(Reference(kind, namespace, name) for kind, name in _of_volume(pod, volume))
    return frozenset(one for one in found if one.name)


def of_volume(pod: JsonObject, name: str) -> frozenset[Reference]:
    """Return what one volume refers to; all that the pod does where it has no such volume."""
    known = [one for one in objects.spec(pod).get("volumes") or [] if one.get("name") == name]
    return _named(pod, *(_of_volume(pod, one) for one in known)) if known else references(pod)


def of_container(pod: JsonObject, name: str) -> frozenset[Reference]:
    """Return what one container's variables refer to; all that the pod does where it has no such container."""
    known = [one for _, _, one in objects.every_container(pod) if one.get("name") == name]
    return _named(pod, *map(_of_container, known)) if known else references(pod)


def _named(pod: JsonObject, *found: Iterator[tuple[str, str]]) -> frozenset[Reference]:
    space = objects.namespace(pod)
    return frozenset(Reference(kind, space, name) for each in found for kind, name in each if name)


def _of_volume(pod: JsonObject, volume: JsonObject) -> Iterator[tuple[str, str]]:
    for source, secret_field in ((volume, "secretName"), *((one, "name") for one in projected_sources(volume))):
        yield "ConfigMap", str(objects.dig(source, "configMap", "name") or "")
        yield "Secret", str(objects.dig(source, "secret", secret_field) or "")
    yield SECRET.kind, str(objects.dig(volume, "csi", "nodePublishSecretRef", "name") or "")
    yield PERSISTENT_VOLUME_CLAIM.kind, claim_of(pod, volume)


def _of_container(container: JsonObject) -> Iterator[tuple[str, str]]:
    for source in container.get("envFrom") or []:
        yield "ConfigMap", str(objects.dig(source, "configMapRef", "name") or "")
        yield "Secret", str(objects.dig(source, "secretRef", "name") or "")
    for variable in container.get("env") or []:
        yield "ConfigMap", str(objects.dig(variable, "valueFrom", "configMapKeyRef", "name") or "")
        yield "Secret", str(objects.dig(variable, "valueFrom", "secretKeyRef", "name") or "")


Later = Callable[[float, Callable[[], None]], None]
"""Has something called, in a thread of its own, after so many seconds."""


def _later(delay_s: float, call: Callable[[], None]) -> None:
    timer = threading.Timer(delay_s, call)
    timer.daemon = True
    timer.start()


_Scope = tuple[str, str, str]
"""Kind, namespace and name of what one cache keeps; no name: the namespace's objects."""


class ReferencedObjects:
    """Keeps the objects pods refer to; ``on_change(uids)`` names the pods a change concerns. Thread-safe.

    ``make(kind, namespace, name)`` returns a cache of a namespace's objects (name ""), or, with ``by_name``, of one.
    """

    def __init__(
        self,
        make: Callable[[Kind, str, str], Cache],
        on_change: Callable[[frozenset[str]], None],
        *,
        by_name: bool = False,
        later: Later = _later,
    ) -> None:
        self._make = make
        self._later = later
        self._by_name = by_name
        self._on_change = on_change
        self._lock = threading.RLock()
        self._caches: dict[_Scope, Cache] = {}
        self._ending: dict[_Scope, object] = {}  # what is unused, with what is its own since then
        self._of_pod: dict[str, frozenset[Reference]] = {}
        self._pods: dict[Reference, set[str]] = {}

    def follow(self, pod: JsonObject) -> None:
        """Start following what the pod refers to; call it whenever the pod, or something of that, changes."""
        wanted = self._with_volumes(references(pod))
        wanted |= self._with_drivers(pod, wanted)
        uid = objects.uid(pod)
        with self._lock:
            if self._of_pod.get(uid, frozenset()) == wanted:
                return
            self._unlink(uid)
            self._of_pod[uid] = wanted
            for one in wanted:
                self._pods.setdefault(one, set()).add(uid)
            scopes = {self._scope(one) for one in wanted}
            for scope in scopes:
                self._ending.pop(scope, None)
            missing = scopes - set(self._caches)
            started = [self._start(scope) for scope in missing]
        for cache in started:
            cache.start()
            threading.Thread(target=self._tell_synced, args=(cache,), daemon=True).start()

    def _with_volumes(self, wanted: frozenset[Reference]) -> frozenset[Reference]:
        """Return ``wanted`` and the volumes of the claims in it that are bound, as far as is known by now.

        A claim may name any volume; a node's own reconciler may read only those that are held, and would wait for ever.
        """
        with self._lock:
            claims = [one for one in wanted if one.kind == PERSISTENT_VOLUME_CLAIM.kind]
            caches = [(one, cache) for one in claims if (cache := self._caches.get(self._scope(one))) is not None]
        # outside the lock: a cache calls ``_changed`` under its own
        known = (cache.get(one.namespace, one.name) for one, cache in caches)
        named = {str(objects.spec(claim)["volumeName"]) for claim in known if claim is not None and is_bound(claim)}
        return wanted | {Reference(PERSISTENT_VOLUME.kind, "", name) for name in named}

    def _with_drivers(self, pod: JsonObject, wanted: frozenset[Reference]) -> frozenset[Reference]:
        """Return the CSIDrivers of the pod's volumes, attachments to its node, and Secrets, as far as is known."""
        inline = (str(objects.dig(one, "csi", "driver") or "") for one in objects.spec(pod).get("volumes") or [])
        found = {Reference(CSI_DRIVER.kind, "", driver) for driver in inline if driver}
        named = [one for one in wanted if one.kind == PERSISTENT_VOLUME.kind]
        with self._lock:
            caches = [(one, cache) for one in named if (cache := self._caches.get(self._scope(one))) is not None]
        node = str(objects.spec(pod).get("nodeName") or "")
        for one, cache in caches:
            volume = cache.get("", one.name)
            if volume is not None and (driver := driver_of(volume)):
                found.add(Reference(CSI_DRIVER.kind, "", driver))
                found.add(Reference(VOLUME_ATTACHMENT.kind, "", attachment_name(volume, node)))
                found |= {Reference(SECRET.kind, *each.split("/", 1)) for each in node_secrets(volume).values()}
        return frozenset(found)

    def _tell_synced(self, cache: Cache) -> None:
        """Wake the pods that waited for a first list; it may have brought nothing, and so no change."""
        while not cache.wait_synced(_PATIENCE_S):
            with self._lock:
                if cache not in self._caches.values():
                    return
        with self._lock:
            keys = [key for key, known in self._caches.items() if known is cache]
            uids = {uid for one, pods in self._pods.items() if self._scope(one) in keys for uid in pods}
        self._on_change(frozenset(uids))

    def forget(self, uid: str) -> None:
        """Stop following for a pod that is gone; caches that nobody needs after a while end."""
        with self._lock:
            self._unlink(uid)
            unused = dict.fromkeys(self._unused() - self._ending.keys(), object())
            self._ending |= unused
        if unused:
            self._later(0.0 if self._by_name else KEPT_S, lambda: self._end(unused))

    def _end(self, scopes: Mapping[_Scope, object]) -> None:
        """End what is unused ever since; not in the thread of a caller, which may be the cache's peer in a handler."""
        with self._lock:
            over = [scope for scope, since in scopes.items() if self._ending.get(scope) is since]
            ended = [self._caches.pop(scope) for scope in over]
            for scope in over:
                del self._ending[scope]
        for cache in ended:
            try:
                cache.stop()
            except Exception:  # the others are to end as well
                log.exception("a cache of what pods refer to did not stop")

    def _unused(self) -> Set[_Scope]:
        return self._caches.keys() - {self._scope(one) for one in self._pods}

    def ready(self, uid: str) -> bool:
        """Return whether all the pod refers to has been looked up."""
        with self._lock:
            wanted = self._of_pod.get(uid, frozenset())
            caches = [self._caches.get(self._scope(one)) for one in wanted]
        return all(cache is not None and cache.wait_synced(0) for cache in caches)

    def of(self, uid: str, kind: str) -> dict[str, JsonObject]:
        """Return the objects of ``kind`` the pod refers to, volumes by name, others by ``<namespace>/<name>``."""
        with self._lock:
            wanted = [one for one in self._of_pod.get(uid, ()) if one.kind == kind]
            caches = {one: self._caches[self._scope(one)] for one in wanted}
        # outside the lock: a cache calls ``_changed`` under its own
        found = {"/".join(filter(None, one[1:])): cache.get(one.namespace, one.name) for one, cache in caches.items()}
        return {key: obj for key, obj in found.items() if obj is not None}

    def stop(self) -> None:
        """End all caches."""
        with self._lock:
            caches = [*self._caches.values()]
            self._caches.clear()
            self._ending.clear()
        for cache in caches:
            cache.stop()

    def _scope(self, one: Reference) -> _Scope:
        return (one.kind, one.namespace, one.name if self._by_name else "")

    def _start(self, scope: _Scope) -> Cache:
        kind, namespace, name = scope
        cache = self._caches[scope] = self._make(_KINDS[kind], namespace, name)
        cache.add_handler(lambda old, new: self._changed(kind, new or old or {}))
        return cache

    def _changed(self, kind: str, obj: JsonObject) -> None:
        reference = Reference(kind, objects.namespace(obj), objects.name(obj))
        with self._lock:
            uids = frozenset(self._pods.get(reference, ()))
        if uids:
            self._on_change(uids)

    def _unlink(self, uid: str) -> None:
        for one in self._of_pod.pop(uid, frozenset()):
            pods = self._pods.get(one)
            if pods is not None:
                pods.discard(uid)
                if not pods:
                    del self._pods[one]
