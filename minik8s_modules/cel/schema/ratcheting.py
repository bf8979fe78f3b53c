"""What an update left as it was: errors there do not count (apiserver, pkg/cel/common/equality.go)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Pair = tuple[Any, Any]  # new and old value


def same_json(one: Any, other: Any) -> bool:
    """Return whether two values are the same JSON; true is not 1, 1 is 1.0."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_json(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_json, one, other))
    return bool(one == other)


class OldItems:
    """The items of an old list of type map by their keys; nothing is found in other lists."""

    def __init__(self, schema: Mapping[str, Any], old: Any) -> None:
        mapped = schema.get("x-kubernetes-list-type") == "map" and isinstance(old, list)
        properties = (schema.get("items") or {}).get("properties") or {}
        keys = schema.get("x-kubernetes-list-map-keys") or () if mapped else ()
        self._keys = [(key, (properties.get(key) or {}).get("default")) for key in keys]
        self._known = {self._key(item): item for item in reversed(old)} if mapped else {}

    def find(self, item: Any) -> Any:
        """Return the old item with the same keys, or None."""
        return self._known.get(self._key(item)) if self._known and isinstance(item, dict) else None

    def _key(self, item: Any) -> str:
        if not isinstance(item, dict):
            return ""
        return json.dumps([item.get(key, default) for key, default in self._keys])


@dataclass(frozen=True, slots=True)
class Ratchet:
    """The value here and its old one, or else those of the nearest place above that has an old one."""

    here: Pair | None = None
    above: Pair | None = None

    def unchanged(self) -> bool:
        """Return whether errors here do not count."""
        pair = self.here or self.above
        return pair is not None and same_json(*pair)

    def key(self, name: str) -> Ratchet:
        """Return the ratchet of a field or entry."""
        if self.here is None:
            return self
        if self.above is None and name in {"apiVersion", "kind"}:
            return Ratchet()
        new, old = self.here
        if not isinstance(old, dict) or name not in old:
            return Ratchet(None, self.here)
        return Ratchet((new[name], old[name]), self.here)

    def item(self, new: Any, old: Any) -> Ratchet:
        """Return the ratchet of an item; ``old`` is the item with the same keys, or None."""
        if self.here is None:
            return self
        return Ratchet(None if old is None else (new, old), self.here)

    def all_of(self) -> Ratchet:
        """Return the ratchet of a schema in allOf: upstream only looks above."""
        return Ratchet(None, self.above)
