"""Takes the steps of a decider against the API: the thin shell of every workload controller.

Creations in a row go in batches of 1, 2, 4, … (client-go's slow start), so that a quota or a bad template costs one
refused request and not hundreds; an owner whose namespace is being deleted creates nothing. Deletions in a
row go side by side. Every write is remembered as an expectation, so that the next decision waits until it shows. Names
are made here, not by the server: when an answer is lost, a look at the name tells whether the object exists, and none
is made twice.
"""

from __future__ import annotations

import itertools
import logging
import uuid
from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.errors import AlreadyExists, Conflict, NotFound, StatusError
from minik8s_modules.api.kinds import NAMESPACE, POD, Kind
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.controllers.core.steps import (
    Adopt,
    Again,
    Create,
    Delete,
    Patch,
    RecordEvent,
    Release,
    Step,
    WriteStatus,
    controller_reference,
    with_owner,
    without_owner,
)
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.events import EventType
from minik8s_modules.runtime.expectations import Expectations

log = logging.getLogger(__name__)

# apimachinery util/rand: no vowels, so that no name says something
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX = 5
_LONGEST_BASE = 58  # 63 less the suffix, as the API server cuts generateName
_TERMINATING = "NamespaceTerminating"
# for so long an owner is not tried again: a server that is behind may refuse for a namespace that was made again
_ENDING_S = 60.0
_MOST_ENDING = 1000  # owners that are remembered; one that is forgotten costs one refused request


class Failure(NamedTuple):
    """A step that was not taken, and why; the steps behind it were not tried."""

    step: Step
    error: StatusError | TemporaryError


class Owner(NamedTuple):
    """The object that steps are taken for."""

    kind: Kind
    obj: JsonObject

    @property
    def key(self) -> Key:
        """Its key."""
        return objects.key(self.obj)

    @property
    def component(self) -> str:
        """Who tells Events about it, as Kubernetes' controllers call themselves: ``replicaset-controller``."""
        return f"{self.kind.kind.lower()}-controller"


