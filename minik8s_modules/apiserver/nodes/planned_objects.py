"""The API objects of a plan: each taken as apply or delete would take it, in the order given; nothing is stored.

A row is ``{"action": "create|update|delete|refuse", "apiVersion", "kind", "namespace", "name", "uid",
"resourceVersion", "before", "after", "message", "because"}``: objects as a person is shown them (shown.py), uid and
resourceVersion of the one that stands there now. ``nameUnknown`` says that generateName makes the name, ``because``
names the object whose deletion takes this one along.
"""

from __future__ import annotations

import dataclasses
import itertools
import uuid
from collections.abc import Iterator
from typing import NamedTuple

from minik8s_modules.api import objects, size_limits
from minik8s_modules.api.access import api_services
from minik8s_modules.api.custom import conditions
from minik8s_modules.api.custom.kinds import kinds_of
from minik8s_modules.api.defaulting.conversion import from_storage, stored_kind
from minik8s_modules.api.errors import BadRequest, NotFound, StatusError
from minik8s_modules.api.kind import Registry
from minik8s_modules.api.kinds import API_SERVICE, CUSTOM_RESOURCE_DEFINITION, EVENT, KINDS, NAMESPACE, POD, Kind
from minik8s_modules.api.lifecycle import strategy
from minik8s_modules.api.merging.apply import annotated, next_object
from minik8s_modules.api.merging.shown import pair_shown
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.admission import chain
from minik8s_modules.apiserver.http import incoming, presenting
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.nodes.plan_view import about
from minik8s_modules.apiserver.nodes.planned_cache import PlannedCache
from minik8s_modules.apiserver.verbs import writing
from minik8s_modules.apiserver.webhooks.conversions import converter_of
from minik8s_modules.base.clock import rfc3339
from minik8s_modules.store.cached import CachedObject

_RETRY = frozenset({429})
_SERVERS_FAULT = 500
# pods are told in their order, on their nodes; events are no content that anybody would miss
_WITHOUT_PLAN = frozenset({EVENT, POD})


class PlannedObject(NamedTuple):
    """One object's part of a plan; ``operation`` is what reconcilers are told, None where nothing of it changes."""

    row: JsonObject | None = None
    operation: JsonObject | None = None
    message: JsonObject | None = None


