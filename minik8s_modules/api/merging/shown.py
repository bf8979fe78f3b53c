"""What a person is shown of a change: two objects without what every write changes, and without values of Secrets."""

from __future__ import annotations

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import SECRET, Kind
from minik8s_modules.api.merging.apply import LAST_APPLIED
from minik8s_modules.api.objects import JsonObject

# what a write changes whatever it says, and what only the cluster writes
_OF_THE_SERVER = ("resourceVersion", "generation", "uid", "creationTimestamp")


def pair_shown(
    kind: Kind, before: JsonObject | None, after: JsonObject, manager: str = ""
) -> tuple[JsonObject | None, JsonObject]:
    """Return both as a person is shown them: no status, of their owners only ``manager``, no values of Secrets."""
    old = None if before is None else _stripped(before, manager)
    new = _stripped(after, manager)
    if kind is SECRET:
        for field in ("data", "stringData"):
            _hide(old, new, field)
    return old, new


def _hide(old: JsonObject | None, new: JsonObject, field: str) -> None:
    """Replace the values of a Secret's field; that they differ is told, no more."""
    was, is_now = (old or {}).get(field) or {}, new.get(field) or {}
    if is_now:
        new[field] = {
            name: "hidden" if was.get(name, value) == value else "hidden (changed)" for name, value in is_now.items()
        }
    if old is not None and was:
        old[field] = dict.fromkeys(was, "hidden")


def _stripped(obj: JsonObject, manager: str) -> JsonObject:
    metadata = {name: value for name, value in objects.metadata(obj).items() if name not in _OF_THE_SERVER}
    own = [
        {name: value for name, value in entry.items() if name != "time"}
        for entry in metadata.pop("managedFields", None) or []
        if entry.get("manager") == manager and entry.get("operation") == "Apply"
    ]
    if own:
        metadata["managedFields"] = own
    annotations = metadata.pop("annotations", None) or {}
    if kept := {name: value for name, value in annotations.items() if name != LAST_APPLIED}:
        metadata["annotations"] = kept
    return {**{name: value for name, value in obj.items() if name != "status"}, "metadata": metadata}