class Acting:
    """Takes steps for the objects of one controller."""

    def __init__(
        self,
        context: Context,
        expectations: Expectations,
        again: Callable[[Key, float], None],
        same: Callable[[JsonObject, JsonObject], bool] = lambda _wanted, _found: True,
    ) -> None:
        self._context = context
        self._client = context.client
        self._expectations = expectations
        self._again = again
        self._same = same
        self._spaces = context.informers.metadata_of(NAMESPACE)
        # uids of owners whose namespace is being deleted, and when they are tried again; replaced, never changed
        self._ending: dict[str, float] = {}

    def take(self, owner: Owner, steps: Sequence[Step]) -> list[Failure]:
        """Take the steps in order up to the first that fails; return what failed, empty when nothing did.

        ``Again`` is heeded also behind a failure.
        """
        for step in steps:
            if isinstance(step, Again):
                self._again(owner.key, step.after_s)
        steps = self.possible(owner, steps)
        if any(isinstance(step, Adopt) for step in steps) and not self._may_adopt(owner):
            return []
        for group in _groups(steps):
            failures = self._take_group(owner, group)
            if failures:
                return failures
        return []

    def possible(self, owner: Owner, steps: Sequence[Step]) -> Sequence[Step]:
        """Return ``steps`` without creations where the owner's namespace is known to be being deleted."""
        possible = [step for step in steps if not isinstance(step, Create)]
        if (
            len(possible) == len(steps)
            or self._ending.get(objects.uid(owner.obj), 0.0) > self._context.clock.monotonic()
        ):
            return possible
        space = self._spaces.get("", owner.key.namespace)
        if space is None or not objects.is_deleting(space):
            return steps
        # an owner made since, to the second, is in a namespace made again: the copy is behind
        if str(objects.metadata(owner.obj).get("creationTimestamp")) >= objects.metadata(space)["deletionTimestamp"]:
            return steps
        self._again(owner.key, _ENDING_S)  # clocks of servers may differ
        return possible

    def settle(self, owner: Owner) -> None:
        """Find out about creations whose answer was lost.

        Raises:
            StatusError: the API cannot tell; what is not known is asked again.
            TemporaryError: it did not answer.
        """
        unsure = self._expectations.take_unsure(owner.key)
        while unsure:
            kind, key = unsure[-1]
            try:
                found = self._client.get(kind, key.name, key.namespace)
            except NotFound:
                unsure.pop()
            except (StatusError, TemporaryError):
                for each in unsure:
                    self._expectations.unsure(owner.key, each.kind, each.key)
                raise
            else:
                unsure.pop()
                self._expectations.wrote(owner.key, kind, found)

    def _may_adopt(self, owner: Owner) -> bool:
        """Look at the owner itself, not at a copy: one that is gone, or going, must adopt nothing (``canAdopt``)."""
        try:
            fresh = self._client.get(owner.kind, owner.key.name, owner.key.namespace)
        except NotFound:
            return False
        return objects.uid(fresh) == objects.uid(owner.obj) and not objects.is_deleting(fresh)

    def _take_group(self, owner: Owner, group: list[Step]) -> list[Failure]:
        if isinstance(group[0], Create):
            return self._slow_start(owner, group)
        return [failure for failure in self._side_by_side(owner, group) if failure is not None]

    def _slow_start(self, owner: Owner, group: list[Step]) -> list[Failure]:
        size = 1
        while group:
            batch, group = group[:size], group[size:]
            failures = [failure for failure in self._side_by_side(owner, batch) if failure is not None]
            if failures:
                return failures
            group, size = [*self.possible(owner, group)], size * 2
        return []

    def _side_by_side(self, owner: Owner, batch: list[Step]) -> Iterable[Failure | None]:
        if len(batch) == 1:
            return [self._try(owner, batch[0])]
        return self._context.pool.map(lambda step: self._try(owner, step), batch)

    def _try(self, owner: Owner, step: Step) -> Failure | None:
        try:
            self._step(owner, step)
        except (StatusError, TemporaryError) as error:
            return Failure(step, error)
        return None

    def _step(self, owner: Owner, step: Step) -> None:
        match step:
            case Create():
                self._create(owner, step)
            case Delete():
                self._delete(owner, step)
            case Adopt(kind, obj):
                self._set_owners(owner, kind, obj, with_owner(obj, controller_reference(owner.kind, owner.obj)))
            case Release(kind, obj):
                self._release(owner, kind, obj)
            case Patch(kind, obj, body, subresource):
                self._merge(owner, kind, obj, body, subresource)
            case WriteStatus(kind, obj, status):
                answer = self._client.update(kind, {**obj, "status": status}, subresource="status")
                self._expectations.wrote(owner.key, kind, answer)
            case RecordEvent(obj, event_type, reason, message):
                self._context.recorder.event(obj, event_type, reason, message, component=owner.component)
            case Again():
                pass

    def _create(self, owner: Owner, step: Create) -> None:
        obj, words = self._named(step), step.words
        try:
            answer = self._client.create(step.kind, obj)
        except AlreadyExists:
            answer = self._ours(owner, step.kind, obj)
        except (StatusError, TemporaryError) as error:
            if is_terminating_namespace(error):
                self._remember_ending(owner, obj)
                return
            if may_have_happened(error):
                self._expectations.unsure(owner.key, step.kind, objects.key(obj))
            self._tell(owner, "Warning", words.failed, f"{words.because}{error}")
            raise
        self._expectations.wrote(owner.key, step.kind, answer)
        self._tell(owner, "Normal", words.reason, f"{words.message}{objects.name(answer)}")

    def _remember_ending(self, owner: Owner, refused: JsonObject) -> None:
        log.info("%s %s: its namespace is being deleted", owner.kind.kind, owner.key)
        if objects.namespace(refused) == owner.key.namespace:
            newest = list(self._ending.items())[1 - _MOST_ENDING :]
            self._ending = {**dict(newest), objects.uid(owner.obj): self._context.clock.monotonic() + _ENDING_S}
        self._again(owner.key, _ENDING_S)

    def _ours(self, owner: Owner, kind: Kind, wanted: JsonObject) -> JsonObject:
        """Return the object of that name if it is the owner's already, and as wanted; else AlreadyExists holds."""
        key = objects.key(wanted)
        found = self._client.get(kind, key.name, key.namespace)
        ours = (objects.controller_of(found) or {}).get("uid") == objects.uid(owner.obj)
        if not ours or not self._same(wanted, found):
            raise AlreadyExists(kind, key.name)
        return found

    def _named(self, step: Create) -> JsonObject:
        meta = step.obj.get("metadata") or {}
        if meta.get("name"):
            return step.obj
        base = str(meta.get("generateName") or "")
        if step.uuid_name:
            # no random UUID from the system's: names come from the context's randomness, as all others
            name = f"{base}{uuid.UUID(int=int(self._context.random() * 2**128), version=4)}"
        else:
            name = f"{base[:_LONGEST_BASE]}{random_suffix(self._context.random)}"
        return {**step.obj, "metadata": {**meta, "name": name}}

    def _delete(self, owner: Owner, step: Delete) -> None:
        key, words = objects.key(step.obj), step.words
        try:
            self._client.delete(
                step.kind,
                key.name,
                key.namespace,
                uid=objects.uid(step.obj),
                resource_version=objects.resource_version(step.obj) if step.unchanged else None,
                grace_s=step.grace_s,
                propagation=step.propagation,
            )
        except (NotFound, Conflict) as error:
            if step.unchanged and isinstance(error, Conflict):
                log.debug("%s %s has changed, and is looked at again: %s", step.kind.kind, key, error)
                return
            log.debug("%s %s is gone already: %s", step.kind.kind, key, error)
        except (StatusError, TemporaryError) as error:
            self._tell(owner, "Warning", words.failed, f"{words.because}{error}")
            raise
        else:
            self._tell(owner, "Normal", words.reason, f"{words.message}{key.name}")
        self._expectations.deleted(owner.key, step.kind, step.obj)

    def _release(self, owner: Owner, kind: Kind, obj: JsonObject) -> None:
        try:
            self._set_owners(owner, kind, obj, without_owner(obj, objects.uid(owner.obj)))
        except NotFound:
            log.debug("%s %s went before it was released", kind.kind, objects.key(obj))

    def _set_owners(self, owner: Owner, kind: Kind, obj: JsonObject, references: list[JsonObject]) -> None:
        self._merge(owner, kind, obj, {"metadata": {"ownerReferences": references or None}})

    def _merge(self, owner: Owner, kind: Kind, obj: JsonObject, body: JsonObject, subresource: str = "") -> None:
        key = objects.key(obj)
        seen = {"uid": objects.uid(obj), "resourceVersion": objects.resource_version(obj)}
        guarded = {**body, "metadata": {**(body.get("metadata") or {}), **seen}}
        answer = self._client.patch(kind, key.name, key.namespace, guarded, subresource=subresource)
        self._expectations.wrote(owner.key, kind, answer)

    def _tell(self, owner: Owner, event_type: EventType, reason: str, message: str) -> None:
        if reason:
            self._context.recorder.event(owner.obj, event_type, reason, message, component=owner.component)


