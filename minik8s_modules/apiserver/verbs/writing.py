"""create, update, patch and the subresources that change an object.

Every change of an existing object goes through ``change``: read, compute the new object in pure code,
compare-and-swap. When another writer was faster the computation is repeated on the newer object, unless the
client said which version it means: then it is told of the conflict. A computation that changes nothing
writes nothing, so the resourceVersion stays (kubectl then says "unchanged"). The first read is the cache's;
every later one is the store's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import orjson

from minik8s_modules.api import size_limits
from minik8s_modules.api.defaulting import defaults_pod
from minik8s_modules.api.defaulting.conversion import (
    from_storage,
    in_storage_version,
    kept_version,
    stored_kind,
    to_storage,
)
from minik8s_modules.api.defaulting.defaults import apply_defaults
from minik8s_modules.api.errors import (
    AlreadyExists,
    BadRequest,
    Cause,
    Conflict,
    Invalid,
    MethodNotAllowed,
    NotFound,
    RequestEntityTooLarge,
)
from minik8s_modules.api.kinds import POD, Kind
from minik8s_modules.api.lifecycle import strategy
from minik8s_modules.api.merging import managed_fields
from minik8s_modules.api.objects import JsonObject, labels, metadata, name
from minik8s_modules.api.pods import resources
from minik8s_modules.api.schema.structural import prune, type_errors
from minik8s_modules.api.validation import validate_create, validate_update, warnings
from minik8s_modules.apiserver.admission import admission, chain, quotas, webhook_admission
from minik8s_modules.apiserver.http import incoming, presenting
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.store import readable
from minik8s_modules.store.cached import CachedObject
from minik8s_modules.store.encoding import exact, without_revision
from minik8s_modules.store.errors import KeyExists, KeyMissing, StaleWrite, ValueTooLarge
from minik8s_modules.store.interface import Put

# etcd's default --max-request-bytes, which the installation leaves as it is
MAX_OBJECT_BYTES = 1536 * 1024
# a name has 27^5 endings; eight collisions in a row mean something else is wrong
NAME_ATTEMPTS = 8
# each lost round means that another writer won one, so this many in a row is a crowd, not an accident
CHANGE_ATTEMPTS = 20

# in no object that is pruned, but for texts and free forms; what is stored may be older than a rule
_NULL = b"null"

Mutation = Callable[[JsonObject], JsonObject]
"""Makes of an object, which it may use up, what it is to be."""


def create(backend: Backend, target: Target, obj: JsonObject, options: Options) -> CachedObject:
    """Store a new object and return it; with dry run return what would be stored."""
    obj = incoming.readable(target.kind, obj, options, incoming.dialect_around(backend, target))
    generated = not name(obj) and bool(metadata(obj).get("generateName"))
    encoded, collided = _encoded(obj), ""
    for _ in range(NAME_ATTEMPTS if generated else 1):
        fresh = admitted(backend, target, orjson.loads(encoded), options)
        key = target.kind.key(target.namespace, name(fresh))
        try:
            with admission.reserved(backend, target.kind, fresh, options):
                return _store_new(backend, stored_kind(target.kind), key, fresh, options)
        except KeyExists:
            collided = name(fresh)
    raise AlreadyExists(target.kind, collided, generated=generated)


def admitted(backend: Backend, target: Target, obj: JsonObject, options: Options) -> JsonObject:
    """Return a new object as it would be stored: defaulted, completed, admitted and valid (``obj`` is used up)."""
    if "create" not in target.kind.verbs:
        raise MethodNotAllowed(target.kind, "create")
    given = _own_requests(target.kind, obj)
    apply_defaults(target.kind, obj)
    implied = defaults_pod.implied_requests(obj, given) if target.kind == POD else {}
    obj = to_storage(target.kind, obj)
    kind = stored_kind(target.kind)
    strategy.prepare_create(
        kind,
        obj,
        namespace=target.namespace,
        now=backend.clock.now(),
        uid=backend.new_uid(),
        name_suffix="" if name(obj) else backend.new_suffix(),
    )
    if target.kind.namespaced:
        admission.check_namespace(backend, target, obj)
    _record(backend, target, obj, None, options)  # before admission: what plugins add is nobody's, as in Kubernetes
    chain.run("mutate", backend, "create", target, obj, None, options)
    if implied and defaults_pod.raise_implied(obj, implied):
        obj["status"]["qosClass"] = resources.qos_class(obj)
    refuse(target.kind, obj, validate_create(kind, obj))
    chain.run("validate", backend, "create", target, obj, None, options)
    for warning in warnings(kind, obj):
        options.warn(warning)
    return obj


def _own_requests(kind: Kind, obj: JsonObject) -> list[str]:
    """Return what a client requests for a pod as a whole."""
    found = (resources.pod_level(obj).get("requests") or {}) if kind == POD else {}
    return [resource for resource, amount in found.items() if amount is not None]


def _record(backend: Backend, target: Target, new: JsonObject, old: JsonObject | None, options: Options) -> None:
    """Note in ``new``, in place, whose fields are whose; server-side apply has done so already."""
    if options.applied or (target.kind.custom is not None and type_errors(target.kind, new)):
        return  # what has other types than declared is refused in a moment: nobody owns fields of it
    writer = managed_fields.Writer(options.manager, target.subresource)
    managed_fields.record_update(target.kind, stored_kind(target.kind), new, old, writer, backend.clock.now())


def refuse(kind: Kind, obj: JsonObject, causes: list[Cause]) -> None:
    """Raise Invalid where there are causes."""
    if causes:
        raise Invalid(kind, name(obj), causes)


def _store_new(backend: Backend, kind: Kind, key: str, obj: JsonObject, options: Options) -> CachedObject:
    kept = _as_kept(kind, obj)
    value = _sized(kind, kept)
    if options.dry_run:
        if backend.cache.get(key) is not None:
            raise KeyExists(key)
        quotas.check(backend, kind, obj)
        return made(key, kept, 0, kind, obj)
    strategy.refuse_revision(obj)
    try:
        stored = quotas.stored(backend, kind, Put(key, value, 0), obj)
    except ValueTooLarge as error:
        raise RequestEntityTooLarge(MAX_OBJECT_BYTES) from error
    return shown(backend, made(key, kept, stored.revision, kind, obj), alone=stored.alone)


def shown(backend: Backend, item: CachedObject, *, alone: bool) -> CachedObject:
    """Return what was written once reads show it; ``alone``: its revision changed nothing else."""
    if alone:
        backend.wrote(item)
    else:
        backend.settle(item.revision)
    return item


def _as_kept(kind: Kind, obj: JsonObject) -> JsonObject:
    return obj if kind.custom is None else in_storage_version(kind, kind.custom, obj)


def _encoded(obj: JsonObject) -> bytes:
    """Return the object's JSON; what cannot be stored for its size is refused before it is looked at."""
    return _checked(orjson.dumps(obj))


