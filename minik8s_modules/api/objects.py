"""Objects are plain JSON dictionaries; these accessors read the parts every room asks for and never fail on absence.

A missing map or list reads as an empty one (Kubernetes' zero values). The accessors that return a map return the
object's own map where there is one: treat it as read-only, and use ``metadata`` to get a map that may be written to.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")
JsonObject = dict[str, Any]
MISREAD = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What reading a value as another type than it has ends in: whoever writes into the store by hand is not checked."""


class Key(NamedTuple):
    """Namespace and name; the namespace is empty for cluster-scoped objects."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """Return ``namespace/name``, or ``name`` alone for a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


_TOLD: set[tuple[str, Key, str, str]] = set()
_TOLD_MOST = 1024


def metadata(obj: JsonObject) -> JsonObject:
    """Return the object's metadata map, putting an empty one in when there is none."""
    meta = obj.get("metadata")
    if not isinstance(meta, dict):
        meta = obj["metadata"] = {}
    return meta


def _meta(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    return obj.get("metadata") or {}


def name(obj: Mapping[str, Any]) -> str:
    """Return ``metadata.name`` or ""."""
    return str(_meta(obj).get("name") or "")


def namespace(obj: Mapping[str, Any]) -> str:
    """Return ``metadata.namespace`` or ""."""
    return str(_meta(obj).get("namespace") or "")


def uid(obj: Mapping[str, Any]) -> str:
    """Return ``metadata.uid`` or ""."""
    return str(_meta(obj).get("uid") or "")


def key(obj: Mapping[str, Any]) -> Key:
    """Return namespace and name of the object."""
    return Key(namespace(obj), name(obj))


def resource_version(obj: Mapping[str, Any]) -> str:
    """Return ``metadata.resourceVersion`` or ""."""
    return str(_meta(obj).get("resourceVersion") or "")


def generation(obj: Mapping[str, Any]) -> int:
    """Return ``metadata.generation`` or 0."""
    return int(_meta(obj).get("generation") or 0)


def labels(obj: Mapping[str, Any]) -> dict[str, str]:
    """Return ``metadata.labels`` or an empty map."""
    return _meta(obj).get("labels") or {}


def annotations(obj: Mapping[str, Any]) -> dict[str, str]:
    """Return ``metadata.annotations`` or an empty map."""
    return _meta(obj).get("annotations") or {}


def finalizers(obj: Mapping[str, Any]) -> list[str]:
    """Return ``metadata.finalizers`` or an empty list."""
    return _meta(obj).get("finalizers") or []


def owner_references(obj: Mapping[str, Any]) -> list[JsonObject]:
    """Return ``metadata.ownerReferences`` or an empty list."""
    return _meta(obj).get("ownerReferences") or []


def controller_of(obj: Mapping[str, Any]) -> JsonObject | None:
    """Return the owner reference with ``controller: true``, or None."""
    for reference in owner_references(obj):  # asked of each pod some twenty times with each of its changes
        if reference.get("controller"):
            return reference
    return None


def deletion_timestamp(obj: Mapping[str, Any]) -> str:
    """Return ``metadata.deletionTimestamp`` or "" when the object is not being deleted."""
    return str(_meta(obj).get("deletionTimestamp") or "")


def is_deleting(obj: Mapping[str, Any]) -> bool:
    """Return whether the object's deletion was asked for."""
    return bool(deletion_timestamp(obj))


def spec(obj: Mapping[str, Any]) -> JsonObject:
    """Return ``spec`` or an empty map."""
    return obj.get("spec") or {}


def status(obj: Mapping[str, Any]) -> JsonObject:
    """Return ``status`` or an empty map."""
    return obj.get("status") or {}


def containers(pod: Mapping[str, Any]) -> list[JsonObject]:
    """Return the pod's app containers."""
    return spec(pod).get("containers") or []


def init_containers(pod: Mapping[str, Any]) -> list[JsonObject]:
    """Return the pod's init containers, in order."""
    return spec(pod).get("initContainers") or []


def lasting_containers(pod: Mapping[str, Any]) -> list[JsonObject]:
    """Return the containers that run as long as the pod: sidecars (restarted always), then the app's."""
    return [*(one for one in init_containers(pod) if one.get("restartPolicy") == "Always"), *containers(pod)]


def condition(obj: Mapping[str, Any], kind: str) -> JsonObject | None:
    """Return the status condition of type ``kind``, or None."""
    entries: list[JsonObject] = status(obj).get("conditions") or []
    for entry in entries:
        if entry.get("type") == kind:
            return entry
    return None


def condition_since(
    kind: str, status: str, why: tuple[str, str], before: Sequence[Mapping[str, Any]], now: str
) -> JsonObject:
    """Return a condition with its reason and message; it has been so since ``before``, where that says the same."""
    old = next((each for each in before if each.get("type") == kind and each.get("status") == status), None)
    since = (old or {}).get("lastTransitionTime") or now
    return {"type": kind, "status": status, "reason": why[0], "message": why[1], "lastTransitionTime": since}


def readable(objs: Iterable[JsonObject], read: Callable[[JsonObject], object]) -> list[JsonObject]:
    """Return the objects that ``read`` can read: who decides about many at once goes on without the others."""
    found = []
    for obj in objs:
        try:
            read(obj)
            found.append(obj)
        except MISREAD as error:
            tell_misread(obj, error, "is left out", traced=False)
    return found


def tell_misread(obj: JsonObject, error: Exception, outcome: str, *, traced: bool = True) -> None:
    """Log that an object cannot be read and what becomes of it: once of each state, however often somebody looks."""
    state = (str(obj.get("kind")), key(obj), resource_version(obj), outcome)
    if state in _TOLD:
        return
    if len(_TOLD) >= _TOLD_MOST:
        _TOLD.clear()
    _TOLD.add(state)
    log.warning("%s %s cannot be read and %s: %r", *state[:2], outcome, error, exc_info=error if traced else None)


def decided(
    objs: Iterable[JsonObject], decide: Callable[[list[JsonObject]], T], read: Callable[[JsonObject], object]
) -> T:
    """Return what is decided about all objects; where one cannot be read, about those that ``read`` can read."""
    every = [*objs]
    try:
        return decide(every)
    except MISREAD:
        return decide(readable(every, read))


def object_reference(obj: Mapping[str, Any]) -> JsonObject:
    """Return a v1 ObjectReference to the object, as Events carry it."""
    fields = {
        "apiVersion": obj.get("apiVersion"),
        "kind": obj.get("kind"),
        "namespace": namespace(obj),
        "name": name(obj),
        "uid": uid(obj),
        "resourceVersion": resource_version(obj),
    }
    return {field: value for field, value in fields.items() if value}


def dig(obj: Any, *path: str | int) -> Any:
    """Return what stands at ``path``, or None where a step is missing or of another shape."""
    for step in path:
        if isinstance(
            obj, dict
        ):  # most steps; one that is missing is no exception, which would cost five times as much
            obj = obj.get(step)
            continue
        try:
            obj = obj[step]
        except (KeyError, IndexError, TypeError):
            return None
    return obj


def all_containers(pod: Mapping[str, Any]) -> Iterator[tuple[str, int, JsonObject]]:
    """Yield (field name, index, container) of init containers, then app containers."""
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec(pod).get(field) or []):
            yield field, index, container


def every_container(pod: Mapping[str, Any]) -> Iterator[tuple[str, int, JsonObject]]:
    """Yield what ``all_containers`` does, then ephemeral containers, which have no resources of their own."""
    yield from all_containers(pod)
    for index, container in enumerate(spec(pod).get("ephemeralContainers") or []):
        yield "ephemeralContainers", index, container