def _groups(steps: Iterable[Step]) -> Iterable[list[Step]]:
    """Yield steps that may go side by side: creations in a row, deletions, changes of pods, any other alone."""
    for kind, group in itertools.groupby(enumerate(steps), lambda each: _lane(*each)):
        found = [step for _, step in group]
        if kind != "again":
            yield found


def _lane(number: int, step: Step) -> object:
    match step:
        case Create():
            return "create"
        case Delete():
            return "delete"
        case Patch(kind) if kind == POD:
            return "patch"
        case Again():
            return "again"
        case _:
            return number


def random_suffix(random: Callable[[], float]) -> str:
    """Return five characters, as generateName appends them."""
    return "".join(_ALPHABET[int(random() * len(_ALPHABET))] for _ in range(_SUFFIX))


def is_terminating_namespace(error: Exception) -> bool:
    """Return whether a creation was refused because its namespace is being deleted: nothing to tell, nothing to try."""
    return isinstance(error, StatusError) and any(cause.reason == _TERMINATING for cause in error.causes)


def may_have_happened(error: Exception) -> bool:
    """Return whether a write that was answered by ``error`` may have been made all the same."""
    if isinstance(error, StatusError):
        return error.code >= HTTPStatus.INTERNAL_SERVER_ERROR
    return True
