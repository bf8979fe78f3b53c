"""The shell all workload controllers share: read the copies, decide in pure code, take the steps.

    sync(key): gone? forget it · lost answers? look · own writes not seen yet? wait · decide · act · tell failures

A controller derives from ``WorkloadController``, names its kind and what it owns, and writes ``decide``.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.client.informer import Informer
from minik8s_modules.controllers.core.acting import Acting, Failure, Owner
from minik8s_modules.controllers.core.owning import selector_of
from minik8s_modules.controllers.core.steps import Step
from minik8s_modules.runtime.controller import Context, KeysOf, Loop
from minik8s_modules.runtime.expectations import Expectations
from minik8s_modules.runtime.informers import BY_CONTROLLER, owned_and_orphans

log = logging.getLogger(__name__)

# the event of what was written brings the key back; this is for what was made and unmade between two lists
_LOOK_AGAIN_S = 5.0


class WorkloadController(ABC):
    """Makes the objects of ``kind`` what they declare; ``owns`` are the kinds it makes for them.

    Args:
        context: of the process.
        kind: the kind whose keys are synced.
        owns: kinds with a controlling reference to it; their changes queue it.
        workers: keys synced at once.
        keys_of: the keys of changed objects of ``kind``, where some need no look.
    """

    def __init__(
        self, context: Context, kind: Kind, owns: Sequence[Kind], workers: int = 2, keys_of: KeysOf | None = None
    ) -> None:
        self.context = context
        self.kind = kind
        self.loop = Loop(context, kind.singular_name, self.sync, workers)
        self.own = self.loop.watch_own(kind, keys_of)
        self.owned: dict[Kind, Informer] = {
            each: self.loop.watch_owned(each, self.own, kind, selector_of) for each in owns
        }
        self._expectations = Expectations(context.informers, context.clock)
        self._acting = Acting(context, self._expectations, self.loop.add_after, self.same)

    @abstractmethod
    def decide(self, obj: JsonObject) -> Sequence[Step]:
        """Return the steps for ``obj`` from what the copies show now."""

    def same(self, wanted: JsonObject, found: JsonObject) -> bool:  # noqa: ARG002 - kinds may look closer
        """Return whether ``found``, ours and of the name ``wanted`` was to have, is what was to be created."""
        return True

    def failed(self, owner: Owner, failures: Sequence[Failure]) -> None:
        """Answer for steps that were not taken; raises, so that the key comes back with back-off.

        Raises:
            StatusError: always one of the failures.
            TemporaryError: or this.
        """
        log.debug("%s %s: %s", owner.kind.kind, owner.key, failures[0].error)
        raise failures[0].error

    def gone(self, key: Key) -> None:
        """Forget what is kept about ``key``, whose object is gone."""
        self._expectations.forget(key)

    def start(self) -> None:
        """Begin; returns at once."""
        self.loop.start()

    def stop(self) -> None:
        """End."""
        self.loop.stop()

    def sync(self, key: Key) -> None:
        """Make what ``key`` names as it declares; safe to repeat.

        Raises:
            StatusError: a step was refused.
            TemporaryError: the API did not answer.
        """
        obj = self.own.get(*key)
        if obj is None:
            self.gone(key)
            return
        owner = Owner(self.kind, obj)
        self._acting.settle(owner)
        if not self._expectations.fulfilled(key):
            self.loop.add_after(key, _LOOK_AGAIN_S)
            return
        # read again: the copies have moved on while answers were waited for
        obj = self.own.get(*key) or obj
        owner = Owner(self.kind, obj)
        failures = self._acting.take(owner, self.decide(obj))
        if failures:
            self.failed(owner, failures)

    def take(self, owner: Owner, steps: Sequence[Step]) -> list[Failure]:
        """Take ``steps`` for ``owner``; for answers to failures."""
        return self._acting.take(owner, steps)

    def possible(self, obj: JsonObject, steps: Sequence[Step]) -> Sequence[Step]:
        """Return ``steps`` without creations that would be refused, as far as that is known."""
        return self._acting.possible(Owner(self.kind, obj), steps)

    def found(self, kind: Kind, obj: JsonObject) -> list[JsonObject]:
        """Return what ``obj`` controls of a kind it owns, and the orphans of its namespace."""
        return owned_and_orphans(self.owned[kind], obj)

    def controlled(self, kind: Kind, owner: JsonObject) -> list[JsonObject]:
        """Return what ``owner``, of any kind, controls of a kind that is owned here."""
        return self.owned[kind].by_index(BY_CONTROLLER, objects.uid(owner))