class PlannedObjects:
    """Plans one object after the other; ``backend`` then reads as if those before had been applied."""

    def __init__(self, backend: Backend, options: Options) -> None:
        self._cache = PlannedCache(backend.cache)
        numbers = itertools.count(1)
        # a plan that is made again has the same names and uids
        self.backend = dataclasses.replace(
            backend,
            cache=self._cache,
            new_suffix=lambda: f"{next(numbers):x>5}",
            new_uid=lambda: str(uuid.UUID(int=next(numbers))),
        )
        self.kinds = backend.kinds.registry
        self._options = options._replace(dry_run=True)
        self._gone: list[tuple[Kind, JsonObject]] = []

    def applied(self, obj: JsonObject) -> PlannedObject:
        """Return what applying ``obj`` comes to.

        Raises:
            StatusError: it cannot be read, the requester may not do it, or the server is in no state to say.
        """
        target = self._target_of(obj)
        size_limits.check(obj, size_limits.values_allowed(target.kind.id))
        readable = incoming.readable(target.kind, obj, self._options, incoming.dialect_around(self.backend, target))
        item = self._cache.get(target.kind.key(target.namespace, target.name)) if target.name else None
        self._check("create" if item is None else "patch", target._replace(name="") if item is None else target)
        try:
            step = self._created(target, readable) if item is None else self._changed(target, item, readable)
            if target.kind == CUSTOM_RESOURCE_DEFINITION:
                self._define(target)
            return _for_reconcilers(target, step)
        except StatusError as error:
            return _refused(target, self._cache.stored(item.key) if item else None, error)

    def deleted(self, obj: JsonObject) -> PlannedObject:
        """Return what deleting the object comes to; raises as ``applied``."""
        target = self._target_of(obj)
        self._check("delete", target)
        try:
            item = self.backend.get(target)
        except NotFound as error:  # who may delete it is told so by deleting, too
            return PlannedObject(message={"text": error.message, "about": []})
        try:
            chain.run("mutate", self.backend, "delete", target, None, item.object, self._options)
            chain.run("validate", self.backend, "delete", target, None, item.object, self._options)
            presenting.prepare(target.kind, [item])
        except StatusError as error:
            return _refused(target, self._cache.stored(item.key), error)
        decision = strategy.graceful_deletion(stored_kind(target.kind), item.object, {}, self.backend.clock.now())
        operation = "delete" if decision.action == "remove" else "update"
        found = from_storage(target.kind, decision.obj)
        held = objects.finalizers(decision.obj)
        self._gone.append((target.kind, item.object))
        if decision.action == "remove":
            self._cache.plan(item.key, None)
        row = _row(
            "delete",
            target,
            self._cache.stored(item.key),
            pair_shown(target.kind, None, from_storage(target.kind, item.object))[1],
        )
        row |= {"message": f"it goes when its finalizers are done: {', '.join(held)}"} if held else {}
        return _for_reconcilers(target, PlannedObject(row, {"operation": operation, "object": found}))

    def _target_of(self, obj: JsonObject) -> Target:
        try:
            return _target_of(obj, self.kinds)
        except BadRequest as error:
            version = str(obj.get("apiVersion"))
            group, _, short = version.rpartition("/")
            found = self._cache.get(API_SERVICE.key("", f"{short}.{group}"))
            if found is None or api_services.remote(found.object) is None:
                raise
            text = f"an extension API server answers {version}: what it makes of a {obj.get('kind')} cannot be planned"
            raise BadRequest(text) from error

    def _define(self, target: Target) -> None:
        """Know the kinds of a planned definition: objects of it may follow in the plan."""
        items = self._cache.list(CUSTOM_RESOURCE_DEFINITION.prefix).items
        planned = [each.object for each in items]
        found = self._cache.get(target.kind.key("", target.name))
        if found is None:
            return
        having = conditions.taken(found.object, planned, KINDS.all())
        now = rfc3339(self.backend.clock.now())
        state = conditions.decide(found.object, having, now, served=False)
        convert = converter_of(self.backend.webhooks, self.backend.cache, found.object)
        kinds = kinds_of({**found.object, "status": state}, convert=convert)
        known = [
            kind
            for kind in self.kinds.all()
            if kind.custom is not None and kind.prefix not in {k.prefix for k in kinds}
        ]
        self.kinds = KINDS.with_custom([*known, *kinds])

    def taken_along(self) -> Iterator[JsonObject]:
        """Yield the rows of what goes because of the deletions: the content of namespaces, and what is owned."""
        owners = {objects.uid(obj) for _, obj in self._gone}
        waiting = [*self._gone]
        while waiting:
            kind, owner = waiting.pop(0)
            for below, item in self._below(kind, owner):
                if objects.uid(item.object) in owners:
                    continue
                owners.add(objects.uid(item.object))
                waiting.append((below, item.object))
                place = Target(below, objects.namespace(item.object), objects.name(item.object))
                row = _row("delete", place, item, pair_shown(below, None, from_storage(below, item.object))[1])
                because = f"{kind.kind}/{objects.name(owner)}"
                subjects = [*row["about"], *about(kind, objects.namespace(owner), objects.name(owner))]
                yield row | {"because": because, "about": subjects}

    def _below(self, kind: Kind, owner: JsonObject) -> Iterator[tuple[Kind, CachedObject]]:
        """Yield what goes with an object that goes."""
        space = objects.name(owner) if kind is NAMESPACE else objects.namespace(owner)
        if not space:
            return
        for below in self.kinds.all():
            if not below.stored or not below.namespaced or below in _WITHOUT_PLAN or stored_kind(below) is not below:
                continue
            for item in self._cache.list(below.key(space, "")).items:
                owners = objects.owner_references(item.object)
                if kind is NAMESPACE or {one.get("uid") for one in owners} == {objects.uid(owner)}:
                    yield below, item

    def _check(self, verb: str, target: Target) -> None:
        """Raise Forbidden where the requester may not do what is planned: a plan is no way around rights."""
        if self._options.requester is not None:
            access, user = self._options.requester.access, self._options.requester.user
            access.check(user, target.attributes(verb), target.kind)

    def _created(self, target: Target, obj: JsonObject) -> PlannedObject:
        collection = Target(target.kind, target.namespace)
        strategy.refuse_revision(obj)  # what is foretold is no dry run, which does not look at it
        made = writing.create(self.backend, collection, annotated(obj), self._options)
        # a later object of the plan may change it, which needs a revision
        self._cache.plan(made.key, writing.made(made.key, made.object, max(self._cache.revision, 1)))
        found = from_storage(target.kind, made.object)
        _, after = pair_shown(target.kind, None, found)
        row = _row("create", target._replace(name=objects.name(found)), None, None, after)
        row |= {} if target.name else {"nameUnknown": True}
        return PlannedObject(row, {"operation": "create", "object": found})

    def _changed(self, target: Target, item: CachedObject, obj: JsonObject) -> PlannedObject:
        made = writing.change(self.backend, target, lambda old: next_object(target.kind, old, obj), self._options)
        if made.data != item.data:
            self._cache.plan(item.key, made)
        found = from_storage(target.kind, made.object)
        before, after = pair_shown(target.kind, from_storage(target.kind, item.object), found)
        if before == after:  # or only the annotation differs that notes what was applied last
            return PlannedObject()
        return PlannedObject(
            _row("update", target, self._cache.stored(item.key), before, after),
            {"operation": "update", "object": found},
        )


