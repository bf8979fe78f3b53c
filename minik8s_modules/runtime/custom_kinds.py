"""The kinds a process knows: those that are built in, and custom ones as their definitions come and go.

Of a definition only its names are kept: who collects garbage needs no schemas, which are most of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from minik8s_modules.api import objects
from minik8s_modules.api.custom.kinds import bare_kinds_of, slim
from minik8s_modules.api.kind import Kind
from minik8s_modules.api.kinds import CUSTOM_RESOURCE_DEFINITION, KINDS
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import Clock
from minik8s_modules.client.informer import Informer
from minik8s_modules.client.interface import Source

Change = Callable[[Kind, bool], None]
"""Called with one kind of a definition, and whether it is there now."""


class CustomKinds:
    """See the top of this file."""

    def __init__(self, client: Source, clock: Clock | None = None) -> None:
        self._lock = threading.RLock()
        self._known: dict[str, tuple[Kind, ...]] = {}
        self._followers: list[Change] = []
        self.registry = KINDS
        self.informer = Informer(client, CUSTOM_RESOURCE_DEFINITION, clock=clock, transform=slim)
        self.informer.add_handler(self._changed)

    def follow(self, follower: Change) -> None:
        """Have ``follower`` told of one kind of each definition, at once of those that are known."""
        with self._lock:
            self._followers.append(follower)
            for kinds in self._known.values():
                follower(kinds[0], True)  # noqa: FBT003 - it is there

    def all(self) -> tuple[Kind, ...]:
        """Return one kind of each definition."""
        with self._lock:
            return tuple(kinds[0] for kinds in self._known.values())

    def _changed(self, old: JsonObject | None, new: JsonObject | None) -> None:
        name = objects.name(new or old or {})
        kinds = bare_kinds_of(new) if new is not None else ()
        with self._lock:
            before = self._known.get(name, ())
            if kinds == before:
                return
            self._known.pop(name, None)
            if kinds:
                self._known[name] = kinds
            self.registry = KINDS.with_custom(kind for each in self._known.values() for kind in each)
            for gone, present in ((before, False), (kinds, True)):
                if gone and before[:1] != kinds[:1]:
                    for follower in self._followers:
                        follower(gone[0], present)
