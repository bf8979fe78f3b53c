"""Deleting a namespace: its content first, then the namespace itself.

``decide_namespace`` looks at what is left and says the next steps; the shell takes them and looks again when something
of it has gone, until the API has let the namespace go. Pods go first, alone: what they use stays until they have ended
(Kubernetes' ordered namespace deletion, KEP-5080). Conditions and their words are Kubernetes'
(pkg/controller/namespace/deletion).
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Conflict, NotFound, StatusError
from minik8s_modules.api.kinds import KINDS, NAMESPACE, POD, Kind
from minik8s_modules.api.lifecycle.strategy import namespace_finalizers
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.base.clock import Clock, rfc3339
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.client.informer import PAGE, Informer
from minik8s_modules.client.interface import Api
from minik8s_modules.client.silences import Silences
from minik8s_modules.controllers.cleanup.extensions import ODD, Extended, checked
from minik8s_modules.runtime.informers import Informers, only_identity
from minik8s_modules.runtime.shell import Shell

log = logging.getLogger(__name__)

FINALIZER = "kubernetes"
# Looking costs a list a kind. Where copies tell what goes, the next look waits until half of it has gone, so that a
# thousand Pods that go one by one are not listed a thousand times; time only helps with what copies do not show, Events
LOOK_AGAIN_S, LOOK_AGAIN_WATCHED_S = 1.0, 30.0
# what goes in one moment is looked at together
_TOGETHER_S = 0.05
# how long the list of custom kinds is waited for
SYNC_S = 10.0
# what one sync does at most before it gives its thread back: delete pods, look, delete the rest, look, finalize
_ROUNDS = 4


class CopiesBehind(TemporaryError):
    """What there is in a namespace cannot be known yet."""


class DeleteContent(NamedTuple):
    """Delete all objects of ``kind`` in the namespace."""

    kind: Kind


class SetConditions(NamedTuple):
    """Write these conditions of the namespace."""

    conditions: tuple[JsonObject, ...]


class Finalize(NamedTuple):
    """Take our finalizer away: nothing is left."""


Step = DeleteContent | SetConditions | Finalize
Content = Mapping[Kind, Sequence[JsonObject]]


def namespaced_kinds() -> tuple[Kind, ...]:
    """Return the kinds whose objects live in a namespace of their own, pods first."""
    kinds = [kind for kind in KINDS.all() if kind.namespaced and kind.stored and kind.storage is None]
    return tuple(sorted(kinds, key=lambda kind: kind != POD))


def watched_kinds() -> tuple[Kind, ...]:
    """Return the kinds whose deletions bring a namespace's end nearer; Events are too many, and go at once."""
    return tuple(kind for kind in namespaced_kinds() if "watch" in kind.verbs and kind.kind != "Event")


def decide_namespace(
    namespace: JsonObject,
    content: Content,
    failures: Mapping[str, str],
    now: str,
    unknown: Mapping[str, str] | None = None,
) -> tuple[Step, ...]:
    """Return the next steps for ``namespace``; none when it is not being deleted or there is only to wait.

    Args:
        namespace: the object.
        content: every object in it, by kind; kinds without objects may be left out.
        failures: resource to message, of deletions that were refused lately; told while such content is left.
        now: RFC 3339, for conditions that change.
        unknown: groups and versions of which nobody knows what they have, with the reason; they may have something.
    """
    if not objects.is_deleting(namespace) or FINALIZER not in namespace_finalizers(namespace):
        return ()
    left = {kind: found for kind, found in content.items() if found}
    if not left and not unknown:
        return (Finalize(),)
    to_delete = [kind for kind, found in left.items() if not all(map(objects.is_deleting, found))]
    if POD in left:
        to_delete = [kind for kind in to_delete if kind == POD]
    steps: list[Step] = [DeleteContent(kind) for kind in to_delete]
    conditions = changed_conditions(namespace, wanted_conditions(left, failures, unknown), now)
    if conditions:
        steps.append(SetConditions(conditions))
    return tuple(steps)


