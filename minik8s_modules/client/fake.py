"""An API in memory with the calls of ``ApiClient``: for tests of what stands above the client.

It keeps what matters to a controller: names and uids, resourceVersion with compare-and-swap, generation,
deletion that waits for finalizers, status and binding as subresources, watches that resume from a revision.
It does no validation, defaulting or admission; those have tests against the real server. ``fail`` makes the
next calls fail.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.errors import AlreadyExists, Conflict, Expired, NotFound, StatusError
from minik8s_modules.api.field_selectors import Term, terms
from minik8s_modules.api.kinds import POD, Kind
from minik8s_modules.api.lifecycle.propagation import with_policy
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.selectors import parse_label_selector
from minik8s_modules.base.clock import Clock, FakeClock, rfc3339
from minik8s_modules.client.interface import Keep, ObjectList
from minik8s_modules.client.watches import WatchEvent

_Id = tuple[str, str, str, str]


class FakeWatch:
    """Iterator of ``WatchEvent`` over a ``FakeApi``'s history; ``close`` ends it from any thread."""

    def __init__(self, api: FakeApi, kind: Kind, namespace: str, selectors: str, after: int) -> None:
        self._api = api
        self._wanted = (kind, namespace, selectors)
        self._after = after
        self._closed = False

    def __iter__(self) -> Iterator[WatchEvent]:
        """Return itself."""
        return self

    def __next__(self) -> WatchEvent:
        """Return the next event, waiting for it."""
        with self._api.changed:
            while not self._closed:
                event = self._api.next_event(*self._wanted, self._after)
                if event is not None:
                    self._after = int(objects.resource_version(event.object))
                    return event
                self._api.changed.wait()
        raise StopIteration

    def close(self) -> None:
        """End the watch."""
        with self._api.changed:
            self._closed = True
            self._api.changed.notify_all()


