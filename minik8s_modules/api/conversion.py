"""Views: kinds whose objects are kept as another kind's; today ``events.k8s.io/v1`` Event over the core Event.

``to_storage`` and ``from_storage`` return a new object; for a kind without ``storage`` they return what they were
given. Field names follow kubernetes ``pkg/apis/events/v1/conversion.go``.
"""

from __future__ import annotations

from minik8s_modules.api.kinds import EVENT, EVENTS_EVENT, Kind
from minik8s_modules.api.objects import JsonObject

_NEW_TO_CORE = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_CORE_TO_NEW = {core: new for new, core in _NEW_TO_CORE.items()}


def stored_kind(kind: Kind) -> Kind:
    """Return the kind whose form the objects are kept in."""
    return EVENT if kind is EVENTS_EVENT else kind


def to_storage(kind: Kind, obj: JsonObject) -> JsonObject:
    """Return the object in the form it is kept in."""
    return to_storage_event(obj) if kind is EVENTS_EVENT else obj


def from_storage(kind: Kind, obj: JsonObject) -> JsonObject:
    """Return the kept object in the form of ``kind``."""
    return _renamed(obj, _CORE_TO_NEW, EVENTS_EVENT) if kind is EVENTS_EVENT else obj


def to_storage_event(obj: JsonObject) -> JsonObject:
    """Return an events.k8s.io/v1 Event as a core Event."""
    return _renamed(obj, _NEW_TO_CORE, EVENT)


def _renamed(obj: JsonObject, names: dict[str, str], kind: Kind) -> JsonObject:
    renamed = {names.get(field, field): value for field, value in obj.items()}
    return {**renamed, "apiVersion": kind.api_version, "kind": kind.kind}