def _sized(kind: Kind, obj: JsonObject) -> bytes:
    """Return what is stored of an object; with what the server added it is still one that can be sent back."""
    allowed = size_limits.values_allowed(kind.id)
    try:
        value = without_revision(obj)
    except TypeError:  # deeper than orjson goes
        size_limits.check(obj, allowed)
        raise
    if not size_limits.fits(value, allowed):
        size_limits.check(obj, allowed)
    return _checked(value)


def _checked(value: bytes) -> bytes:
    if len(value) > MAX_OBJECT_BYTES:
        raise RequestEntityTooLarge(MAX_OBJECT_BYTES)
    return value


def made(
    key: str, kept: JsonObject, revision: int, kind: Kind | None = None, obj: JsonObject | None = None
) -> CachedObject:
    """Return ``kept`` as the cache would hold it at ``revision``; 0 leaves out the resourceVersion.

    ``obj`` is the same object as ``kind`` shows it; what a program outside converts is shown only when it is read.
    """
    item = CachedObject(key, _at_revision(kept, revision), revision, dict(labels(kept)))
    if kind is None or kind.custom is None or obj is None:
        return item
    if kept["apiVersion"] == obj["apiVersion"]:
        item.shown = ((kind, item.data),)
    elif not kind.converted:
        item.shown = ((kind, exact(_at_revision(obj, revision))),)
    return item


