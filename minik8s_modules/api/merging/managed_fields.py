"""metadata.managedFields: who last said what of an object.

Every write notes the fields it changed under its manager, operation (Update or Apply), subresource and version; other
managers lose these fields. ``record_update`` does so for everything but server-side apply (``server_side_apply``). What
belongs to the server (names, versions, and status outside its subresource) is nobody's.

Source: k8s.io/apimachinery ``util/managedfields`` and structured-merge-diff ``merge/update.go``. Managers that wrote
in another version of the kind are compared in that version (``conversion``).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from minik8s_modules.api.defaulting.conversion import from_storage
from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.kinds import KINDS, Kind
from minik8s_modules.api.merging import fieldsets
from minik8s_modules.api.merging.fieldsets import Comparison, Fields
from minik8s_modules.api.objects import JsonObject, metadata, uid
from minik8s_modules.api.schema.shapes import kind_shape
from minik8s_modules.base.clock import parse_rfc3339, rfc3339

MAX_UPDATERS = 10  # more entries of updates than these are merged, the oldest first
ANCIENT = "ancient-changes"
BEFORE_FIRST_APPLY = "before-first-apply"
UNKNOWN = "unknown"
APPLY, UPDATE = "Apply", "Update"
_LEAF: Fields = {}
_SERVERS: Fields = {
    "f:apiVersion": _LEAF,
    "f:kind": _LEAF,
    "f:metadata": {
        ".": _LEAF,
        **{f"f:{name}": _LEAF for name in (
            "name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation", "managedFields",
            "resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds",
        )},
    },
}  # fmt: skip


_SERVERS_METADATA = frozenset(element.removeprefix("f:") for element in _SERVERS["f:metadata"])
_SERVERS_FIELDS = frozenset(element.removeprefix("f:") for element in _SERVERS)


class Writer(NamedTuple):
    """Who writes: the fieldManager of the request, and the subresource it goes through."""

    name: str
    subresource: str = ""


class Identity(NamedTuple):
    """What tells two entries apart; the version of an Apply is not part of it."""

    manager: str
    operation: str
    api_version: str
    subresource: str


class Entry(NamedTuple):
    """The fields of one manager. ``time`` is RFC 3339, "" where it is not known."""

    api_version: str
    fields: Fields
    time: str


Managers = dict[Identity, Entry]


def identity(writer: Writer, operation: str, api_version: str) -> Identity:
    """Return the identity of a write in ``api_version``."""
    version = "" if operation == APPLY else api_version
    return Identity(writer.name or UNKNOWN, operation, version, writer.subresource)


# --- the wire form --------------------------------------------------------------------------------


def decode(entries: list[JsonObject]) -> Managers:
    """Return the managers of metadata.managedFields.

    Raises:
        ValueError: an entry cannot be used.
    """
    managers: Managers = {}
    for index, entry in enumerate(entries):
        operation, version = entry.get("operation"), entry.get("apiVersion")
        if operation not in {APPLY, UPDATE} or not version or entry.get("fieldsType") != "FieldsV1":
            raise ValueError(f"managedFields[{index}] lacks operation, apiVersion or fieldsType")
        writer = Writer(entry.get("manager") or "", entry.get("subresource") or "")
        fields = entry.get("fieldsV1") or {}
        managers[identity(writer, operation, version)] = Entry(version, fields, entry.get("time") or "")
    return managers


def _canonical(fields: Any) -> Fields:
    """Return a set that a client wrote, with elements spelled as ours. Raises ValueError for what is no set."""
    if not isinstance(fields, dict):
        raise ValueError("a set of fields must consist of objects")  # noqa: TRY004 - one class for what entries have wrong
    return {_canonical_element(element): _canonical(node) for element, node in fields.items()}


def _canonical_element(element: str) -> str:
    mark, text = element[:2], element[2:]
    if element == "." or mark in {"f:", "i:"}:
        return element
    if mark not in {"k:", "v:"}:
        raise ValueError(f"{element!r} is not a path element")
    value = orjson.loads(text)
    if isinstance(value, dict) != (mark == "k:"):
        raise ValueError(f"{element!r} is not a path element")
    return mark + orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def encode(managers: Mapping[Identity, Entry]) -> list[JsonObject]:
    """Return metadata.managedFields, in Kubernetes' order."""
    ranked = sorted(managers.items(), key=_rank) if len(managers) > 1 else managers.items()
    return [_encoded(found, entry) for found, entry in ranked]