def wanted_conditions(
    left: Content, failures: Mapping[str, str], unknown: Mapping[str, str] | None = None
) -> list[tuple[str, bool, str, str]]:
    """Return (type, status, reason, message) of the five conditions Kubernetes keeps."""
    unknown = unknown or {}
    found = ", ".join(f"{version}: {why}" for version, why in sorted(unknown.items()))
    incomplete = f"unable to retrieve the complete list of server APIs: {found}"
    failed_kinds = {kind.resource: failures[kind.resource] for kind in left if kind.resource in failures}
    failed = "; ".join(f"{resource}: {message}" for resource, message in sorted(failed_kinds.items()))
    remaining = ", ".join(f"{kind.resource} has {len(found)} resource instances" for kind, found in left.items())
    counts = Counter(finalizer for found in left.values() for obj in found for finalizer in objects.finalizers(obj))
    finalizers = ", ".join(f"{name} in {count} resource instances" for name, count in sorted(counts.items()))
    return [
        (
            "NamespaceDeletionDiscoveryFailure",
            bool(unknown),
            "DiscoveryFailed" if unknown else "ResourcesDiscovered",
            f"Discovery failed for some groups, {len(unknown)} failing: {incomplete}"
            if unknown
            else "All resources successfully discovered",
        ),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            False,
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        (
            "NamespaceDeletionContentFailure",
            bool(failed),
            "ContentDeletionFailed" if failed else "ContentDeleted",
            f"Failed to delete all resource types, {len(failed_kinds)} remaining: {failed}"
            if failed
            else "All content successfully deleted, may be waiting on finalization",
        ),
        (
            "NamespaceContentRemaining",
            bool(remaining),
            "SomeResourcesRemain" if remaining else "ContentRemoved",
            f"Some resources are remaining: {remaining}" if remaining else "All content successfully removed",
        ),
        (
            "NamespaceFinalizersRemaining",
            bool(finalizers),
            "SomeFinalizersRemain" if finalizers else "ContentHasNoFinalizers",
            f"Some content in the namespace has finalizers remaining: {finalizers}"
            if finalizers
            else "All content-preserving finalizers finished",
        ),
    ]


def changed_conditions(
    namespace: JsonObject, wanted: Sequence[tuple[str, bool, str, str]], now: str
) -> tuple[JsonObject, ...]:
    """Return the conditions that are not yet as ``wanted``; a transition time changes only with its status."""
    changed = []
    for kind, holds, reason, message in wanted:
        known = objects.condition(namespace, kind) or {}
        status = "True" if holds else "False"
        condition = {"type": kind, "status": status, "reason": reason, "message": message}
        if {key: known.get(key) for key in condition} != condition:
            since = known.get("lastTransitionTime") if known.get("status") == status else None
            changed.append({**condition, "lastTransitionTime": since or now})
    return tuple(changed)