def _at_revision(obj: JsonObject, revision: int) -> bytes:
    meta = {field: value for field, value in metadata(obj).items() if field != "resourceVersion"}
    if revision:
        meta["resourceVersion"] = str(revision)
    return orjson.dumps({**obj, "metadata": meta})


def update(backend: Backend, target: Target, obj: JsonObject, options: Options) -> CachedObject:
    """Replace an object, or its subresource's part; a resourceVersion in ``obj`` must be the present one."""
    obj = incoming.readable(target.kind, obj, options, incoming.dialect_around(backend, target))
    incoming.check_place(target, obj)
    if not name(obj):
        text = f"the name of the object ({target.name} based on URL) was undeterminable: name must be provided"
        raise BadRequest(text)
    encoded = _encoded(obj)
    try:
        return change(backend, target, lambda _old: orjson.loads(encoded), options)
    except (Invalid, *readable.MISREAD):
        if readable.why(target.kind, backend.get(target)) is None:
            raise
    return change(backend, target, lambda _old: orjson.loads(encoded), options, mend=True)


def patch(backend: Backend, target: Target, apply: Mutation, options: Options) -> CachedObject:
    """Apply a patch (a function of the object) to an object or its subresource's part."""
    return change(backend, target, apply, options, patched=True)


def _read(target: Target, new: JsonObject, old: JsonObject, options: Options) -> tuple[JsonObject, JsonObject | None]:
    """Return what a patch has made of an object once it can be read, and what of it is fresh."""
    _bound(new, size_limits.values_allowed(target.kind.id))
    fresh = _fresh(target.kind, new, old)
    read = incoming.readable(target.kind, new, options, fresh=fresh)
    incoming.check_place(target, read)
    if not name(read):  # patched away; what follows from it must still be found
        metadata(read)["name"] = target.name
    return read, fresh if read is new else None


def _fresh(kind: Kind, new: JsonObject, old: JsonObject) -> JsonObject | None:
    """Return the fields of an object that are not, value by value, as they are stored; None where nobody can tell.

    Their JSON is compared, as 1 equals ``True``. Views are kept in another form, and of custom kinds a schema decides.
    """
    if kind.storage or kind.custom is not None:
        return None
    dumps = orjson.dumps
    return {field: value for field, value in new.items() if field not in old or dumps(value) != dumps(old[field])}


def _bound(obj: JsonObject, allowed: int) -> None:
    """Do what ``size_limits.check`` does; what is short, and has few brackets, is written and not walked through."""
    with contextlib.suppress(TypeError):  # deeper than orjson goes
        if size_limits.fits(orjson.dumps(obj), allowed):
            return
    size_limits.check(obj, allowed)


def change(
    backend: Backend,
    target: Target,
    mutate: Mutation,
    options: Options,
    *,
    patched: bool = False,
    mend: bool = False,
) -> CachedObject:
    """Return the object after ``mutate``; ``patched``: what that returns, nobody has read yet.

    ``mend``: what cannot be read as it is stored counts as what of it can be; ``mutate`` does not look at it.

    Raises:
        NotFound: there is no such object.
        Conflict: the new object names another resourceVersion than the present one.
        Invalid: the new object breaks rules.
    """
    item = backend.get(target)
    for attempt in range(CHANGE_ATTEMPTS):
        old, new = _present(target.kind, item) if not mend else (_mended(target, item), {})
        new, fresh = mutate(new), None
        if patched:
            new, fresh = _read(target, new, old, options)
        if _NULL in item.data and target.kind.custom is None:  # as pruned on both sides as what is written today
            prune(stored_kind(target.kind), old)
            fresh = None
        asked = metadata(new).get("resourceVersion") or _WHATEVER
        if asked not in {_WHATEVER, str(item.revision)}:
            if attempt or not _may_be_behind(asked, item.revision):
                raise Conflict(target.kind, target.name)
            item = backend.latest(target)
            continue
        changed = _completed(backend, target, new, old, options, fresh)
        if changed == old and not mend and not _is_outdated(target.kind, item):
            return item
        try:
            kind = stored_kind(target.kind)
            with admission.reserved(backend, kind, changed, options, old):
                return swap(backend, target, item, changed, options, old)
        except StaleWrite:
            item = backend.latest(target)
        except KeyMissing as error:
            raise NotFound(target.kind, target.name) from error
    raise Conflict(target.kind, target.name)


