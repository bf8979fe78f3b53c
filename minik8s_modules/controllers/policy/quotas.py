"""ResourceQuotas counted again: at the start, when a quota is changed, and when something that it counts goes.

Creations are charged by the API server, in the write that creates (apiserver/admission/quotas.py). So a count that was
made of everything up to the quota's own revision is right if the quota still has that revision: any object that came
meanwhile has changed it, and the write of the count is refused. A quota that limits something new is counted twice: the
API server charges it for that only once the first count is there. Source: kubernetes ``pkg/controller/resourcequota``.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import PERSISTENT_VOLUME_CLAIM, POD, RESOURCE_QUOTA, SERVICE, Kind
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.api.pods import quotas
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.controllers.cleanup.collector import collected_kinds
from minik8s_modules.controllers.core import pods as podlib
from minik8s_modules.controllers.core.steps import Again, Step, WriteStatus
from minik8s_modules.runtime.controller import Context, Loop, Looping
from minik8s_modules.runtime.informers import BY_NAMESPACE

log = logging.getLogger(__name__)

# deletions of one moment are counted together
_TOGETHER_S = 0.2
# what was created before an API server knew that a quota limits it was not charged, and came after it was counted
_UNCHARGED_S = 1.0
# of these more than metadata is looked at
_WHOLE = (POD, SERVICE, PERSISTENT_VOLUME_CLAIM)


class BehindError(TemporaryError):
    """A list does not show the quota's revision yet."""


def decide_quota(
    quota: JsonObject,
    found: Sequence[tuple[Kind, JsonObject]],
    now: datetime,
    others: AbstractSet[str] = frozenset(),
) -> list[Step]:
    """Return the steps to the status that the objects ``found`` in the quota's namespace make.

    Args:
        quota: the quota.
        found: with the kind of each.
        now: the time.
        others: counts that somebody else keeps (extension_quotas.py): they stay as they are, missing where they are.
    """
    counted = {name: amount for name, amount in quotas.total(quota, found, now).items() if name not in others}
    before = objects.status(quota).get("used") or {}
    kept = {name: amount for name, amount in before.items() if name in others}
    status = {"hard": objects.spec(quota).get("hard") or {}, "used": {**counted, **kept}}
    steps: list[Step] = []
    if {field: objects.status(quota).get(field) for field in status} != status:
        steps.append(WriteStatus(RESOURCE_QUOTA, quota, {**objects.status(quota), **status}))
    ends = [podlib.moment(objects.deletion_timestamp(obj)) for kind, obj in found if kind == POD]
    waits = [(end - now).total_seconds() for end in ends if end is not None and end > now]
    return [*steps, Again(min(waits))] if waits else steps


def frees(kind: Kind, old: JsonObject, new: JsonObject | None) -> bool:
    """Return whether an object may use less than before: gone, ended, on its way out, or changed to another size."""
    if new is None or (objects.is_deleting(new) and not objects.is_deleting(old)):
        return True
    if kind == POD:
        return podlib.has_ended(new) and not podlib.has_ended(old)
    return kind in _WHOLE and objects.spec(old) != objects.spec(new)


class QuotaController(Looping):
    """Keeps the status of ResourceQuotas."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._client = context.client
        self._loop = Loop(context, RESOURCE_QUOTA.singular_name, self.sync)
        self._kinds = [kind for kind in collected_kinds() if kind.namespaced]
        self._copies = {
            kind: (context.informers.of if kind in _WHOLE else context.informers.metadata_of)(kind, BY_NAMESPACE)
            for kind in self._kinds
        }
        self._quotas = self._loop.watch(RESOURCE_QUOTA, to_count, BY_NAMESPACE)
        self._copies[RESOURCE_QUOTA] = self._quotas
        for kind, informer in self._copies.items():
            informer.add_handler(functools.partial(self._changed, kind))
        context.informers.custom.follow(self._on_custom)

    def _on_custom(self, kind: Kind, present: bool) -> None:  # noqa: FBT001 - a follower's signature
        """Count the objects of a custom kind too, as long as it is served; the garbage collector ends the copy."""
        if not kind.namespaced:
            return
        if not present:
            self._kinds.remove(kind)
            del self._copies[kind]
            return
        self._copies[kind] = copy = self._context.informers.metadata_of(kind, BY_NAMESPACE)
        self._kinds.append(kind)
        copy.add_handler(functools.partial(self._changed, kind))
        for quota in self._quotas.list():
            if quotas.counted_kinds(quota, [kind]):
                self._loop.add_after(objects.key(quota), _TOGETHER_S)

    def sync(self, key: Key) -> None:
        """Count for one quota.

        Raises:
            StatusError: the API refused; Conflict when something that counts came meanwhile.
            TemporaryError: it did not answer, or not with what is new enough.
        """
        try:
            quota = self._client.get(RESOURCE_QUOTA, key.name, key.namespace)
        except NotFound:
            return
        revision, kinds = int(objects.resource_version(quota)), [*self._kinds]
        found = [
            (kind, obj)
            for kind in quotas.counted_kinds(quota, kinds)
            for obj in self._objects(kind, key.namespace, revision)
        ]
        for step in decide_quota(quota, found, self._context.clock.now(), quotas.of_others(quota, kinds)):
            if isinstance(step, WriteStatus):
                self._client.update(step.kind, {**step.obj, "status": step.status}, subresource="status")
                if (objects.status(quota).get("hard") or {}) != step.status["hard"]:
                    self._loop.add_after(key, _UNCHARGED_S)
            elif isinstance(step, Again):
                self._loop.add_after(key, step.after_s)

    def _objects(self, kind: Kind, namespace: str, revision: int) -> list[JsonObject]:
        copy = self._copies[kind]
        if copy.has_reached(revision):
            return copy.by_index(BY_NAMESPACE, namespace)
        page = self._client.list(kind, namespace)
        if int(page.resource_version or 0) < revision:
            raise BehindError(f"{kind.plural} are known up to {page.resource_version}, the quota is of {revision}")
        return page.items

    def _changed(self, kind: Kind, old: JsonObject | None, new: JsonObject | None) -> None:
        if old is None or not frees(kind, old, new):
            return
        for quota in self._quotas.by_index(BY_NAMESPACE, objects.namespace(old)):
            if quotas.counted_kinds(quota, [kind]):
                self._loop.add_after(objects.key(quota), _TOGETHER_S)


def to_count(old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
    """Return the quota's key if it is new, or limits something else than before; charges change only its status."""
    if new is None:
        return []
    hard = objects.spec(new).get("hard") or {}
    counted = objects.status(new).get("hard") or {}
    if old is None or objects.spec(old) != objects.spec(new) or hard != counted:
        return [objects.key(new)]
    return []
