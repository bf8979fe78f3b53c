"""What is wrong with a custom object, and what of it was wrong before: that may stay (ratcheting, KEP-4008)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject

Path = tuple[str | int, ...]
_ABSENT = object()


class Fault(NamedTuple):
    """One thing that is wrong: where, how it is told, and whether it is about a field that is not there."""

    path: Path
    tell: Callable[[str], Cause]
    absent: bool = False

    def below(self, step: str | int) -> Fault:
        """Return the fault as seen from one level further up."""
        return self._replace(path=(step, *self.path))


def unchanged(fault: Fault, new: Any, old: Any, schema: Any) -> bool:
    """Return whether the value that is at fault, or one that it stands in, is what it was."""
    if new == old:
        return True
    for step in fault.path[:-1] if fault.absent else fault.path:
        new, old, schema = _step(step, new, old, schema if isinstance(schema, dict) else {})
        if old is _ABSENT or new == old:
            return old is not _ABSENT
    return False


def _step(step: str | int, new: Any, old: Any, schema: JsonObject) -> tuple[Any, Any, Any]:
    if isinstance(step, str):
        inner = (schema.get("properties") or {}).get(step) or schema.get("additionalProperties")
        return new[step], old.get(step, _ABSENT) if isinstance(old, dict) else _ABSENT, inner
    keys = schema.get("x-kubernetes-list-map-keys")
    item = new[step]
    if not keys or not isinstance(item, dict) or not isinstance(old, list):
        return item, _ABSENT, schema.get("items")
    same = [each for each in old if isinstance(each, dict) and all(each.get(key) == item.get(key) for key in keys)]
    return item, same[0] if len(same) == 1 else _ABSENT, schema.get("items")
