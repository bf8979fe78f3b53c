"""Pruning and defaulting of custom objects: a structural schema compiled into walkers.

What no schema declares is dropped (``x-kubernetes-preserve-unknown-fields`` keeps it), absent fields get their
defaults, nulls go where they may not stand. Source: apiextensions-apiserver
``pkg/apiserver/schema/{pruning,defaulting}``.
"""

from __future__ import annotations

import copy
from typing import Any

from minik8s_modules.api.errors import MOST_TOLD
from minik8s_modules.api.objects import JsonObject

META_FIELDS = frozenset({"apiVersion", "kind", "metadata"})
_ABSENT = object()


class Filler:
    """A compiled structural schema."""

    def __init__(self, schema: JsonObject) -> None:
        self._root = _Node(schema, root=True)

    def prune(self, obj: JsonObject) -> None:
        """Drop, in place, the fields of an object that its schema does not declare."""
        self._root.prune(obj, "", None)

    def default(self, value: Any) -> None:
        """Fill in defaults, in place, and drop nulls that may not stand."""
        self._root.default(value)

    def fill(self, obj: JsonObject) -> None:
        """Prune, then default, in place."""
        self.prune(obj)
        self.default(obj)

    def unknown(self, obj: JsonObject) -> list[str]:
        """Return what names the fields that pruning would drop: ``unknown field "spec.foo"``."""
        found: list[str] = []
        self._root.prune(obj, "", found)
        return found


class _Node:
    """One schema of a structural schema, compiled."""

    __slots__ = ("_default", "_embedded", "_extra", "_fields", "_filled", "_keeps", "_nullable", "_root", "item")

    def __init__(self, schema: JsonObject, *, root: bool = False) -> None:
        self._root = root
        self._embedded = bool(schema.get("x-kubernetes-embedded-resource"))
        self._keeps = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
        self._nullable = bool(schema.get("nullable"))
        self._default = schema.get("default", _ABSENT)
        self._fields = {name: _Node(inner) for name, inner in (schema.get("properties") or {}).items()}
        extra, items = schema.get("additionalProperties"), schema.get("items")
        self._extra = _Node(extra) if isinstance(extra, dict) else _ANY if extra else None
        self.item: _Node | None = _Node(items) if isinstance(items, dict) else None
        self._filled = {name: node for name, node in self._fields.items() if node._default is not _ABSENT}  # noqa: SLF001

    def prune(self, value: Any, path: str, found: list[str] | None) -> None:
        """Drop what is not declared; with ``found`` only note it there."""
        if isinstance(value, dict):
            gone = self._pruned_fields(value, path, found)
            if found is None:
                for name in gone:
                    del value[name]
            else:
                found += [f'unknown field "{_join(path, name)}"' for name in gone[: MOST_TOLD - len(found)]]
        elif isinstance(value, list) and self.item is not None:
            for index, inner in enumerate(value):
                if isinstance(inner, dict | list):
                    self.item.prune(inner, f"{path}[{index}]" if found is not None else "", found)

    def _pruned_fields(self, value: JsonObject, path: str, found: list[str] | None) -> list[str]:
        gone = []
        for name, inner in value.items():
            if name in META_FIELDS and (self._root or self._embedded):
                continue
            node = self._fields.get(name) or self._extra
            if node is not None:
                if isinstance(inner, dict | list):
                    node.prune(inner, _join(path, name) if found is not None else "", found)
            elif not self._keeps:
                gone.append(name)
        return gone

    def default(self, value: Any) -> None:
        """Fill in what is absent; drop nulls that may not stand and have no default."""
        if isinstance(value, dict):
            for name, node in self._filled.items():
                if value.get(name, _ABSENT) is _ABSENT or (value[name] is None and not node._nullable):  # noqa: SLF001
                    value[name] = copy.deepcopy(node._default)  # noqa: SLF001
            self._default_fields(value)
        elif isinstance(value, list) and self.item is not None:
            for index, inner in enumerate(value):
                if inner is None and not self.item._nullable and self.item._default is not _ABSENT:  # noqa: SLF001
                    value[index] = inner = copy.deepcopy(self.item._default)  # noqa: SLF001, PLW2901
                if isinstance(inner, dict | list):
                    self.item.default(inner)

    def _default_fields(self, value: JsonObject) -> None:
        nulls = []
        for name, inner in value.items():
            node = self._fields.get(name) or self._extra
            if node is None:
                continue
            if inner is None:
                if not node._nullable:  # noqa: SLF001
                    nulls.append((name, node))
            elif isinstance(inner, dict | list):
                node.default(inner)
        for name, node in nulls:
            if node._default is _ABSENT:  # noqa: SLF001
                del value[name]
            else:
                value[name] = copy.deepcopy(node._default)  # noqa: SLF001


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


# what ``additionalProperties: true`` says of values: any, but nothing is declared of the objects among them
_ANY = _Node({"nullable": True})
_ANY.item = _ANY  # lists in lists
