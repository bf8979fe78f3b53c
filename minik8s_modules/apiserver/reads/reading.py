"""get and list.

A list without a limit is answered from the cache. With a limit, the first page comes from the cache at its
revision, and the continue token (that revision, and the last key) makes the following pages show exactly that
revision, so the pages together are one consistent list, however long the client takes. While the cache remembers what
has changed since, it tells these, too; later etcd does, which counts all that follow for each page. Once etcd has
compacted the revision, the answer is 410 and the client lists again. Semantics: Kubernetes API
concepts, "Retrieving large results sets in chunks" and "Resource versions in metadata".
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import orjson

from minik8s_modules.api.errors import BadRequest, Expired, Timeout
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.http import presenting
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.reads.selection import Selection
from minik8s_modules.store.cached import CachedObject, CachePage
from minik8s_modules.store.encoding import with_revision
from minik8s_modules.store.errors import Compacted, FutureRevision
from minik8s_modules.store.interface import Entry

_CHUNK = 500  # entries read at a time
_MATCHES = frozenset({"", "Exact", "NotOlderThan"})


class Listing(NamedTuple):
    """The objects of a list and the list's metadata."""

    items: list[CachedObject]
    meta: JsonObject


class _Position(NamedTuple):
    revision: int
    last_key: str


def get(backend: Backend, target: Target, arguments: Mapping[str, str]) -> CachedObject:
    """Return the object at ``target``; with a resourceVersion, not older than that."""
    revision = revision_of(arguments)
    if revision:
        backend.freshen(revision)
    return backend.get(target)


def list_objects(backend: Backend, selection: Selection, arguments: Mapping[str, str]) -> Listing:
    """Return what a list request asks for.

    Raises:
        BadRequest: limit, continue, resourceVersion or resourceVersionMatch cannot be used.
        Expired: the revision asked for is compacted.
        Timeout: the revision asked for does not come.
    """
    limit = _limit(arguments)
    token, revision, match = arguments.get("continue", ""), revision_of(arguments), _match(arguments)
    if token:
        if revision:
            raise BadRequest("specifying resource version is not allowed when using continue")
        position = _decode(token, selection)
        return _page(backend, selection, position, limit, after=True)
    if match == "Exact":
        return _page(backend, selection, _Position(revision, ""), limit, after=False)
    if revision:
        backend.freshen(revision)
    return _from_cache(backend, selection, limit)


def _from_cache(backend: Backend, selection: Selection, limit: int) -> Listing:
    items, revision = backend.cache.list(selection.prefix)
    items = selection.chosen(items)
    meta: JsonObject = {"resourceVersion": str(revision)}
    if limit and len(items) > limit:
        meta["continue"] = _encode(_Position(revision, items[limit - 1].key))
        if selection.everything:
            meta["remainingItemCount"] = len(items) - limit
        items = items[:limit]
    return Listing(items, meta)


def _page(backend: Backend, selection: Selection, position: _Position, limit: int, *, after: bool) -> Listing:
    try:
        return _read_page(backend, selection, position, limit)
    except Compacted as error:
        text = "The provided continue parameter is too old to display a consistent list result" if after else ""
        raise Expired(text or f"The resourceVersion for the provided list is too old: {position.revision}") from error
    except FutureRevision as error:
        raise Timeout(f"Too large resource version: {position.revision}", retry_after_s=1) from error


def _read_page(backend: Backend, selection: Selection, position: _Position, limit: int) -> Listing:
    items: list[CachedObject] = []
    meta: JsonObject = {"resourceVersion": str(position.revision)}
    remaining = 0
    chunk = min(_CHUNK, limit + 1) if limit and selection.everything else _CHUNK
    for item, left in _entries(backend, selection, position, chunk):
        if limit and len(items) == limit:
            meta["continue"] = _encode(_Position(position.revision, items[-1].key))
            if selection.everything:
                meta["remainingItemCount"] = remaining
            break
        if selection.everything or selection.matches(item, keep=False):
            items.append(item)
        remaining = left
    return Listing(items, meta)


def _entries(
    backend: Backend, selection: Selection, position: _Position, chunk: int
) -> Iterator[tuple[CachedObject, int]]:
    """Yield the objects after ``position`` with the number of those that follow each; ``chunk`` are read at a time."""
    start = f"{position.last_key}\0" if position.last_key else ""
    while True:
        items, remaining = _chunk(backend, selection.prefix, position.revision, start, chunk)
        if not selection.everything:
            presenting.prepare(selection.kind, items)
        for index, item in enumerate(items, start=1):
            yield item, remaining + len(items) - index
        if not remaining:
            return
        start = f"{items[-1].key}\0"


def _chunk(backend: Backend, prefix: str, revision: int, start: str, limit: int) -> CachePage:
    known = backend.cache.page(prefix, revision, start, limit)
    if known is not None:
        return known
    page = backend.store.range(prefix, limit=limit, start=start, revision=revision)
    return CachePage([_item(entry) for entry in page.entries], page.remaining)


def _item(entry: Entry) -> CachedObject:
    data, parsed = with_revision(entry.value, entry.revision, entry.key)
    return CachedObject(entry.key, data, entry.revision, parsed["metadata"].get("labels") or {})


def revision_of(arguments: Mapping[str, str]) -> int:
    """Return the ``resourceVersion`` asked for; 0 for any or none."""
    return whole_number(arguments, "resourceVersion")


def _limit(arguments: Mapping[str, str]) -> int:
    return whole_number(arguments, "limit")


def whole_number(arguments: Mapping[str, str], name: str) -> int:
    """Return the query parameter ``name``, 0 where it is absent. Raises BadRequest when it is no whole number."""
    text = arguments.get(name, "")
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) < 19):  # noqa: PLR2004 - fits into 63 bits
        raise BadRequest(f'{name}: Invalid value: "{text}": must be a non-negative integer')
    return int(text)


def _match(arguments: Mapping[str, str]) -> str:
    match = arguments.get("resourceVersionMatch", "")
    if match not in _MATCHES:
        raise BadRequest(f'resourceVersionMatch: Unsupported value: "{match}": use "Exact" or "NotOlderThan"')
    if match and not arguments.get("resourceVersion"):
        raise BadRequest("resourceVersionMatch is forbidden unless resourceVersion is provided")
    if match == "Exact" and revision_of(arguments) == 0:
        raise BadRequest('resourceVersionMatch: "Exact" is forbidden for resourceVersion "0"')
    return match


def _encode(position: _Position) -> str:
    return base64.urlsafe_b64encode(orjson.dumps({"rv": position.revision, "last": position.last_key})).decode()


def _decode(token: str, selection: Selection) -> _Position:
    try:
        fields = orjson.loads(base64.urlsafe_b64decode(token))
        revision, last_key = fields["rv"], fields["last"]
    except (binascii.Error, ValueError, KeyError, TypeError) as error:
        raise BadRequest("continue key is not valid: this server did not issue it") from error
    usable = isinstance(revision, int) and revision > 0 and isinstance(last_key, str)
    if not usable or not last_key.startswith(selection.prefix):
        raise BadRequest("continue key is not valid: it belongs to another list")
    return _Position(revision, last_key)
