"""The shells of ``claims.py`` and ``volumes.py``: they read the copies, and look at the API where a copy may lag.

Claims are decided side by side. What one has been given is in no copy yet when the next is decided, so it is noted
until the copy shows it: without that, claims of one moment would all ask for the same volume, and all but one again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import LEASE, NODE, PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, POD, STORAGE_CLASS
from minik8s_modules.api.nodes.standalone import NAMESPACE, PREFIX, served_alone
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.api.storage import claims
from minik8s_modules.client.interface import Api
from minik8s_modules.controllers.core.acting import Failure, Owner
from minik8s_modules.controllers.core.steps import Again, Patch, Step
from minik8s_modules.controllers.core.workload import WorkloadController
from minik8s_modules.controllers.storage.claims import Around, decide_claim, is_used
from minik8s_modules.controllers.storage.provisioning import addresses, homes, original_name
from minik8s_modules.controllers.storage.volumes import decide_volume, host_of, waits_for_folder
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.informers import BY_CLAIM, by_claim

_FREE, _HOLDER, _WAITING, _VOLUME, _PLACELESS = "free", "holder", "waiting", "volume", "placeless"
# the copy that lags shows what the API says in milliseconds
_LAG_S = 0.5
_AT_ONCE = 8


def _free(volume: JsonObject) -> Iterable[str]:
    return [claims.class_of(volume)] if claims.holder(volume) is None else []


def _holder(volume: JsonObject) -> Iterable[str]:
    held = claims.holder(volume)
    return [str(held.key)] if held is not None else []


def _placeless(volume: JsonObject) -> Iterable[str]:
    return [] if claims.source_of(volume) else [claims.class_of(volume)]


def _waiting(claim: JsonObject) -> Iterable[str]:
    if objects.spec(claim).get("volumeName") or claims.is_complete(claim) or objects.is_deleting(claim):
        return []
    return [claims.class_of(claim)]


def _volume(claim: JsonObject) -> Iterable[str]:
    named = objects.spec(claim).get("volumeName")
    return [str(named)] if named else []


class ClaimController(WorkloadController):
    """Binds claims to volumes, and lets go of claims that nobody uses any more."""

    def __init__(self, context: Context) -> None:
        super().__init__(context, PERSISTENT_VOLUME_CLAIM, (), workers=_AT_ONCE)
        self.own.add_index(_WAITING, _waiting)
        self.own.add_index(_VOLUME, _volume)
        self._lock = threading.Lock()
        self._given: dict[str, str] = {}
        self._volumes = self.loop.watch(PERSISTENT_VOLUME, self._of_volume)
        self._volumes.add_index(_FREE, _free)
        self._volumes.add_index(_HOLDER, _holder)
        self._classes = self.loop.watch(STORAGE_CLASS, self._of_class)
        self._nodes = self.loop.reads(NODE)
        self._pods = self.loop.watch(POD, _of_pod, BY_CLAIM)

    def decide(self, obj: JsonObject) -> Sequence[Step]:
        """Return the next steps of one claim; what it is to be given is nobody else's from now on."""
        named = str(objects.spec(obj).get("volumeName") or "")
        if claims.is_complete(obj) and named and self._volumes.get("", named) is None and self._exists(named):
            return [Again(_LAG_S)]
        around, uid = self._around(obj, named), objects.uid(obj)
        with self._lock:  # the handlers of volumes wait for it, so that no copy is read under it
            kept = [each for each in around.volumes if self._given.get(objects.name(each), uid) == uid]
            steps = decide_claim(obj, around._replace(volumes=kept))
            for step in steps:
                if isinstance(step, Patch) and step.kind == PERSISTENT_VOLUME:
                    self._given[objects.name(step.obj)] = uid
        if steps and objects.is_deleting(obj) and self._is_used(obj):
            return [Again(_LAG_S)]
        return steps

    def failed(self, owner: Owner, failures: Sequence[Failure]) -> None:
        """Give back what could not be written, and have those look again to whom it was not free; then as ever."""
        for failure in failures:
            if isinstance(failure.step, Patch) and failure.step.kind == PERSISTENT_VOLUME:
                with self._lock:
                    self._given.pop(objects.name(failure.step.obj), None)
                for each in self.own.by_index(_WAITING, claims.class_of(failure.step.obj)):
                    self.loop.add(objects.key(each))
        super().failed(owner, failures)

    def _around(self, claim: JsonObject, named: str) -> Around:
        key = objects.key(claim)
        node = objects.annotations(claim).get(claims.SELECTED_NODE)
        storage_class = self._classes.get("", claims.class_of(claim))
        on_server = (storage_class or {}).get("provisioner") == claims.NFS and not named
        wanted = self._nodes.get("", node) if node else None
        return Around(
            named=self._volumes.get("", named) if named else None,
            volumes=() if named else [*self._candidates(claim)],
            storage_class=storage_class,
            default=None if claims.names_class(claim) else claims.default_class(self._classes.list()),
            node=wanted,
            pods=self._pods.by_index(BY_CLAIM, str(key)),
            namesake=self._volumes.get("", original_name(claim)),
            machines=addresses(self._nodes.list()) if on_server else None,
            alone="" if named else alone(self.context.client, homes(storage_class, wanted, self._nodes.list())),
        )

    def _candidates(self, claim: JsonObject) -> Iterable[JsonObject]:
        yield from self._volumes.by_index(_HOLDER, str(objects.key(claim)))
        yield from self._volumes.by_index(_FREE, claims.class_of(claim))

    def _exists(self, volume: str) -> bool:
        try:
            self.context.client.get(PERSISTENT_VOLUME, volume)
        except NotFound:
            return False
        return True

    def _is_used(self, claim: JsonObject) -> bool:
        """Look at the pods themselves: one that has come to a node just now may not be in the copy yet."""
        key = objects.key(claim)
        return is_used(
            each for each in self.context.client.list(POD, key.namespace).items if str(key) in by_claim(each)
        )

    def _of_volume(self, old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
        about = new if new is not None else old or {}
        name = objects.name(about)
        held = claims.holder(new) if new is not None else None
        if new is None or held is not None:
            with self._lock:
                self._given.pop(name, None)
        found = {objects.key(each) for each in self.own.by_index(_VOLUME, name)}
        found |= {each.key for side in (old, new) if side is not None and (each := claims.holder(side)) is not None}
        if new is not None and held is None:
            found |= {objects.key(each) for each in self.own.by_index(_WAITING, claims.class_of(new))}
        return found

    def _of_class(self, _old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
        if new is None:
            return []
        names = {objects.name(new), *([""] if objects.annotations(new).get(claims.DEFAULT_CLASS) == "true" else [])}
        return [objects.key(each) for name in names for each in self.own.by_index(_WAITING, name)]


def alone(api: Api, nodes: Sequence[str]) -> str:
    """Return the first of the nodes where each has a reconciler of its own, else "". Raises as the API does."""
    for node in nodes:
        try:
            lease = api.get(LEASE, f"{PREFIX}{node}", NAMESPACE)
        except NotFound:
            return ""
        if not served_alone([lease]):
            return ""
    return nodes[0] if nodes else ""


def _of_pod(old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
    """Return the claims of a pod that came, went, or got a node: its figures and phases are nothing to look at."""
    if old is not None and new is not None and objects.spec(old).get("nodeName") == objects.spec(new).get("nodeName"):
        return []
    about = new if new is not None else old or {}
    return [Key(*each.split("/", 1)) for each in by_claim(about)]


class VolumeController(WorkloadController):
    """Keeps the phases of volumes, and does with them what their policy says."""

    def __init__(self, context: Context) -> None:
        super().__init__(context, PERSISTENT_VOLUME, (), workers=_AT_ONCE)
        self.own.add_index(_HOLDER, _holder)
        self.own.add_index(_PLACELESS, _placeless)
        self._claims = self.loop.watch(PERSISTENT_VOLUME_CLAIM, _of_claim)
        self._classes = self.loop.watch(STORAGE_CLASS, self._of_class)

    def sync(self, key: Key) -> None:
        """Look at one volume; for the key of a claim, queue the volumes that hold it. Raises as ``WorkloadController``.

        Not in the handler: handlers of volumes look into the copy of claims, and the other way round they would wait
        for one another.
        """
        if not key.namespace:
            super().sync(key)
            return
        for each in self.own.by_index(_HOLDER, str(key)):
            self.loop.add(objects.key(each))

    def decide(self, obj: JsonObject) -> Sequence[Step]:
        """Return the next steps of one volume."""
        held = claims.holder(obj)
        claim = self._claims.get(*held.key) if held is not None else None
        if held is not None and held.uid and (claim is None or objects.uid(claim) != held.uid):
            claim = self._claim(held.key)  # its copy may lag, and what follows may cost data
            if claim is not None and objects.uid(claim) == held.uid:
                return [Again(_LAG_S)]
        host = host_of(obj) if waits_for_folder(obj) else ""
        by_itself = alone(self.context.client, [host] if host else [])
        return decide_volume(obj, claim, self._classes.get("", claims.class_of(obj)), by_itself)

    def _of_class(self, _old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
        return [objects.key(each) for each in self.own.by_index(_PLACELESS, objects.name(new or {}))]

    def _claim(self, key: Key) -> JsonObject | None:
        try:
            return self.context.client.get(PERSISTENT_VOLUME_CLAIM, key.name, key.namespace)
        except NotFound:
            return None


def _of_claim(old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
    """Return the volumes that a claim names, and its own key for those that name it when it comes, goes or has chosen.

    A claim may hold a second volume, by a write whose answer was lost: what it has not chosen is to be free again.
    """
    about = new if new is not None else old or {}
    before, after = ({*_volume(side)} if side is not None else None for side in (old, new))
    named = {Key("", name) for name in (before or set()) | (after or set())}
    return named if before == after else named | {objects.key(about)}
