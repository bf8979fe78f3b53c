"""Keeps copies of the HTTPRoutes within the mesh, while the definitions of Gateway API are there. Shared by threads.

Until they are complete nothing is decided for sidecars: a pilot that has just started would take away what routes lead.

Informers call their handlers with their lock held. So a handler only says that something has changed; a thread of its
own, which holds no lock then, reads the copies and tells the followers. Nothing reads a copy with the lock of this
file held either.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from minik8s_modules.api.kind import Kind
from minik8s_modules.api.network.gateway_api import GATEWAY_KINDS
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.client.informer import Informer
from minik8s_modules.mesh.gateways.meshing import Routes, routes_of
from minik8s_modules.runtime.controller import Context

log = logging.getLogger(__name__)


class RouteCopies:
    """See the top of this file.

    Args:
        context: of the process.
    """

    def __init__(self, context: Context) -> None:
        self._informers = context.informers
        self._lock = threading.Lock()
        self._copies: dict[str, Informer] = {}
        self._followers: list[Callable[[], None]] = []
        self._custom = self._informers.custom
        self._changed = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mesh-routes", daemon=True)

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

    def follow(self, follower: Callable[[], None]) -> None:
        """Call ``follower``, from any thread, when a route or grant has become another."""
        with self._lock:
            self._followers.append(follower)

    def leave(self, follower: Callable[[], None]) -> None:
        """Call it no more, but for a call under way."""
        with self._lock:
            self._followers.remove(follower)

    @property
    def ready(self) -> bool:
        """Return whether the copies are complete: of no kind, where no kind is defined."""
        # in this order: what defines the kinds is complete once their copies are there
        return self._custom.informer.wait_synced(0) and all(each.wait_synced(0) for each in self._known().values())

    def get(self) -> Routes:
        """Return routes and grants as they are."""
        known = self._known()
        routes, grants = (_list(known.get(each.kind)) for each in (GATEWAY_KINDS.routes, GATEWAY_KINDS.grants))
        return routes_of(routes, grants)

    def _known(self) -> dict[str, Informer]:
        with self._lock:
            return dict(self._copies)

    def _defined(self, kind: Kind, present: bool) -> None:  # noqa: FBT001 - a follower's signature
        if kind.group != GATEWAY_KINDS.routes.group or kind.kind not in _KINDS:
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
        last = Routes()
        while self._changed.wait() and not self._stop.is_set():
            self._changed.clear()
            try:
                last = self._tell(last)
            except Exception:  # the thread's edge: the next change is told again
                log.exception("a change of HTTPRoutes was not understood")

    def _tell(self, last: Routes) -> Routes:
        """Tell the followers if routes or grants are others than these; return those that there are."""
        found = self.get()
        if found != last:
            with self._lock:
                followers = [*self._followers]
            for each in followers:
                each()
        return found


def _list(informer: Informer | None) -> list[JsonObject]:
    return informer.list() if informer is not None else []


_KINDS = {GATEWAY_KINDS.routes.kind, GATEWAY_KINDS.grants.kind}