class FakeApi:
    """Objects in a dictionary; ``calls`` holds ``(verb, plural, namespace, name, subresource)`` of each."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or FakeClock()
        self.changed = threading.Condition()
        self.calls: list[tuple[str, str, str, str, str]] = []
        self._objects: dict[_Id, JsonObject] = {}
        self._history: list[tuple[_Id, WatchEvent]] = []
        self._revision = 1
        self._oldest = 0
        self._failures: list[Exception] = []
        self._watches: list[FakeWatch] = []

    def fail(self, *errors: Exception) -> None:
        """Let the next calls raise ``errors``, one each."""
        with self.changed:
            self._failures += errors

    def cut_watches(self) -> None:
        """End all watches, as a restart of the server does."""
        for watch in self._watches:
            watch.close()
        self._watches.clear()

    def compact(self) -> None:
        """Forget all history: watches from earlier revisions answer 410."""
        with self.changed:
            self._oldest = self._revision
            self._history.clear()

    def get(self, kind: Kind, name: str, namespace: str = "") -> JsonObject:
        """Return the object; ``NotFound`` when there is none."""
        with self.changed:
            self._called("get", kind, namespace, name)
            return copy.deepcopy(self._find(kind, namespace, name))

    def list(
        self,
        kind: Kind,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,  # noqa: ARG002 - the client's signature; a page holds everything here
        keep: Keep | None = None,
    ) -> ObjectList:
        """Return the objects; of fields only ``path=value`` and ``path!=value`` are known."""
        with self.changed:
            self._called("list", kind, namespace, "")
            labels = parse_label_selector(label_selector)
            items = [
                copy.deepcopy(obj)
                for key, obj in self._objects.items()
                if _selected(key, obj, kind, namespace, field_selector) and labels.matches(objects.labels(obj))
            ]
            return ObjectList(items if keep is None else [*map(keep, items)], str(self._revision))

    def create(
        self,
        kind: Kind,
        obj: Mapping[str, Any],
        *,
        dry_run: bool = False,
        field_manager: str = "",  # noqa: ARG002 - the client's signature
        subresource: str = "",
    ) -> JsonObject:
        """Create ``obj``; ``binding`` of a pod sets its node."""
        with self.changed:
            namespace, name = objects.namespace(obj), objects.name(obj)
            self._called("create", kind, namespace, name, subresource)
            if subresource:
                return self._bind(kind, namespace, name, obj)
            new = copy.deepcopy(dict(obj))
            metadata = objects.metadata(new)
            if "name" not in metadata:
                name = metadata["name"] = f"{metadata['generateName']}{self._revision}"
            if (key := _id(kind, namespace, name)) in self._objects:
                raise AlreadyExists(kind, name)
            metadata.setdefault("uid", f"uid-{self._revision}")
            metadata.setdefault("creationTimestamp", rfc3339(self._clock.now()))
            new.setdefault("apiVersion", kind.api_version)
            new.setdefault("kind", kind.kind)
            return new if dry_run else self._put(key, "ADDED", new)

    def update(
        self,
        kind: Kind,
        obj: Mapping[str, Any],
        *,
        subresource: str = "",
        dry_run: bool = False,  # noqa: ARG002 - the client's signature
        field_manager: str = "",  # noqa: ARG002 - the client's signature
    ) -> JsonObject:
        """Replace the object, or only its status, or its finalizers (``finalize``)."""
        with self.changed:
            namespace, name = objects.namespace(obj), objects.name(obj)
            self._called("update", kind, namespace, name, subresource)
            old = self._find(kind, namespace, name)
            if (seen := objects.resource_version(obj)) and seen != objects.resource_version(old):
                raise Conflict(kind, name)
            return self._replace(kind, old, _merged(old, dict(obj), subresource))

    def patch(
        self,
        kind: Kind,
        name: str,
        namespace: str,
        body: Any,
        *,
        patch_type: str = "merge",
        subresource: str = "",
        dry_run: bool = False,  # noqa: ARG002 - the client's signature
        field_manager: str = "",  # noqa: ARG002 - the client's signature
        force: bool = False,  # noqa: ARG002 - the client's signature
    ) -> JsonObject:
        """Patch the object; strategic patches know only conditions, merged by type."""
        with self.changed:
            self._called("patch", kind, namespace, name, subresource)
            old = self._find(kind, namespace, name)
            wanted = objects.resource_version(body)
            if wanted and wanted != objects.resource_version(old):
                raise Conflict(kind, name)
            new = merge(old, body, strategic=patch_type == "strategic")
            return self._replace(kind, old, _merged(old, new, subresource))

    def delete(
        self,
        kind: Kind,
        name: str,
        namespace: str = "",
        *,
        grace_s: int | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: str | None = None,
    ) -> JsonObject:
        """Delete the object; a bound pod with grace, or an object with finalizers, is only marked."""
        with self.changed:
            self._called("delete", kind, namespace, name)
            old = self._find(kind, namespace, name)
            seen = (objects.uid(old), objects.resource_version(old))
            if (uid or seen[0], resource_version or seen[1]) != seen:
                raise Conflict(kind, name, "the preconditions do not hold")
            new = with_policy(kind, copy.deepcopy(old), {"propagationPolicy": propagation})
            new["metadata"].setdefault("deletionTimestamp", rfc3339(self._clock.now()))
            waits = kind == POD and objects.spec(old).get("nodeName") and grace_s != 0
            if waits:
                asked = objects.spec(old).get("terminationGracePeriodSeconds", 30) if grace_s is None else grace_s
                new["metadata"].setdefault("deletionGracePeriodSeconds", asked)
            return self._remove_or_put(kind, new, keep=bool(waits))

    def delete_collection(self, kind: Kind, namespace: str) -> None:
        """Delete all objects of ``kind`` in ``namespace``."""
        with self.changed:
            self._called("deletecollection", kind, namespace, "")
            found = [obj for key, obj in self._objects.items() if _selected(key, obj, kind, namespace, "")]
            for obj in found:
                self.delete(kind, objects.name(obj), namespace)

    def watch(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        resource_version: str,
        field_selector: str = "",
        label_selector: str = "",  # noqa: ARG002 - the client's signature
        bookmarks: bool = True,  # noqa: ARG002 - the client's signature
        timeout_s: int = 300,  # noqa: ARG002 - the client's signature
    ) -> FakeWatch:
        """Return the changes after ``resource_version``; ``Expired`` when they are forgotten."""
        with self.changed:
            self._called("watch", kind, namespace, "")
            if int(resource_version) < self._oldest:
                raise Expired.version(int(resource_version), self._oldest)
            watch = FakeWatch(self, kind, namespace, field_selector, int(resource_version))
            self._watches.append(watch)
            return watch

    def next_event(self, kind: Kind, namespace: str, selector: str, after: int) -> WatchEvent | None:
        """Return the first event of the history after revision ``after``; the lock is held by the caller."""
        for key, event in self._history:
            revision = int(objects.resource_version(event.object))
            if revision > after and _selected(key, event.object, kind, namespace, ""):
                leaves = not _selected(key, event.object, kind, namespace, selector)
                return event._replace(type="DELETED" if leaves else event.type)
        return None

    def _called(self, verb: str, kind: Kind, namespace: str, name: str, subresource: str = "") -> None:
        self.calls.append((verb, kind.plural, namespace, name, subresource))
        if self._failures:
            raise self._failures.pop(0)

    def _find(self, kind: Kind, namespace: str, name: str) -> JsonObject:
        found = self._objects.get(_id(kind, namespace, name))
        if found is None:
            raise NotFound(kind, name)
        return found

    def _bind(self, kind: Kind, namespace: str, name: str, binding: Mapping[str, Any]) -> JsonObject:
        old = self._find(kind, namespace, name)
        if objects.spec(old).get("nodeName"):
            raise Conflict(kind, name, f"pod {name} is already assigned to a node")
        new = copy.deepcopy(old)
        new.setdefault("spec", {})["nodeName"] = binding["target"]["name"]
        scheduled = {"conditions": [{"type": "PodScheduled", "status": "True"}]}
        new["status"] = merge(new.get("status"), scheduled, strategic=True)
        self._replace(kind, old, new)
        return {"kind": "Status", "apiVersion": "v1", "status": "Success"}

    def _replace(self, kind: Kind, old: JsonObject, new: JsonObject) -> JsonObject:
        new = copy.deepcopy(new)
        if new == old:
            return new
        waits = objects.dig(new, "metadata", "deletionGracePeriodSeconds")
        return self._remove_or_put(kind, new, keep=bool(waits) or not objects.is_deleting(new))

    def _remove_or_put(self, kind: Kind, new: JsonObject, *, keep: bool) -> JsonObject:
        key = _id(kind, objects.namespace(new), objects.name(new))
        finalizers = objects.finalizers(new) or objects.dig(new, "spec", "finalizers")
        if keep or finalizers:
            return self._put(key, "MODIFIED", new)
        self._put(key, "DELETED", new)
        del self._objects[key]
        return {"kind": "Status", "apiVersion": "v1", "status": "Success"}

    def _put(self, key: _Id, event: str, new: JsonObject) -> JsonObject:
        self._revision += 1
        new["metadata"]["resourceVersion"] = str(self._revision)
        self._objects[key] = new
        self._history.append((key, WatchEvent(event, copy.deepcopy(new))))
        self.changed.notify_all()
        return copy.deepcopy(new)


def merge(target: Any, patch: Any, *, strategic: bool = False) -> Any:
    """Return ``target`` merged with ``patch`` (RFC 7386); ``strategic`` merges ``conditions`` by type."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = copy.deepcopy(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif strategic and key == "conditions":
            byname = {entry["type"]: entry for entry in result.get(key, [])}
            for entry in value:
                byname[entry["type"]] = {**byname.get(entry["type"], {}), **entry}
            result[key] = [*byname.values()]
        else:
            result[key] = merge(result.get(key), value, strategic=strategic)
    return result


def _id(kind: Kind, namespace: str, name: str) -> _Id:
    return (kind.group, kind.plural, namespace if kind.namespaced else "", name)


def _merged(old: JsonObject, new: JsonObject, subresource: str) -> JsonObject:
    """Return what an update through ``subresource`` leaves: status alone, or everything but status."""
    if subresource == "status":
        return {**old, "status": new.get("status", {})}
    return {**new, "status": old["status"]} if "status" in old else new


def _selected(key: _Id, obj: JsonObject, kind: Kind, namespace: str, fields: str) -> bool:
    if key[:2] != (kind.group, kind.plural) or (namespace and key[2] != namespace):
        return False
    return all(_matches(obj, term) for term in terms(fields))


def _matches(obj: JsonObject, term: Term) -> bool:
    return ((objects.dig(obj, *term.field.split(".")) or "") == term.value) != term.negated


def passing_error(message: str = "try again") -> StatusError:
    """Return a failure that a later call does not meet: 503."""
    return StatusError(503, "ServiceUnavailable", message)
