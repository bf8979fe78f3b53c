"""Keeps copies of some custom kinds while their definitions are there. Shared by threads.

Informers call their handlers with their lock held. So a handler only says that something has changed; a thread of its
own, which holds no lock then, reads the copies and tells the followers. Nothing reads a copy with the lock of this
file held either.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from minik8s_modules.api.kind import Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.client.informer import Informer
from minik8s_modules.runtime.controller import Context

log = logging.getLogger(__name__)
Value = TypeVar("Value")
Follower = TypeVar("Follower", bound=Callable[..., None])


class CustomCopies(ABC, Generic[Value, Follower]):
    """See the top of this file.

    Args:
        context: of the process.
        name: of the thread.
        kinds: of one group, each name once.
        nothing: what ``get`` returns while there is nothing.
    """

    def __init__(self, context: Context, name: str, kinds: Iterable[Kind], nothing: Value) -> None:
        self._informers = context.informers
        self._wanted = {(each.group, each.kind) for each in kinds}
        self._last = nothing
        self._lock = threading.Lock()
        self._copies: dict[str, Informer] = {}
        self._followers: list[Follower] = []
        self._custom = self._informers.custom
        self._changed = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @abstractmethod
    def get(self) -> Value:
        """Return what there is."""

    @abstractmethod
    def tell(self, followers: Iterable[Follower], before: Value, now: Value) -> None:
        """Tell the followers of a change; called with no lock held."""

    def start(self) -> None:
        """Begin to look for the definitions."""
        self._thread.start()
        self._custom.follow(self._defined)

    def stop(self) -> None:
        """Tell the followers no more; the copies are the process's."""
        self._stop.set()
        self._changed.set()
        if self._thread.is_alive():
            self._thread.join()

    def follow(self, follower: Follower) -> None:
        """Call ``follower``, from any thread, when an object has become another."""
        with self._lock:
            self._followers.append(follower)

    def leave(self, follower: Follower) -> None:
        """Call it no more, but for a call under way."""
        with self._lock:
            self._followers.remove(follower)

    @property
    def ready(self) -> bool:
        """Return whether the copies are complete: of no kind, where no kind is defined."""
        # in this order: what defines the kinds is complete once their copies are there
        if not self._custom.informer.wait_synced(0):
            return False
        # a definition that becomes another goes and comes in one change, in the midst of which there are no objects
        self._custom.all()
        return all(each.wait_synced(0) for each in self._known().values())

    def objects(self, kind: Kind) -> list[JsonObject]:
        """Return the objects of a kind."""
        informer = self._known().get(kind.kind)
        return informer.list() if informer is not None else []

    def _known(self) -> dict[str, Informer]:
        with self._lock:
            return dict(self._copies)

    def _defined(self, kind: Kind, present: bool) -> None:  # noqa: FBT001 - a follower's signature
        if (kind.group, kind.kind) not in self._wanted:
            return
        if present:
            informer = self._informers.of(kind)
            informer.add_handler(self._say_changed)
            with self._lock:
                self._copies[kind.kind] = informer
        else:
            with self._lock:
                self._copies.pop(kind.kind, None)
            self._informers.forget(kind)
        self._changed.set()

    def _say_changed(self, _old: JsonObject | None, _new: JsonObject | None) -> None:
        self._changed.set()

    def _run(self) -> None:
        while self._changed.wait() and not self._stop.is_set():
            self._changed.clear()
            try:
                self._look()
            except Exception:  # the thread's edge: the next change is told again
                log.exception("%s: a change was not understood", self._thread.name)

    def _look(self) -> None:
        before, now = self._last, self.get()
        if now != before:
            with self._lock:
                followers = [*self._followers]
            self.tell(followers, before, now)
            self._last = now
