"""An object that every namespace has: made when it is missing, put right when it was changed, with the namespace alive.

The shell of ``root_ca.py`` and ``service_accounts.py``. A sync reads namespace and object from informers, asks the
controller's decision, and makes one write; a refused one comes back with back-off, a killed one is decided again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.errors import AlreadyExists, Conflict, Forbidden, NotFound
from minik8s_modules.api.field_selectors import exactly
from minik8s_modules.api.kinds import NAMESPACE, Kind
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.base.clock import Clock
from minik8s_modules.client.interface import Api
from minik8s_modules.runtime.shell import Shell

log = logging.getLogger(__name__)


class Create(NamedTuple):
    """Make the object."""

    obj: JsonObject


class Replace(NamedTuple):
    """Put this in the place of what is there."""

    obj: JsonObject


Decide = Callable[[JsonObject, JsonObject | None], Create | Replace | None]
"""From a namespace and its object (None: missing) to what is to do."""


class NamespaceObjects(Shell[str]):
    """Keeps the object ``name`` of ``kind`` in every namespace as ``decide`` has it."""

    def __init__(self, client: Api, kind: Kind, name: str, decide: Decide, clock: Clock | None = None) -> None:
        self._client, self._kind, self._name, self._decide = client, kind, name, decide
        super().__init__(client, f"{kind.plural}/{name}", clock)
        self._namespaces = self.follow(NAMESPACE, lambda old, new: self._queue.add(objects.name(new or old or {})))
        self._objects = self.follow(
            kind,
            lambda old, new: self._queue.add(objects.namespace(new or old or {})),
            field_selector=exactly(metadata__name=name),
        )

    def look_again(self) -> None:
        """Look at every namespace: what ``decide`` goes by has changed."""
        for namespace in self._namespaces.list():
            self._queue.add(objects.name(namespace))

    def sync(self, name: str) -> None:
        """Look at one namespace. Raises as the API does."""
        namespace = self._namespaces.get("", name)
        if namespace is None or objects.is_deleting(namespace) or not self._objects.wait_synced(0):
            if namespace is not None and not objects.is_deleting(namespace):
                self._queue.add_after(name, 1.0)  # the objects' first list is on its way
            return
        step = self._decide(namespace, self._objects.get(name, self._name))
        if step is not None:
            self._take(Key(name, self._name), step)

    def _take(self, key: Key, step: Create | Replace) -> None:
        try:
            if isinstance(step, Create):
                self._client.create(self._kind, step.obj)
            else:
                self._client.update(self._kind, step.obj)
        except (AlreadyExists, NotFound, Conflict) as error:
            log.debug("%s %s has changed meanwhile: %s", self._kind.singular_name, key, error)
        except Forbidden:
            namespace = self._namespaces.get("", key.namespace)
            if namespace is not None and not objects.is_deleting(namespace):
                raise
        else:
            log.info("%s %s was %s", self._kind.singular_name, key, "made" if isinstance(step, Create) else "put right")