def _present(kind: Kind, item: CachedObject) -> tuple[JsonObject, JsonObject]:
    """Return an object as rules compare it, and as ``kind`` shows it to whoever changes it; both are the caller's."""
    if kind.custom is not None:
        data = presenting.bytes_of(kind, item)
        return orjson.loads(data), orjson.loads(data)
    return orjson.loads(item.data), from_storage(kind, orjson.loads(item.data))


def _mended(target: Target, item: CachedObject) -> JsonObject:
    """Return what of a stored object can be read. Raises BadRequest where more is lost than what is replaced."""
    stored: JsonObject = orjson.loads(item.data)
    found = readable.mended(target.kind, item) or stored
    lost = {field for field, value in stored.items() if found.get(field) != value}
    if target.subresource and lost - {target.subresource} and (why := readable.why(target.kind, item)):
        raise why
    return found


def _is_outdated(kind: Kind, item: CachedObject) -> bool:
    """Return whether a custom object is kept in a former version, which any write of it ends."""
    return kind.custom is not None and orjson.loads(item.data).get("apiVersion") != kept_version(kind)


# "0" is no version, as in Kubernetes: virtual-kubelet writes statuses so, whatever is there
_WHATEVER = "0"
_LONGEST_REVISION = 19  # digits that fit into 63 bits; Python refuses to read numbers of more than 4,300


def _may_be_behind(asked: str, revision: int) -> bool:
    """Return whether the cache may simply not have seen the version the client names."""
    return asked.isascii() and asked.isdigit() and len(asked) < _LONGEST_REVISION and int(asked) > revision


def _completed(
    backend: Backend,
    target: Target,
    new: JsonObject,
    old: JsonObject,
    options: Options,
    fresh: JsonObject | None,
) -> JsonObject:
    kind = stored_kind(target.kind)
    if target.subresource == "status" and kind.custom is None:
        prune(target.kind, new, fresh)
    else:
        apply_defaults(target.kind, new, fresh)
    new = to_storage(target.kind, new)
    strategy.prepare_update(kind, new, old, target.subresource)
    metadata(new)["resourceVersion"] = metadata(old)["resourceVersion"]
    hooked = webhook_admission.concerned(backend, target, "update", options)
    if new == old and not hooked:
        return old
    _record(backend, target, new, old, options)
    chain.run("mutate", backend, "update", target, new, old, options)
    untouched = managed_fields.plain(new) == managed_fields.plain(old)
    same = untouched and managed_fields.same_owners(new, old)
    if same and not hooked:
        return old
    if not untouched or kind.custom is not None:  # whose rules warn of what was broken before
        refuse(target.kind, new, validate_update(kind, new, old, target.subresource, options.warn))
    chain.run("validate", backend, "update", target, new, old, options)
    if same:
        return old
    if not target.subresource:
        for warning in warnings(kind, new):
            options.warn(warning)
    return new


def swap(
    backend: Backend, target: Target, item: CachedObject, new: JsonObject, options: Options, old: JsonObject
) -> CachedObject:
    """Write ``new`` over ``item``; or remove it, if its deletion waited for just this change."""
    kind = stored_kind(target.kind)
    kept = _as_kept(kind, new)
    value = _sized(kind, kept)
    if options.dry_run:
        quotas.check(backend, kind, new, old)
        return made(item.key, kept, item.revision, kind, new)
    try:
        if strategy.ready_to_remove(kind, new):
            gone = made(item.key, kept, backend.store.delete(item.key, item.revision), kind, new)
            admission.removed(backend, target.kind, new)
            backend.wrote(gone, removed=True)
            return gone
        stored = quotas.stored(backend, kind, Put(item.key, value, item.revision), new, old)
    except ValueTooLarge as error:
        raise RequestEntityTooLarge(MAX_OBJECT_BYTES) from error
    return shown(backend, made(item.key, kept, stored.revision, kind, new), alone=stored.alone)
