"""delete and deletecollection: what happens to an object is decided in api/lifecycle/strategy.py, here it is done.

An object with finalizers, a namespace with content and a running pod are only marked; whoever holds them
lets go later, and the last one to do so removes them (``writing.change``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import orjson

from minik8s_modules.api.defaulting.conversion import stored_kind
from minik8s_modules.api.errors import BadRequest, Conflict, NotFound, RequestEntityTooLarge, Timeout
from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.lifecycle import strategy
from minik8s_modules.api.objects import JsonObject, uid
from minik8s_modules.apiserver.admission import admission, chain
from minik8s_modules.apiserver.http import incoming, presenting
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import DELETE_OPTIONS, Options
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.reads import reading
from minik8s_modules.apiserver.reads.reading import Listing
from minik8s_modules.apiserver.reads.selection import Selection
from minik8s_modules.apiserver.verbs.writing import CHANGE_ATTEMPTS, MAX_OBJECT_BYTES, made, shown
from minik8s_modules.store import readable
from minik8s_modules.store.cached import CachedObject
from minik8s_modules.store.encoding import without_revision
from minik8s_modules.store.errors import KeyMissing, StaleWrite, ValueTooLarge

COLLECTION_S = 60.0  # kube-apiserver's --request-timeout
_PROPAGATIONS = frozenset({None, "", "Background", "Foreground", "Orphan"})


class Deleted(NamedTuple):
    """The object as it stands after a delete request; ``gone`` when it left the store."""

    item: CachedObject
    gone: bool


def delete_options(body: JsonObject, arguments: Mapping[str, str]) -> JsonObject:
    """Return the DeleteOptions of a request: the body's, else those in the query.

    Raises:
        BadRequest: a value cannot be used.
    """
    wanted: JsonObject = dict(body)
    if "gracePeriodSeconds" not in wanted and "gracePeriodSeconds" in arguments:
        wanted["gracePeriodSeconds"] = _grace(arguments["gracePeriodSeconds"])
    if "propagationPolicy" not in wanted and "propagationPolicy" in arguments:
        wanted["propagationPolicy"] = arguments["propagationPolicy"]
    if wanted.get("kind", "DeleteOptions") != "DeleteOptions":
        raise BadRequest(f"the body of a delete request must be DeleteOptions, not {wanted['kind']}")
    if "orphanDependents" not in wanted and arguments.get("orphanDependents") in {"true", "false"}:
        wanted["orphanDependents"] = arguments["orphanDependents"] == "true"
    incoming.check_types(DELETE_OPTIONS, wanted)
    _check_propagation(wanted)
    return wanted


def _grace(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise BadRequest(f'gracePeriodSeconds: Invalid value: "{text}": must be a whole number') from error


def _check_propagation(wanted: JsonObject) -> None:
    policy: Any = wanted.get("propagationPolicy")
    if policy not in _PROPAGATIONS:
        raise BadRequest(
            f'propagationPolicy: Unsupported value: "{policy}": supported values: "Background", "Foreground", "Orphan"'
        )
    if policy and wanted.get("orphanDependents") is not None:
        raise BadRequest("propagationPolicy: orphanDependents and deletionPropagation cannot be both set")


def asks_dry_run(wanted: JsonObject) -> bool:
    """Return whether DeleteOptions ask for a dry run."""
    return bool(wanted.get("dryRun"))


def delete(
    backend: Backend,
    target: Target,
    wanted: JsonObject,
    options: Options,
    is_meant: Callable[[CachedObject], bool] | None = None,
) -> Deleted:
    """Delete one object as the DeleteOptions ``wanted`` say.

    Args:
        backend: what it is read from and deleted in.
        target: the object.
        wanted: the DeleteOptions.
        options: those of every write.
        is_meant: asked about the very version that goes; one that is not meant is not found.

    Raises:
        NotFound: there is no such object.
        Forbidden: it is a namespace the cluster cannot be without.
        Conflict: a precondition does not hold.
        Forbidden: it is one of the namespaces that stay.
    """
    admission.check_deletion(target)
    options = options._replace(dry_run=options.dry_run or asks_dry_run(wanted), deletion=wanted)
    kind = stored_kind(target.kind)
    item = backend.get(target)
    if options.requester is not None:
        presenting.prepare(target.kind, [item])  # what could not be shown to him afterwards is not deleted
    for attempt in range(CHANGE_ATTEMPTS):
        if is_meant is not None and not is_meant(item):
            raise NotFound(target.kind, target.name)
        try:
            strategy.check_preconditions(kind, orjson.loads(item.data), wanted)
        except Conflict:
            if attempt:
                raise
            item = backend.latest(target)  # the cache may not have seen the version the client names
            strategy.check_preconditions(kind, orjson.loads(item.data), wanted)
            continue
        decision = _decided(backend, target, item, options, wanted)
        if options.dry_run or decision.action == "wait":
            return Deleted(made(item.key, decision.obj, item.revision), gone=decision.action == "remove")
        try:
            return _carry_out(backend, kind, item, decision)
        except StaleWrite:
            item = backend.latest(target)
        except KeyMissing as error:
            raise NotFound(target.kind, target.name) from error
    raise Conflict(target.kind, target.name)


def _decided(
    backend: Backend, target: Target, item: CachedObject, options: Options, wanted: JsonObject
) -> strategy.Deletion:
    """Return what the deletion of ``item`` means, once it is admitted; what cannot be read counts as what can be."""

    def decide(obj: JsonObject) -> strategy.Deletion:
        chain.run("mutate", backend, "delete", target, None, obj, options)
        chain.run("validate", backend, "delete", target, None, obj, options)
        return strategy.graceful_deletion(stored_kind(target.kind), obj, wanted, backend.clock.now())

    stored = orjson.loads(item.data)
    try:
        return decide(stored)
    except readable.MISREAD:
        mended = readable.mended(target.kind, item)
        if mended is None:
            raise
    decision = decide(mended)
    changed = {field: value for field, value in decision.obj.items() if value is not mended.get(field)}
    return replace(decision, obj={**stored, **changed})


def _carry_out(backend: Backend, kind: Kind, item: CachedObject, decision: strategy.Deletion) -> Deleted:
    if decision.action == "remove":
        gone = made(item.key, decision.obj, backend.store.delete(item.key, item.revision))
        admission.removed(backend, kind, decision.obj)
        backend.wrote(gone, removed=True)
        return Deleted(gone, gone=True)
    try:
        revision = backend.store.update(item.key, without_revision(decision.obj), item.revision)
    except ValueTooLarge as error:
        raise RequestEntityTooLarge(MAX_OBJECT_BYTES) from error
    return Deleted(shown(backend, made(item.key, decision.obj, revision), alone=True), gone=False)


def delete_collection(
    backend: Backend, selection: Selection, arguments: Mapping[str, str], wanted: JsonObject, options: Options
) -> Listing:
    """Delete what a list with the same ``arguments`` has, a page of it with a limit; return that list.

    The list may be of any revision that the client names. So an object that was made later by the same name, or is no
    longer selected, stays: by its name alone, who may delete some objects could delete others. One that goes meanwhile
    is no error. What was deleted before the time is over stays deleted, as in kube-apiserver.

    Raises:
        Timeout: there was more than could be deleted in ``COLLECTION_S``.
    """
    listing = reading.list_objects(backend, selection, arguments)
    presenting.prepare(selection.kind, listing.items)
    until = backend.clock.monotonic() + COLLECTION_S
    deleted: list[CachedObject] = []
    for item in listing.items:
        if backend.clock.monotonic() >= until:
            raise Timeout(
                f"request did not complete within {COLLECTION_S:g} s: {len(deleted)} of {len(listing.items)} "
                f"{selection.kind.plural} were deleted; ask again for the rest, or use limit and continue"
            )
        target = _target_of(selection.kind, item.key)
        if admission.stays(target):
            continue
        try:
            deleted.append(delete(backend, target, wanted, options, partial(_is_still, selection, item)).item)
        except NotFound:
            continue
    return listing._replace(items=deleted)


def _is_still(selection: Selection, listed: CachedObject, item: CachedObject) -> bool:
    """Return whether ``item`` is the object that was listed, and still selected."""
    if item.revision == listed.revision:
        return True
    return uid(item.peek()) == uid(listed.peek()) and selection.matches(item, keep=False)


def _target_of(kind: Kind, key: str) -> Target:
    namespace, _, name = key.removeprefix(kind.prefix).rpartition("/")
    return Target(kind, namespace, name)
