"""Keeps who speaks TLS: Namespaces with the label, and the Pods in them alone. Shared by threads.

While no Namespace has it, no Pod is looked at.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Set

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import NAMESPACE, POD
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.api.pods.mutual_tls import MODES, MTLS, STRICT, can_speak
from minik8s_modules.api.pods.sidecars import with_sidecar
from minik8s_modules.client.informer import Informer
from minik8s_modules.mesh.identities.securing import Peers, peers_of
from minik8s_modules.runtime.controller import Context, Loop, Looping

_KEY = Key("", "peers")
_AGAIN_S = 0.1
_CAN = with_sidecar({}, mutual=True)
_META = ("name", "namespace", "uid", "resourceVersion", "labels")


Follower = Callable[[Set[str] | None], None]
"""Told of the Namespaces with other peers than before; None as soon as it is known at all who speaks TLS."""


class PeerCopies(Looping):
    """See the top of this file."""

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._loop = Loop(context, "mesh-peers", self.sync, workers=1)
        self._namespaces = self._loop.watch(NAMESPACE, self._touched)
        self._pods: dict[str, Informer] = {}
        self._followers: list[Follower] = []
        self._peers: Peers | None = None
        self._lock = threading.Lock()

    def follow(self, follower: Follower) -> None:
        """Call ``follower``, from any thread, when they have become others."""
        self._followers.append(follower)

    def get(self) -> Peers | None:
        """Return who speaks TLS; None until that is known."""
        with self._lock:
            return self._peers

    def start(self) -> None:
        """Begin when the copies are complete; returns at once."""
        self._loop.add(_KEY)
        super().start()

    def stop(self) -> None:
        """End; waits for the sync under way."""
        super().stop()
        for each in self._pods.values():
            each.stop()

    def sync(self, _key: Key) -> None:
        """Look at all that there is, and tell the followers if it is other than before."""
        spaces = {
            objects.name(each): objects.labels(each)
            for each in self._namespaces.list()
            if objects.labels(each).get(MTLS) in MODES
        }
        self._look_at(spaces.keys())
        if not all(each.wait_synced(0) for each in self._pods.values()):
            self._loop.add_after(_KEY, _AGAIN_S)
            return
        found = peers_of(spaces, (pod for each in self._pods.values() for pod in each.list()))
        with self._lock:
            before, self._peers = self._peers, found
        changed = None if before is None else found.other_namespaces(before)
        for follower in self._followers if changed is None or changed else ():
            follower(changed)

    def _look_at(self, namespaces: Iterable[str]) -> None:
        wanted = set(namespaces)
        for each in self._pods.keys() - wanted:
            self._pods.pop(each).stop()
        for each in wanted - self._pods.keys():
            informer = Informer(self._client, POD, namespace=each, transform=_essence, read=_read)
            informer.add_handler(self._say_changed)
            self._pods[each] = informer
            informer.start()

    def _say_changed(self, _old: JsonObject | None, _new: JsonObject | None) -> None:
        self._loop.add(_KEY)

    def _touched(self, old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
        before, now = (objects.labels(each or {}).get(MTLS) for each in (old, new))
        return [_KEY] if before != now else []


def _read(pod: JsonObject) -> None:
    """Raise as whoever looks at a Pod that cannot be read."""
    peers_of({objects.namespace(pod): {MTLS: STRICT}}, [_essence(pod)])


def _essence(pod: JsonObject) -> JsonObject:
    """Return what is looked at of a Pod."""
    meta, status = objects.metadata(pod), objects.status(pod)
    return {
        "metadata": {name: meta[name] for name in _META if name in meta},
        "spec": _CAN if can_speak(objects.spec(pod)) else {},
        "status": {name: status[name] for name in ("phase", "podIPs") if name in status},
    }
