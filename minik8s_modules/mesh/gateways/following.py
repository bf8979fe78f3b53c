"""Keeps copies of the HTTPRoutes within the mesh, while the definitions of Gateway API are there. Shared by threads.

Until they are complete nothing is decided for sidecars: a pilot that has just started would take away what routes lead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from minik8s_modules.api.kind import Kind
from minik8s_modules.api.network.gateway_api import GATEWAY_KINDS
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.client.informer import Informer
from minik8s_modules.mesh.gateways.meshing import Routes, routes_of
from minik8s_modules.runtime.controller import Context


class RouteCopies:
    """See the top of this file.

    Args:
        context: of the process.
    """

    def __init__(self, context: Context) -> None:
        self._informers = context.informers
        self._lock = threading.RLock()
        self._copies: dict[str, Informer] = {}
        self._followers: list[Callable[[], None]] = []
        self._last = Routes()
        self._custom = self._informers.custom

    def start(self) -> None:
        """Begin to look for the definitions."""
        self._custom.follow(self._defined)

    def stop(self) -> None:
        """End; the copies are the process's."""

    def follow(self, follower: Callable[[], None]) -> None:
        """Call ``follower``, from any thread, when a route or grant has become another."""
        with self._lock:
            self._followers.append(follower)

    def leave(self, follower: Callable[[], None]) -> None:
        """Call it no more."""
        with self._lock:
            self._followers.remove(follower)

    @property
    def ready(self) -> bool:
        """Return whether the copies are complete: of no kind, where no kind is defined."""
        with self._lock:
            return all(each.wait_synced(0) for each in (self._custom.informer, *self._copies.values()))

    def get(self) -> Routes:
        """Return routes and grants as they are."""
        with self._lock:
            routes, grants = (self._list(each) for each in (GATEWAY_KINDS.routes, GATEWAY_KINDS.grants))
        return routes_of(routes, grants)

    def _list(self, kind: Kind) -> list[JsonObject]:
        informer = self._copies.get(kind.kind)
        return informer.list() if informer is not None else []

    def _defined(self, kind: Kind, present: bool) -> None:  # noqa: FBT001 - a follower's signature
        if kind.group != GATEWAY_KINDS.routes.group or kind.kind not in _KINDS:
            return
        with self._lock:
            if present:
                self._copies[kind.kind] = informer = self._informers.of(kind)
                informer.add_handler(self._changed)
            else:
                self._copies.pop(kind.kind, None)
                self._informers.forget(kind)
        self._changed()

    def _changed(self, _old: JsonObject | None = None, _new: JsonObject | None = None) -> None:
        with self._lock:
            found = self.get()
            if found == self._last:
                return
            self._last, followers = found, [*self._followers]
        for each in followers:
            each()


_KINDS = {GATEWAY_KINDS.routes.kind, GATEWAY_KINDS.grants.kind}