def _rank(item: tuple[Identity, Entry]) -> tuple[str, float, str, str, str]:
    found, entry = item
    return (found.operation, _seconds(entry), found.manager, entry.api_version, found.subresource)


def _seconds(entry: Entry) -> float:
    try:
        return parse_rfc3339(entry.time).timestamp() if entry.time else 0
    except ValueError:
        return 0


def _encoded(found: Identity, entry: Entry) -> JsonObject:
    written = {
        "manager": found.manager,
        "operation": found.operation,
        "apiVersion": entry.api_version,
        "time": entry.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": entry.fields,
        "subresource": found.subresource,
    }
    return {field: value for field, value in written.items() if value or field == "fieldsV1"}


# --- what counts ----------------------------------------------------------------------------------


def counted(kind: Kind, fields: Fields, subresource: str) -> Fields:
    """Return the part of a set that a write through ``subresource`` can own."""
    if subresource in {"status", "approval"}:
        return {"f:status": fields["f:status"]} if "f:status" in fields else {}
    if ("status" in kind.subresources or subresource) and "f:status" in fields:
        fields = {element: node for element, node in fields.items() if element != "f:status"}
    return fields


def without_servers(fields: Fields) -> Fields:
    """Return a set without what only the server says."""
    return fieldsets.difference(fields, _SERVERS)


def plain(obj: JsonObject) -> JsonObject:
    """Return the object without managedFields; shares its parts."""
    meta = {field: value for field, value in (obj.get("metadata") or {}).items() if field != "managedFields"}
    return {**obj, "metadata": meta}


class Versions:
    """The difference between two objects (in the form they are kept in), in the version each manager wrote in."""

    def __init__(self, stored: Kind, old: JsonObject, new: JsonObject, subresource: str) -> None:
        self._stored, self._old, self._new, self._subresource = stored, old, new, subresource
        self._known: dict[str, Comparison | StatusError | None] = {}

    def at(self, version: str) -> Comparison | None:
        """Return the difference in ``version``; None where the kind has no such version.

        Raises:
            StatusError: the webhook that converts the objects fails; it is asked once.
        """
        if version not in self._known:
            try:
                self._known[version] = self._compared(version)
            except StatusError as error:
                self._known[version] = error
        found = self._known[version]
        if isinstance(found, StatusError):
            raise found
        return found

    def _compared(self, version: str) -> Comparison | None:
        kind = kind_at(self._stored, version)
        if kind is None:
            return None
        old, new = self._old, self._new
        if kind is not self._stored:
            old, new = from_storage(kind, old) if old else {}, from_storage(kind, new)
        found = fieldsets.compare(kind_shape(kind), old, new)
        return Comparison(*(counted(kind, each, self._subresource) for each in found))


def kind_at(stored: Kind, version: str) -> Kind | None:
    """Return the kind that shows the objects of ``stored`` in another version, or None."""
    if version == stored.api_version:
        return stored
    if stored.custom is not None:
        return stored.custom.sibling(version)
    found = KINDS.by_api_version(version, stored.kind)
    return found if found is not None and found.prefix == stored.prefix else None


# --- updates --------------------------------------------------------------------------------------


def record_update(
    kind: Kind, stored: Kind, new: JsonObject, old: JsonObject | None, writer: Writer, now: datetime
) -> None:
    """Put into ``new``, in place, the managedFields after a write that is no server-side apply.

    Args:
        kind: the version the request came in.
        stored: the kind both objects are kept as.
        new: the object to be stored; managedFields that a client put in are taken over if they can be read.
        old: the object before, None for a new one.
        writer: who writes.
        now: becomes the time of the writer's entry, if that changes.
    """
    managers, wanted = _given(new, old, writer)
    metadata(new).pop("managedFields", None)
    if wanted is not None:
        managers = wanted
    if managers or old is None:
        counts = new if managers or old is not None or kind is not stored else _without_servers_part(new)
        versions = Versions(stored, plain(old) if old else {}, counts, writer.subresource)
        managers = updated(managers, versions, kind.api_version, writer, now)
    if managers:
        metadata(new)["managedFields"] = encode(managers)


def _without_servers_part(obj: JsonObject) -> JsonObject:
    """Return a new object without what nobody will own: of a small one that is most of its fields. Shares its parts."""
    left = {field: value for field, value in obj.items() if field not in _SERVERS_FIELDS}
    meta = {field: value for field, value in metadata(obj).items() if field not in _SERVERS_METADATA}
    return {**left, "metadata": meta} if meta else left


