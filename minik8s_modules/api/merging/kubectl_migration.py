"""What kubectl makes of an object that it applied client-side before, once it has applied it server-side; in memory.

After such an apply, kubectl looks at the answer and sends three patches more: the last-applied annotation becomes one
that ``kubectl-last-applied`` applied; a JSON patch of managedFields joins what its client-side manager owned with what
it has now applied; and the configuration is applied again, so that fields go that only the former manifest had. With
``migrated`` the answer to the first request is what kubectl would have in the end, and it sends no more.

Source: kubectl ``apply.go`` (saveLastApplyAnnotationIfNecessary, migrateToSSAIfNecessary), client-go
``util/csaupgrade/upgrade.go``.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.merging import fieldsets
from minik8s_modules.api.merging.apply import LAST_APPLIED
from minik8s_modules.api.merging.managed_fields import APPLY, UPDATE, Entry, Identity, Managers, encode, managers_of
from minik8s_modules.api.merging.server_side_apply import KUBECTL, Applier, apply
from minik8s_modules.api.objects import JsonObject, metadata, name

_ANNOTATOR = "kubectl-last-applied"
_ANNOTATION = ("f:metadata", "f:annotations", f"f:{LAST_APPLIED}")


def migrated(kind: Kind, obj: JsonObject, config: JsonObject, applier: Applier, now: datetime) -> JsonObject:
    """Return an object to which ``config`` was just applied as kubectl would leave it; itself if that is all it does.

    Args:
        kind: of both; the version of the request.
        obj: as ``apply`` returned it; parts of it and of ``config`` go into the result.
        config: what was applied.
        applier: who applied it, not through a subresource.
        now: the time of entries that change.
    """
    if applier.name == KUBECTL:
        obj = _annotation_kept(kind, obj, now)
    managers = managers_of(obj)
    joined = _joined(managers, sorted(_annotators(managers, UPDATE)), applier.name)
    if joined == managers:
        return obj
    former = {**obj, "metadata": {**metadata(obj), "managedFields": encode(joined)}}
    return apply(kind, former, config, applier, now)


def _annotation_kept(kind: Kind, obj: JsonObject, now: datetime) -> JsonObject:
    """Return the object with a manager for the annotation, which the last apply would remove."""
    text = objects.annotations(obj).get(LAST_APPLIED)
    if text is None or _annotators(managers_of(obj), APPLY):
        return obj
    meta = {"name": name(obj), "annotations": {LAST_APPLIED: text}}
    config = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta}
    return apply(kind, obj, config, Applier(_ANNOTATOR), now)


def _annotators(managers: Managers, operation: str) -> set[str]:
    """Return the names of those who own the annotation by an operation."""
    return {
        found.manager
        for found, entry in managers.items()
        if found.operation == operation and fieldsets.contains(entry.fields, _ANNOTATION)
    }


def _joined(managers: Managers, names: Iterable[str], applier: str) -> Managers:
    """Return the managers after the updates of ``names`` have become the applier's.

    Of those of one name, only what was written in the applier's version is joined; the others are dropped.
    """
    me = Identity(applier, APPLY, "", "")
    for each in names:
        updates = {
            found: entry
            for found, entry in managers.items()
            if (found.manager, found.operation, found.subresource) == (each, UPDATE, "")
        }
        if updates:
            mine = managers.get(me) or next(iter(updates.values()))
            left = {found: entry for found, entry in managers.items() if found not in updates}
            managers = {**left, me: _united(mine, updates.values())}
    return managers


def _united(mine: Entry, updates: Iterable[Entry]) -> Entry:
    fields = next((entry.fields for entry in updates if entry.api_version == mine.api_version), {})
    return mine._replace(fields=fieldsets.sort(fieldsets.union(mine.fields, fields)))
