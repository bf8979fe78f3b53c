"""Objects in the form a client asked for: their own bytes, a row of a table, or their metadata.

Whole objects leave as the bytes the cache holds; lists are those bytes with commas between them (5,000
objects of 1.6 KB: 11-22 ms of CPU, against 126-143 ms when encoded again). Views (api/defaulting/conversion.py) are the
exception.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import orjson

from minik8s_modules.api import objects
from minik8s_modules.api.defaulting.conversion import from_storage, in_version
from minik8s_modules.api.kind import Declaration, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.tables import printers
from minik8s_modules.api.tables.cells import NAME, UNKNOWN
from minik8s_modules.apiserver.http.negotiation import Form
from minik8s_modules.store.cached import PARSED_EVENTS, CachedObject
from minik8s_modules.store.encoding import exact
from minik8s_modules.store.readable import MISREAD

_META = "meta.k8s.io/v1"
_BATCH_BYTES = 1 << 20  # of a question to a converter: its answer, which may be longer, is cut off at 3 MiB


def json_of(kind: Kind, item: CachedObject, *, keep: bool = True) -> JsonObject:
    """Return the object in the form of ``kind``; shared with others, not to be changed.

    It stays parsed for whoever asks next, but without ``keep``: that is for who looks at very many.
    """
    if kind.custom is not None:
        parsed: JsonObject = orjson.loads(_custom_bytes(kind, item))
        return parsed
    found = item.object if keep else item.peek()
    return from_storage(kind, found) if kind.storage else found


def are_few(items: Sequence[CachedObject]) -> bool:
    """Return whether parsed forms of them all may be kept: each is about five times its bytes."""
    return len(items) <= PARSED_EVENTS


def bytes_of(kind: Kind, item: CachedObject) -> bytes:
    """Return the object's JSON in the form of ``kind``."""
    if kind.custom is not None:
        return _custom_bytes(kind, item)
    return orjson.dumps(from_storage(kind, item.object)) if kind.storage else item.data


def at_hand(kind: Kind, item: CachedObject) -> bytes | None:
    """Return what ``bytes_of`` would, where nothing is left to be done for it; else None."""
    if kind.custom is not None:
        return _known(kind, item)
    return None if kind.storage else item.data


def labels_of(kind: Kind, item: CachedObject) -> Mapping[str, str]:
    """Return the object's labels in the form of ``kind``: a program that converts objects may change them."""
    return (json_of(kind, item)["metadata"].get("labels") or {}) if kind.converted else item.labels


def prepare(kind: Kind, items: Iterable[CachedObject]) -> None:
    """Have objects converted where a program outside does that: many at once, not each when it is shown.

    Raises:
        StatusError: the program fails.
    """
    declared = kind.custom
    if declared is None or not kind.converted:
        return
    waiting = [item for item in items if _known(kind, item) is None]
    while waiting:
        batch, waiting = _batch(waiting)
        objs = in_version(kind, declared, [orjson.loads(item.data) for item in batch])
        for item, obj in zip(batch, objs, strict=True):
            _remember(kind, declared, item, orjson.dumps(obj))


def _batch(items: list[CachedObject]) -> tuple[list[CachedObject], list[CachedObject]]:
    """Return what goes into one question, and the rest."""
    size = 0
    for count, item in enumerate(items):
        size += len(item.data)
        if count and size > _BATCH_BYTES:
            return items[:count], items[count:]
    return items, []


def _custom_bytes(kind: Kind, item: CachedObject) -> bytes:
    """Return a custom object in the version of ``kind``, pruned and defaulted by its schema of now; made once."""
    known = _known(kind, item)
    if known is not None or kind.custom is None:
        return known or item.data
    return _remember(kind, kind.custom, item, orjson.dumps(from_storage(kind, orjson.loads(item.data))))


def _known(kind: Kind, item: CachedObject) -> bytes | None:
    for whose, data in item.shown:
        if whose is kind:
            return data
    return None


def _remember(kind: Kind, declared: Declaration, item: CachedObject, data: bytes) -> bytes:
    """Keep what an object looks like in the version of ``kind``; where asking for it is dear, beside other versions."""
    data = item.data if data == item.data else exact(data)
    others = item.shown if kind.converted else ()
    kept = [
        pair for pair in others
        if isinstance(pair[0], Kind) and pair[0] is not kind and declared.sibling(pair[0].api_version) is pair[0]
    ]  # fmt: skip
    item.shown = (*kept, (kind, data))
    return data


def one(kind: Kind, form: Form, item: CachedObject, now: datetime) -> bytes:
    """Return one object in ``form``."""
    if form.name == "object":
        return bytes_of(kind, item)
    obj = json_of(kind, item)
    if form.name == "metadata":
        return orjson.dumps(partial(obj))
    return orjson.dumps(table(kind, form, [obj], {"resourceVersion": str(item.revision)}, now))


def many(kind: Kind, form: Form, items: Sequence[CachedObject], meta: JsonObject, now: datetime) -> bytes:
    """Return a list in ``form`` with ``meta`` as its metadata."""
    prepare(kind, items)
    if form.name == "object":
        head = orjson.dumps({"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": meta})
        return b"".join((head[:-1], b',"items":[', b",".join([bytes_of(kind, item) for item in items]), b"]}"))
    keep = are_few(items)
    objects = [json_of(kind, item, keep=keep) for item in items]
    if form.name == "table":
        return orjson.dumps(table(kind, form, objects, meta, now))
    rows = [partial(obj) for obj in objects]
    return orjson.dumps({"kind": "PartialObjectMetadataList", "apiVersion": _META, "metadata": meta, "items": rows})


def partial(obj: JsonObject) -> JsonObject:
    """Return the PartialObjectMetadata of an object."""
    return {"kind": "PartialObjectMetadata", "apiVersion": _META, "metadata": obj.get("metadata") or {}}


def table(kind: Kind, form: Form, objects: Sequence[JsonObject], meta: JsonObject, now: datetime) -> JsonObject:
    """Return a meta.k8s.io/v1 Table with a row for each object."""
    return {
        "kind": "Table",
        "apiVersion": _META,
        "metadata": meta,
        "columnDefinitions": [column._asdict() for column in printers.table_columns(kind)],
        "rows": [_row(kind, form, obj, now) for obj in objects],
    }


def _cells(kind: Kind, obj: JsonObject, now: datetime) -> list[Any]:
    """Return a row's cells; of an object that cannot be read as it is stored, its name."""
    try:
        return printers.table_row(kind, obj, now)
    except MISREAD as error:
        objects.tell_misread({**obj, "kind": kind.kind}, error, "is shown by its name")
        columns = printers.table_columns(kind)
        return [objects.name(obj) if column.name == NAME.name else UNKNOWN for column in columns]


def _row(kind: Kind, form: Form, obj: JsonObject, now: datetime) -> dict[str, Any]:
    row: dict[str, Any] = {"cells": _cells(kind, obj, now)}
    if form.include == "Object":
        row["object"] = obj
    elif form.include == "Metadata":
        row["object"] = partial(obj)
    return row
