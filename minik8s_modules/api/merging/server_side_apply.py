"""Server-side apply: what an applied configuration makes of the live object, and who owns what after it.

An applier owns exactly what its last configuration says. What it applied before and says no more is removed, unless
another manager owns it, too. What it sets to another value than another manager did is a conflict, unless forced; equal
values are shared. Objects that nobody tracked yet belong to ``before-first-apply``.

``kubectl``, and only it, comes from client-side apply: conflicts about fields that its last-applied annotation says and
that still stand are its own, and the annotation is kept up to date.

Source: structured-merge-diff ``merge/update.go`` (``Apply``, ``prune``), apimachinery ``managedfields/internal``.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

import orjson

from minik8s_modules.api import objects
from minik8s_modules.api.defaulting.conversion import from_storage, stored_kind, to_storage
from minik8s_modules.api.errors import BadRequest, StatusError
from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.merging import fieldsets
from minik8s_modules.api.merging.apply import LAST_APPLIED
from minik8s_modules.api.merging.fieldsets import Fields, Path
from minik8s_modules.api.merging.managed_fields import (
    BEFORE_FIRST_APPLY,
    Entry,
    Identity,
    Managers,
    Versions,
    Writer,
    counted,
    encode,
    identity,
    kind_at,
    managers_of,
    plain,
    taken,
    updated,
    without_servers,
)
from minik8s_modules.api.merging.typed_merge import merge
from minik8s_modules.api.objects import JsonObject, metadata, uid
from minik8s_modules.api.schema.shapes import Shape, kind_shape
from minik8s_modules.api.validation.meta import ANNOTATIONS_LIMIT_BYTES
from minik8s_modules.base.clock import rfc3339

KUBECTL = "kubectl"


class Applier(NamedTuple):
    """Who applies, through which subresource, and whether it takes over what others own."""

    name: str
    force: bool = False
    subresource: str = ""


class _Conflict(NamedTuple):
    manager: Identity
    version: str
    path: Path


def apply(kind: Kind, live: JsonObject, config: JsonObject, applier: Applier, now: datetime) -> JsonObject:
    """Return the live object after ``config`` was applied, with its managedFields; not yet defaulted.

    Args:
        kind: of both; the version of the request.
        live: the present object, {} when there is none. Parts of it and of ``config`` go into the result.
        config: what the applier wants; of right JSON types, without unknown fields.
        applier: who applies.
        now: the time of the applier's entry, if that or the object changes.

    Raises:
        BadRequest: ``config`` has managedFields, or items of lists that cannot be told apart.
        StatusError: 409: others own fields that ``config`` changes, and it is not forced.
    """
    if metadata(config).get("managedFields") is not None:
        raise BadRequest("metadata.managedFields must be nil")
    present = _Live(kind, plain(live), _known(kind, live, now))
    result = _attempt(present, config, applier, now)
    if applier.name == KUBECTL and not applier.subresource and objects.annotations(result).get(LAST_APPLIED):
        _remember(result, config)
    return result


class _Live(NamedTuple):
    """The object before: without its managedFields, and its managers."""

    kind: Kind
    obj: JsonObject
    managers: Managers


def _known(kind: Kind, live: JsonObject, now: datetime) -> Managers:
    # written before anybody was noted: all of it gets a manager of its own, so that what an apply changes is a
    # conflict
    managers = managers_of(live)
    if managers or not uid(live):
        return managers
    versions = Versions(stored_kind(kind), {}, _kept(kind, plain(live)), "")
    return updated({}, versions, kind.api_version, Writer(BEFORE_FIRST_APPLY), now)


def _kept(kind: Kind, obj: JsonObject) -> JsonObject:
    return to_storage(kind, obj) if obj else {}


def _attempt(live: _Live, config: JsonObject, applier: Applier, now: datetime) -> JsonObject:
    kind, me = live.kind, identity(Writer(applier.name, applier.subresource), "Apply", live.kind.api_version)
    last = live.managers.get(me)
    merged = _merged(live, config)
    said = counted(kind, fieldsets.of_object(kind_shape(kind), config), applier.subresource)
    managers = {**live.managers, me: Entry(kind.api_version, said, last.time if last else "")}
    merged = _pruned(kind, merged, managers, last)
    versions = Versions(stored_kind(kind), _kept(kind, live.obj), _kept(kind, merged), applier.subresource)
    others = {found: entry for found, entry in managers.items() if found != me}
    conflicts = _conflicts(others, versions)
    if conflicts and not applier.force:
        _refuse(live, conflicts, applier)
    left = taken(others, versions)
    mine = fieldsets.sort(without_servers(said))
    if mine:
        unchanged = last is not None and last.fields == mine and last.api_version == kind.api_version
        # the same words again are no write: a new time alone would make each apply a change
        time = last.time if last is not None and unchanged and merged == live.obj else rfc3339(now)
        left[me] = Entry(kind.api_version, mine, time)
    meta = {**metadata(merged), "managedFields": encode(left)}
    if not left:
        del meta["managedFields"]
    return {**merged, "metadata": meta}


def _merged(live: _Live, config: JsonObject) -> JsonObject:
    try:
        result: JsonObject = merge(kind_shape(live.kind), live.obj, config)
    except ValueError as error:
        meta, kind = metadata(config), live.kind
        named = f"{meta.get('namespace', '')}/{meta.get('name', '')}"
        group = f"{kind.group}/{kind.version}"
        manager = f"failed to create typed patch object ({named}; {group}, Kind={kind.kind}): {error}"
        raise BadRequest(manager) from error
    return result


# --- removal --------------------------------------------------------------------------------------


def _pruned(kind: Kind, merged: JsonObject, managers: Managers, last: Entry | None) -> JsonObject:
    """Return ``merged`` without what the applier said last and nobody says now.

    What was applied in another version is removed in that version: its sets name nothing in this one. Then what others
    own is put back, in each version they wrote in.
    """
    before = _kind_at(kind, last.api_version) if last else None
    if last is None or before is None:
        return merged
    owned = _owned(managers)
    # the usual case, and cheap: nothing that was said before is left out now
    if last.api_version == kind.api_version and not fieldsets.difference(last.fields, owned[kind.api_version]):
        return merged
    shape = kind_shape(before)
    whole, said = _shown(merged, kind, before), fieldsets.with_named(shape, last.fields)
    bare = fieldsets.removed(shape, whole, said) or {}
    # its own version first, as upstream has it: what was pruned may be needed to convert to the others
    for version in sorted(owned, key=lambda it: it != last.api_version):
        at = _kind_at(kind, version)
        if at is not None:
            bare = _shown(
                _put_back(at, _shown(whole, before, at), _shown(bare, before, at), owned[version]), at, before
            )
    everything, kept = _mentioned(shape, whole), _mentioned(shape, bare)
    gone = fieldsets.intersection(fieldsets.difference(everything, kept), said)
    return _shown(fieldsets.removed(shape, whole, gone) or {}, before, kind) if gone else merged


def _owned(managers: Managers) -> dict[str, Fields]:
    """Return what all managers of each version say."""
    owned: dict[str, Fields] = {}
    for entry in managers.values():
        owned[entry.api_version] = fieldsets.union(owned.get(entry.api_version, {}), entry.fields)
    return owned


def _put_back(kind: Kind, whole: JsonObject, bare: JsonObject, owned: Fields) -> JsonObject:
    """Return ``bare`` with what ``owned`` names in ``whole``."""
    shape = kind_shape(kind)
    kept = fieldsets.union(_mentioned(shape, bare), fieldsets.with_named(shape, owned))
    result: JsonObject = fieldsets.removed(shape, whole, fieldsets.difference(_mentioned(shape, whole), kept)) or {}
    return result


def _mentioned(shape: Shape, obj: JsonObject) -> Fields:
    return fieldsets.of_object(shape, obj, named=True)


def _kind_at(kind: Kind, version: str) -> Kind | None:
    return kind if version == kind.api_version else kind_at(stored_kind(kind), version)


def _shown(obj: JsonObject, kind: Kind, other: Kind) -> JsonObject:
    """Return an object of ``kind`` in the form of ``other``, another version of it."""
    return obj if other is kind or not obj else from_storage(other, to_storage(kind, obj))


# --- conflicts ------------------------------------------------------------------------------------


def _conflicts(others: Managers, versions: Versions) -> list[_Conflict]:
    found = []
    for manager, entry in sorted(others.items()):
        change = versions.at(entry.api_version)
        if change:
            theirs = fieldsets.intersection(entry.fields, change.written)
            found += [_Conflict(manager, entry.api_version, path) for path in fieldsets.paths(theirs)]
    return found


def _refuse(live: _Live, conflicts: list[_Conflict], applier: Applier) -> None:
    """Raise 409, unless all the conflicts are with kubectl's own client-side past."""
    if applier.name == KUBECTL and not applier.subresource:
        own = _from_last_applied(live)
        conflicts = [conflict for conflict in conflicts if not fieldsets.contains(own, conflict.path)]
    if conflicts:
        causes = [
            {
                "reason": "FieldManagerConflict",
                "message": f"conflict with {_manager(conflict)}",
                "field": fieldsets.shown(conflict.path),
            }
            for conflict in conflicts
        ]
        raise StatusError(409, "Conflict", _message(conflicts), {"causes": causes})


