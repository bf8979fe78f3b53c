"""The API's view of static pods: mirrors made, made again and removed; status and deletions sent to the right object.

``MirrorApi`` stands between the status writer and the API, because a static pod's UID is not its mirror's. Which mirror
stands for which static pod is never told by its annotation alone (``static_pods.mirrors``): a mirror that bears a UID
of another namespace, name or node changes nothing about that pod.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.errors import AlreadyExists, NotFound, StatusError
from minik8s_modules.api.kinds import POD, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.mirror_pods import static_uid
from minik8s_modules.base.clock import Clock
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.reconcile.housekeeping.static_pods import StaticPods, as_static, merged, mirror_of, mirrors

log = logging.getLogger(__name__)
Lookup = Callable[[str, str], JsonObject | None]
"""Returns the API's pod of a namespace and name as the informer has it."""


class MirrorApi:
    """The writes of ``writer.StatusApi``, for static pods on their mirrors."""

    def __init__(self, api: Any, static: StaticPods, lookup: Lookup) -> None:
        self._api = api
        self._static = static
        self._lookup = lookup

    def patch(self, kind: Kind, name: str, namespace: str, body: Any, *, subresource: str = "") -> JsonObject:
        """Merge ``body`` into the object; NotFound for a static pod without its mirror."""
        uid = objects.dig(body, "metadata", "uid")
        mirror = self._lookup(namespace, name)
        if uid and mirror is not None and static_uid(mirror) == uid:
            body = {**body, "metadata": {**body["metadata"], "uid": objects.uid(mirror)}}
        elif uid and self._static.get(uid) is not None:
            raise NotFound(kind, name)
        written: JsonObject = self._api.patch(kind, name, namespace, body, subresource=subresource)
        return as_static(written)

    def delete(
        self, kind: Kind, name: str, namespace: str = "", *, grace_s: int | None = None, uid: str | None = None
    ) -> JsonObject:
        """Delete the object; of a static pod that has ended, its mirror."""
        if uid is None or self._static.get(uid) is None:
            found: JsonObject = self._api.delete(kind, name, namespace, grace_s=grace_s, uid=uid)
            return found
        mirror = self._lookup(namespace, name)
        self._static.forget(uid)
        if mirror is None or static_uid(mirror) != uid:
            raise NotFound(kind, name)
        gone: JsonObject = self._api.delete(kind, name, namespace, grace_s=0, uid=objects.uid(mirror))
        return gone


class Mirrors:
    """Reads and keeps; ``lookup`` and ``pods_of`` are the informer's, ``moved(node, uids)`` has the loop look again."""

    def __init__(
        self,
        api: Any,
        static: StaticPods,
        lookup: Lookup,
        pods_of: Callable[[str], list[JsonObject]],
        moved: Callable[[str, Iterable[str]], None],
        clock: Clock,
    ) -> None:
        self._api = api
        self._static = static
        self._lookup = lookup
        self._pods_of = pods_of
        self._moved = moved
        self._clock = clock

    def take(self, node: str, pods: list[JsonObject]) -> None:
        """Take over what lies in a node's folder, and have the API show it."""
        known = [as_static(one) for one in self._pods_of(node) if static_uid(one)]
        changed = self._static.take(node, pods, known, self._clock.now())
        if changed:
            self._moved(node, changed)
        self.keep(node)

    def keep(self, node: str) -> None:
        """Make the mirrors that are missing or of another content; remove those of nothing."""
        wanted = {objects.key(pod): pod for pod in self._static.of(node) if not self._static.ends(objects.uid(pod))}
        for pod in wanted.values():
            self._guarded(lambda pod=pod: self._keep_one(pod))  # type: ignore[misc]  # bound at once
        if self._static.read(node):
            standing = self._static.of(node)
            for one in self._pods_of(node):
                if static_uid(one) and not any(mirrors(one, pod) for pod in standing):
                    self._guarded(lambda one=one: self._remove(one))  # type: ignore[misc]  # bound at once

    def _keep_one(self, pod: JsonObject) -> None:
        mirror = self._lookup(objects.namespace(pod), objects.name(pod))
        if mirror is not None and mirrors(mirror, pod) and not objects.is_deleting(mirror):
            return
        if mirror is not None:
            if not static_uid(mirror):
                log.warning("static pod %s has no mirror: a pod of its name is there", objects.key(pod))
                return
            self._remove(mirror)
        try:
            self._api.create(POD, mirror_of(pod))
        except AlreadyExists:
            return  # the informer will tell

    def _remove(self, mirror: JsonObject) -> None:
        try:
            where = (objects.name(mirror), objects.namespace(mirror))
            self._api.delete(POD, *where, grace_s=0, uid=objects.uid(mirror))
        except NotFound:
            return

    def _guarded(self, do: Callable[[], None]) -> None:
        try:
            do()
        except (StatusError, TemporaryError) as error:
            log.warning("a mirror pod: %s", error)


def seen_pods(node: str, reported: Iterable[JsonObject], static: StaticPods) -> list[JsonObject]:
    """Return the pods of a node: the API's own, and its static ones with the status their mirrors tell."""
    rows = list(reported)
    if not static.read(node):
        return [*{objects.uid(pod): pod for pod in map(as_static, sorted(rows, key=_made, reverse=True))}.values()]
    told_of = {objects.key(pod): pod for pod in rows if static_uid(pod)}
    own = [pod for pod in rows if not static_uid(pod)]
    return own + [merged(pod, told_of.get(objects.key(pod))) for pod in static.of(node)]


def seen_pod(uid: str, reported: Iterable[JsonObject], static: StaticPods) -> JsonObject | None:
    """Return the pod whose containers bear ``uid``, None when there is none.

    Args:
        uid: of a pod of the API, or of a static one.
        reported: what the API has with that UID (``mirror_pods.node_uid``).
        static: the nodes' own pods.
    """
    rows, known = sorted(reported, key=_made), static.get(uid)
    if known is not None:
        return merged(known, next((one for one in rows if mirrors(one, known)), None))
    # a mirror whose manifest is gone stands for nothing, once that is known
    rows = [one for one in rows if not (static_uid(one) and static.read(str(objects.spec(one).get("nodeName"))))]
    return as_static(rows[0]) if rows else None


def _made(pod: JsonObject) -> str:
    """Return what pods are ordered by where two claim one UID, which only the elder can have."""
    return str(objects.metadata(pod).get("creationTimestamp") or "")


def described(files: Mapping[str, str]) -> str:
    """Return the errors of manifests as one text."""
    return "; ".join(f"{name}: {why}" for name, why in sorted(files.items()))