def _for_reconcilers(target: Target, step: PlannedObject) -> PlannedObject:
    """Return a step without what reconcilers need not know: no node has anything of a definition.

    Of custom kinds they look at those whose deciders a package offers (``controllers/simulation/extended.py``).
    """
    return step._replace(operation=None) if target.kind == CUSTOM_RESOURCE_DEFINITION else step


def _target_of(obj: JsonObject, kinds: Registry) -> Target:
    kind = kinds.by_api_version(str(obj.get("apiVersion") or ""), str(obj.get("kind") or ""))
    if kind is None or not kind.stored:
        raise BadRequest(f'no matches for kind "{obj.get("kind")}" in version "{obj.get("apiVersion")}"')
    if not isinstance(obj.get("metadata"), dict):
        raise BadRequest("metadata must be an object")
    space = (objects.namespace(obj) or "default") if kind.namespaced else ""
    return Target(kind, space, objects.name(obj))


def _refused(target: Target, item: CachedObject | None, error: StatusError) -> PlannedObject:
    """Return the refusal of one object, which says no more than writing it would; what is to be tried again raises."""
    if error.code >= _SERVERS_FAULT or error.code in _RETRY:
        raise error
    return PlannedObject(_row("refuse", target, item) | {"message": error.message, "about": []})


def _row(
    action: str,
    target: Target,
    item: CachedObject | None,
    before: JsonObject | None = None,
    after: JsonObject | None = None,
) -> JsonObject:
    kind = target.kind
    row: JsonObject = {"action": action, "apiVersion": kind.api_version, "kind": kind.kind}
    row |= {"namespace": target.namespace, "name": target.name}
    if item is not None:
        row |= {"uid": objects.uid(item.object), "resourceVersion": str(item.revision)}
    row |= {"before": before} if before is not None else {}
    row |= {"after": after} if after is not None else {}
    return row | {"about": about(kind, target.namespace, target.name)}