def _manager(conflict: _Conflict) -> str:
    text = orjson.dumps(conflict.manager.manager).decode()
    if conflict.manager.subresource:
        text += f' with subresource "{conflict.manager.subresource}"'
    return f"{text} using {conflict.version}" if conflict.manager.operation == "Update" else text


def _message(conflicts: list[_Conflict]) -> str:
    if len(conflicts) == 1:
        only = conflicts[0]
        return f"Apply failed with 1 conflict: conflict with {_manager(only)}: {fieldsets.shown(only.path)}"
    lines, manager = [], ""
    for conflict in conflicts:
        if _manager(conflict) != manager:
            manager = _manager(conflict)
            lines.append(f"conflicts with {manager}:")
        lines.append(f"- {fieldsets.shown(conflict.path)}")
    return f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)


# --- kubectl's client-side past -------------------------------------------------------------------


def _from_last_applied(live: _Live) -> Fields:
    """Return the fields that the last-applied annotation says and that still stand so."""
    try:
        last = orjson.loads(objects.annotations(live.obj).get(LAST_APPLIED, ""))
        if last["apiVersion"] != live.kind.api_version:
            return {}
        shape = kind_shape(live.kind)
        change = fieldsets.compare(shape, last, live.obj)
        said = fieldsets.of_object(shape, last)
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError):
        return {}  # the annotation is a user's text: no promise
    return fieldsets.difference(fieldsets.difference(said, change.written), change.removed)


def _remember(obj: JsonObject, config: JsonObject) -> None:
    """Write ``config`` into the last-applied annotation of ``obj``, in place, if it fits."""
    meta = metadata(config)
    said = {key: value for key, value in (meta.get("annotations") or {}).items() if key != LAST_APPLIED}
    last = {**config, "metadata": {**meta, "annotations": said}}
    text = orjson.dumps(last, option=orjson.OPT_SORT_KEYS).decode() + "\n"
    updated_annotations = {**objects.annotations(obj), LAST_APPLIED: text}
    if (
        sum(len(key.encode()) + len(value.encode()) for key, value in updated_annotations.items())
        > ANNOTATIONS_LIMIT_BYTES
    ):
        del updated_annotations[LAST_APPLIED]
    obj["metadata"] = {**metadata(obj), "annotations": updated_annotations}
