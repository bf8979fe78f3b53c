"""One copy of each kind for all controllers of a process, with the indexes they look things up by.

A controller asks for its informers in its constructor, adds handlers and indexes, and never starts or stops them: the
``Informers`` that made them does. What is kept of an object is what controllers read: managedFields and the manifest
kubectl remembers are dropped (40 % of a pod's memory).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import orjson

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import POD, Kind
from minik8s_modules.api.merging.apply import LAST_APPLIED
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.pod_claims import claims_of
from minik8s_modules.api.selectors import LabelSelector
from minik8s_modules.base.clock import Clock
from minik8s_modules.client.informer import Index, Informer
from minik8s_modules.client.interface import Keep, Source
from minik8s_modules.runtime.custom_kinds import CustomKinds

BY_NAMESPACE, BY_CONTROLLER, BY_LABEL, BY_NODE = "namespace", "controller", "label", "node"
BY_CLAIM = "claim"
_LOOK_S = 1.0
_SHARED_BYTES = 4096
# of a Pod's spec: each Pod has a volume of its own name, for its token, so that these are alike in what they have only
_NAMED_EACH = frozenset({"containers", "initContainers", "volumes", "volumeMounts"})


def without_bookkeeping(obj: JsonObject) -> JsonObject:
    """Return ``obj`` without managedFields and last-applied-configuration; ``obj`` is changed."""
    meta = obj.get("metadata") or {}
    meta.pop("managedFields", None)
    (meta.get("annotations") or {}).pop(LAST_APPLIED, None)
    return obj


def sharing_parts(obj: JsonObject) -> JsonObject:
    """Return ``obj`` with parts that are shared with objects that say the same, as all Pods of a template do.

    Nobody may change them; ``obj`` is changed. Large parts are not shared: what is shared stays for some time after
    its objects have gone.
    """
    for part in (objects.spec(obj), objects.metadata(obj)):
        _share(part)
    for name in _NAMED_EACH:
        for each in objects.spec(obj).get(name) or ():
            _share(each)
    return obj


def _share(part: JsonObject) -> None:
    for name, value in part.items():
        if isinstance(value, (dict, list)) and name not in _NAMED_EACH:
            text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
            if len(text) <= _SHARED_BYTES:
                part[name] = _shared(text)


@lru_cache(maxsize=4096)
def _shared(text: bytes) -> Any:
    return orjson.loads(text)


_IDENTITY = (
    "name", "namespace", "uid", "resourceVersion", "ownerReferences", "finalizers", "deletionTimestamp"
)  # fmt: skip


def only_identity(obj: JsonObject) -> JsonObject:
    """Return who ``obj`` is, whose it is and whether it is going; nothing of what it says."""
    meta = obj.get("metadata") or {}
    kept = {field: meta[field] for field in _IDENTITY if field in meta}
    return {"apiVersion": obj.get("apiVersion"), "kind": obj.get("kind"), "metadata": kept}


def by_namespace(obj: JsonObject) -> str:
    """Return the namespace."""
    return objects.namespace(obj)


def by_controller(obj: JsonObject) -> str:
    """Return the uid of the controlling owner; ``<namespace>/`` for an object that has none."""
    controller = objects.controller_of(obj)
    return str(controller.get("uid", "")) if controller else f"{objects.namespace(obj)}/"


def by_label(obj: JsonObject) -> Iterable[str]:
    """Return ``<namespace>/<key>=<value>`` of each label."""
    namespace = objects.namespace(obj)
    return [f"{namespace}/{key}={value}" for key, value in objects.labels(obj).items()]


def by_node(obj: JsonObject) -> str:
    """Return the node a pod is bound to; "" before it is."""
    return str(objects.spec(obj).get("nodeName") or "")


def by_claim(obj: JsonObject) -> Iterable[str]:
    """Return ``<namespace>/<name>`` of each claim that a pod's volumes have."""
    space = objects.namespace(obj)
    return {f"{space}/{name}" for name in claims_of(obj)}


INDEXES: dict[str, Index] = {
    BY_NAMESPACE: by_namespace,
    BY_CONTROLLER: by_controller,
    BY_LABEL: by_label,
    BY_NODE: by_node,
    BY_CLAIM: by_claim,
}


def _pod(obj: JsonObject) -> JsonObject:
    return sharing_parts(without_bookkeeping(obj))