class NamespaceController(Shell[Key]):
    """Empties and finalizes namespaces that are being deleted.

    Args:
        client: an ``ApiClient``.
        clock: of conditions and waits.
        copies: tell when something of a namespace goes; without any it is looked at every second.
        informers: tell which custom kinds there are; without them there are none.
        extensions: tells what is kept by extension API servers; without it nothing is.
    """

    def __init__(
        self,
        client: Api,
        clock: Clock | None = None,
        copies: Iterable[Informer] = (),
        informers: Informers | None = None,
        extensions: Callable[[], Extended] | None = None,
    ) -> None:
        self._client = client
        self._extensions = extensions
        self._extended = False  # nothing here tells when an object of an extension goes
        self._shared = informers
        super().__init__(client, "namespaces", clock, workers=2)
        self._silences = Silences(self._clock)
        self._failures: dict[Key, dict[str, str]] = {}
        self._counting = threading.Lock()
        self._gone: Counter[Key] = Counter()  # objects of each namespace since it was last looked at
        self._awaited: dict[Key, int] = {}  # how many of them are worth another look
        self._namespaces = self.follow(NAMESPACE, self._on_namespace)
        self._look_again_s = LOOK_AGAIN_S
        for copy in copies:
            self._look_again_s = LOOK_AGAIN_WATCHED_S
            copy.add_handler(self._on_content)
        if informers is not None:
            informers.custom.follow(self._on_custom)

    def sync(self, key: Key) -> None:
        """Take all steps that are possible now for one namespace, and look again while something is left."""
        try:
            for _ in range(_ROUNDS):
                steps = self._round(key)
                if not any(isinstance(step, DeleteContent | Finalize) for step in steps):
                    break
        except NotFound:
            self._failures.pop(key, None)
            with self._counting:
                self._awaited.pop(key, None)
                del self._gone[key]
            return
        failed = bool(self._failures.get(key)) or self._extended
        self._queue.add_after(key, LOOK_AGAIN_S if failed else self._look_again_s)

    def _round(self, key: Key) -> tuple[Step, ...]:
        namespace = self._client.get(NAMESPACE, key.name)
        with self._counting:
            self._gone[key] = 0
        content = self._content(key.name)
        self._await(key, content)
        failures, now = self._failures.get(key, {}), rfc3339(self._clock.now())
        own: tuple[Step, ...] = ()
        unknown: Mapping[str, str] = {}
        if self._extensions is not None:  # what is known goes first, whatever extensions say
            steps = decide_namespace(namespace, content, failures, now, {"": "no extension has been asked yet"})
            own = tuple(step for step in steps if isinstance(step, DeleteContent))
            self._take_all(key, namespace, own)
            others, unknown = self._extended_content(key.name)
            self._extended = bool(others or unknown)
            content |= others
        steps = decide_namespace(namespace, content, failures, now, unknown)
        self._take_all(key, namespace, [step for step in steps if step not in own])
        return steps

    def _extended_content(self, namespace: str) -> tuple[dict[Kind, list[JsonObject]], Mapping[str, str]]:
        """Return what extensions keep in a namespace, and of whom nobody knows it, with the reason."""
        extended = self._extensions() if self._extensions is not None else Extended((), {})
        content, unknown = {}, {**extended.unknown}
        for kind in (each for each in extended.kinds if each.namespaced):
            try:
                with self._silences.asking(kind.api_version, kind.resource):
                    content[kind] = checked(self._custom_content(kind, namespace))
            except (StatusError, TemporaryError, *ODD) as error:
                unknown.setdefault(kind.api_version, f"{kind.plural} cannot be listed: {error}")
        return content, unknown

    def _list(self, kind: Kind, namespace: str) -> list[JsonObject]:
        return self._client.list(kind, namespace, limit=PAGE, keep=only_identity).items

    def _content(self, namespace: str) -> dict[Kind, list[JsonObject]]:
        found = {kind: self._list(kind, namespace) for kind in namespaced_kinds()}
        return found | {kind: self._custom_content(kind, namespace) for kind in self._custom_kinds() if kind.namespaced}

    def _await(self, key: Key, content: Content) -> None:
        """Have the next look wait until half of what goes next has gone: the Pods, then the rest that copies show."""
        pods = len(content.get(POD, ()))
        rest = sum(len(found) for kind, found in content.items() if "watch" in kind.verbs and kind.kind != "Event")
        with self._counting:
            self._awaited[key] = max(1, ((pods or rest) + 1) // 2)
            again = self._gone[key] >= self._awaited[key]
        if again:
            self._queue.add_after(key, _TOGETHER_S)

    def _custom_kinds(self) -> tuple[Kind, ...]:
        if self._shared is None:
            return ()
        if not self._shared.custom.informer.wait_synced(SYNC_S):
            raise CopiesBehind("which custom kinds there are is not known yet")
        return self._shared.custom.all()

    def _custom_content(self, kind: Kind, namespace: str) -> list[JsonObject]:
        try:
            return self._list(kind, namespace)
        except NotFound:  # its definition has just gone, and all its objects with it
            return []

    def _take_all(self, key: Key, namespace: JsonObject, steps: Iterable[Step]) -> None:
        for step in steps:
            self._take(key, namespace, step)

    def _take(self, key: Key, namespace: JsonObject, step: Step) -> None:
        match step:
            case DeleteContent(kind):
                self._delete(key, kind)
            case SetConditions(conditions):
                self._patch_conditions(key, namespace, conditions)
            case Finalize():
                self._finalize(key, namespace)

    def _delete(self, key: Key, kind: Kind) -> None:
        failures = self._failures.setdefault(key, {})
        try:
            self._delete_all(kind, key.name)
        except NotFound:
            failures.pop(kind.resource, None)
        except (StatusError, *ODD) as error:
            log.warning("namespace %s: %s were not deleted: %s", key.name, kind.resource, error)
            failures[kind.resource] = str(error)
        else:
            failures.pop(kind.resource, None)

    def _delete_all(self, kind: Kind, namespace: str) -> None:
        if "deletecollection" in kind.verbs:
            self._client.delete_collection(kind, namespace)
            return
        for each in self._list(kind, namespace):
            self._client.delete(kind, objects.name(each), namespace)

    def _patch_conditions(self, key: Key, namespace: JsonObject, conditions: Sequence[JsonObject]) -> None:
        body = {"metadata": {"uid": objects.uid(namespace)}, "status": {"conditions": [*conditions]}}
        try:
            self._client.patch(NAMESPACE, key.name, "", body, patch_type="strategic", subresource="status")
        except (Conflict, NotFound) as error:
            log.debug("namespace %s has changed: %s", key.name, error)

    def _finalize(self, key: Key, namespace: JsonObject) -> None:
        rest = [each for each in namespace_finalizers(namespace) if each != FINALIZER]
        body = {**namespace, "spec": {"finalizers": rest}}
        try:
            self._client.update(NAMESPACE, body, subresource="finalize")
        except (Conflict, NotFound) as error:
            log.debug("namespace %s has changed: %s", key.name, error)
        else:
            log.info("namespace %s is empty and finalized", key.name)

    def _on_custom(self, kind: Kind, present: bool) -> None:  # noqa: FBT001 - a follower's signature
        if present and kind.namespaced and self._shared is not None:
            self._shared.metadata_of(kind).add_handler(self._on_content)

    def _on_content(self, old: JsonObject | None, new: JsonObject | None) -> None:
        if old is None or new is not None:
            return
        namespace = self._namespaces.get("", objects.namespace(old))
        if namespace is None or not objects.is_deleting(namespace):
            return
        key = objects.key(namespace)
        with self._counting:
            self._gone[key] += 1
            again = self._gone[key] >= self._awaited.get(key, 1)
        if again:
            self._queue.add_after(key, _TOGETHER_S)

    def _on_namespace(self, old: JsonObject | None, new: JsonObject | None) -> None:
        if new is None or not objects.is_deleting(new):
            return
        # conditions, which are our own, are no reason to look again
        if old is None or not objects.is_deleting(old) or objects.spec(old) != objects.spec(new):
            self._queue.add(objects.key(new))