def _given(new: JsonObject, old: JsonObject | None, writer: Writer) -> tuple[Managers, Managers | None]:
    """Return the managers before, and those the client asks for (None: it does not)."""
    before = (old.get("metadata") or {}).get("managedFields") or [] if old else []
    asked = metadata(new).get("managedFields")
    managers = _decoded(before, trusted=True) or {}
    if asked is None or writer.subresource or asked == before:
        return managers, None
    if not asked or asked == [{}]:
        return managers, {}
    return managers, _decoded(asked, trusted=False) or None


def _decoded(entries: list[JsonObject], *, trusted: bool) -> Managers | None:
    try:
        managers = decode(entries)
        if trusted:
            return managers
        return {
            found: entry._replace(fields=fieldsets.sort(_canonical(entry.fields))) for found, entry in managers.items()
        }
    except ValueError:
        return None


def updated(managers: Managers, versions: Versions, api_version: str, writer: Writer, now: datetime) -> Managers:
    """Return the managers after the difference ``versions`` was written by ``writer`` in ``api_version``."""
    left = taken(managers, versions)
    change = versions.at(api_version)
    mine = without_servers(change.written) if change else {}
    if mine:
        me = identity(writer, UPDATE, api_version)
        if me in left:
            mine = fieldsets.union(left[me].fields, mine)
        left[me] = Entry(api_version, fieldsets.sort(mine), rfc3339(now))
    return _capped(left)


def taken(managers: Managers, versions: Versions) -> Managers:
    """Return the managers less what the difference removed or took over; those without fields are gone.

    Where it cannot be told in a manager's version, for its converter fails, the manager keeps what it has: no write of
    the stored version fails for that (upstream then drops all managedFields: ``UpdateNoErrors``).
    """
    left: Managers = {}
    for found, entry in managers.items():
        try:
            change = versions.at(entry.api_version)
        except StatusError:
            left[found] = entry
            continue
        if change is None:
            continue
        fields = entry.fields
        if change:
            fields = fieldsets.difference(fieldsets.difference(fields, change.written), change.removed)
        if fields:
            left[found] = entry if fields is entry.fields else entry._replace(fields=fields)
    return left


def _capped(managers: Managers) -> Managers:
    """Merge the oldest updates of each version into one entry until there are at most MAX_UPDATERS."""
    if len(managers) <= MAX_UPDATERS:
        return managers
    updaters = sorted((m for m in managers.items() if m[0].operation == UPDATE), key=lambda m: (_seconds(m[1]), m[0]))
    surplus = len(updaters) - MAX_UPDATERS
    merged: dict[str, list[tuple[Identity, Entry]]] = {}
    for found, entry in updaters:
        if surplus <= 0:
            break
        group = merged.setdefault(entry.api_version, [])
        surplus -= bool(group)  # the first of a version alone makes none fewer
        group.append((found, entry))
    for version, group in merged.items():
        if len(group) > 1:
            bucket = Identity(ANCIENT, UPDATE, version, "")
            merged_into = managers.get(bucket, group[0][1])
            for found, _ in group:
                del managers[found]
            fields = fieldsets.union_of([merged_into.fields, *(entry.fields for _, entry in group)])
            managers[bucket] = Entry(version, fieldsets.sort(fields), group[-1][1].time)
    return managers


def same_owners(new: JsonObject, old: JsonObject) -> bool:
    """Return whether the managedFields of two objects are equal but for their times."""
    after, before = ((obj.get("metadata") or {}).get("managedFields") or [] for obj in (new, old))
    return after == before or (len(after) == len(before) and _untimed(after) == _untimed(before))


def _untimed(entries: list[JsonObject]) -> list[JsonObject]:
    return sorted(
        ({field: value for field, value in entry.items() if field != "time"} for entry in entries), key=_named
    )


def _named(entry: JsonObject) -> list[str]:
    return [str(entry.get(field)) for field in ("manager", "operation", "apiVersion", "subresource")]


def managers_of(obj: JsonObject) -> Managers:
    """Return the managers of a stored object; {} where its managedFields cannot be read."""
    return _decoded((obj.get("metadata") or {}).get("managedFields") or [], trusted=True) or {}


def is_tracked(obj: JsonObject) -> bool:
    """Return whether somebody owns fields of the object, or it does not exist yet."""
    return bool((obj.get("metadata") or {}).get("managedFields")) or not uid(obj)
