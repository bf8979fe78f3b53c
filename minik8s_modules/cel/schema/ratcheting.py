"""What an update left as it was: errors there do not count (apiserver, pkg/cel/common/equality.go)."""

from __future__ import annotations

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


def old_item(schema: Mapping[str, Any], old: Any, item: Any) -> Any:
    """Return the item of an old list of type map with the same keys, or None."""
    if schema.get("x-kubernetes-list-type") != "map" or not isinstance(old, list) or not isinstance(item, dict):
        return None
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    wanted = [item.get(key, _default(schema, key)) for key in keys]
    for each in old:
        if isinstance(each, dict) and [each.get(key, _default(schema, key)) for key in keys] == wanted:
            return each
    return None


def _default(schema: Mapping[str, Any], key: str) -> Any:
    return ((schema.get("items") or {}).get("properties") or {}).get(key, {}).get("default")


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

    def item(self, schema: Mapping[str, Any], at: int) -> Ratchet:
        """Return the ratchet of an item."""
        if self.here is None:
            return self
        new, old = self.here
        found = old_item(schema, old, new[at])
        return Ratchet(None if found is None else (new[at], found), self.here)

    def all_of(self) -> Ratchet:
        """Return the ratchet of a schema in allOf: upstream only looks above."""
        return Ratchet(None, self.above)