_KEPT: Mapping[Kind, Keep] = {POD: _pod}
"""What is kept of the kinds of which there are tens of thousands of equal ones."""


Readers = Mapping[tuple[str, str], Callable[[JsonObject], object]]


class Informers:
    """The shared informers of one process, for as long as it leads.

    ``readers`` are by group and kind, as an informer's ``read``: what one object says must not end what many are told.
    """

    def __init__(self, client: Source, clock: Clock | None = None, readers: Readers | None = None) -> None:
        self._client = client
        self._clock = clock
        self._readers = readers or {}
        self._informers: dict[Kind, Informer] = {}
        self._identities: dict[Kind, Informer] = {}
        self._started = False
        self._custom: CustomKinds | None = None

    @property
    def custom(self) -> CustomKinds:
        """The custom kinds there are; known once their informer is synced."""
        if self._custom is None:
            self._custom = CustomKinds(self._client, self._clock)
            if self._started:
                self._custom.informer.start()
        return self._custom

    def forget(self, kind: Kind) -> None:
        """End the copies of a kind that is no longer served."""
        for copies in (self._informers, self._identities):
            informer = copies.pop(kind, None)
            if informer is not None:
                informer.stop()

    def of(self, kind: Kind, *indexes: str) -> Informer:
        """Return the informer of ``kind`` over all namespaces, with ``indexes`` of ``INDEXES``."""
        informer = self._informers.get(kind)
        if informer is None:
            kept, read = _KEPT.get(kind, without_bookkeeping), self._readers.get(kind.id)
            informer = Informer(self._client, kind, clock=self._clock, transform=kept, read=read)
            self._informers[kind] = informer
            if self._started:
                informer.start()
        for name in indexes:
            informer.add_index(name, INDEXES[name])
        return informer

    def metadata_of(self, kind: Kind, *indexes: str) -> Informer:
        """Return an informer of ``kind`` for who looks at metadata only.

        It is the one that ``of`` has made by now; else one of its own that keeps ``only_identity`` of each object.
        """
        if kind in self._informers:
            return self.of(kind, *indexes)
        informer = self._identities.get(kind)
        if informer is None:
            informer = Informer(self._client, kind, clock=self._clock, transform=only_identity)
            self._identities[kind] = informer
            if self._started:
                informer.start()
        for name in indexes:
            informer.add_index(name, INDEXES[name])
        return informer

    def start(self) -> None:
        """Begin to list and watch; returns at once."""
        self._started = True
        for informer in self._all():
            informer.start()

    def stop(self) -> None:
        """End all watches."""
        for informer in self._all():
            informer.stop()

    def _all(self) -> list[Informer]:
        custom = [self._custom.informer] if self._custom is not None else []
        return [*custom, *self._informers.values(), *self._identities.values()]


def wait_synced(informers: Iterable[Informer], stop: threading.Event) -> bool:
    """Return True once every informer holds its first list, False when ``stop`` was set before."""
    for informer in informers:
        while not informer.wait_synced(_LOOK_S):
            if stop.is_set():
                return False
    return not stop.is_set()


def owned_and_orphans(informer: Informer, owner: JsonObject) -> list[JsonObject]:
    """Return what ``owner`` controls, and what nobody does in its namespace (needs the index ``controller``).

    Who reads these is asked about all of them; one that is nobody's and cannot be read must not stop every owner there.
    """
    owned = informer.by_index(BY_CONTROLLER, objects.uid(owner))
    return owned + [
        each for each in informer.by_index(BY_CONTROLLER, f"{objects.namespace(owner)}/") if _is_whole(each)
    ]


def _is_whole(obj: JsonObject) -> bool:
    return all(isinstance(obj.get(part) or {}, dict) for part in ("spec", "status"))


def selected(informer: Informer, namespace: str, selector: LabelSelector) -> Iterator[JsonObject]:
    """Yield the objects of a namespace that ``selector`` matches (needs the indexes ``namespace`` and ``label``)."""
    exact = [
        informer.by_index(BY_LABEL, f"{namespace}/{each.key}={next(iter(each.values))}")
        for each in selector.requirements
        if each.operator == "in" and len(each.values) == 1
    ]
    found = min(exact, key=len) if exact else informer.by_index(BY_NAMESPACE, namespace)
    return (obj for obj in found if selector.matches(objects.labels(obj)))
