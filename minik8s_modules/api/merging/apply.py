"""Client-side apply: live object, last applied manifest and new manifest become the next object.

The same three-way rule as kubectl's, on the same annotation, so both tools can be used on one object. Fields the last
manifest had and the new one lacks are removed; everything else of the live object stays (source: kubernetes.io,
"Declarative Management of Kubernetes Objects Using Configuration Files", how apply calculates differences).
"""

from __future__ import annotations

import copy
import json
from typing import Any

from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.merging.strategic_merge import strategic_merge
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.schema.structural import Shape, kind_shape

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def annotated(manifest: JsonObject) -> JsonObject:
    """Return a copy of ``manifest`` that remembers itself in the last-applied annotation."""
    result = copy.deepcopy(manifest)
    annotations = result.setdefault("metadata", {}).setdefault("annotations", {})
    annotations.pop(LAST_APPLIED, None)
    remembered = json.dumps(result, sort_keys=True, separators=(",", ":")) + "\n"
    annotations[LAST_APPLIED] = remembered
    return result


def last_applied(live: JsonObject) -> JsonObject:
    """Return the manifest that was applied last; empty when the object was not made by apply."""
    text = live.get("metadata", {}).get("annotations", {}).get(LAST_APPLIED, "")
    try:
        value = json.loads(text) if text else {}
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def next_object(kind: Kind, live: JsonObject, manifest: JsonObject) -> JsonObject:
    """Return ``live`` with ``manifest`` merged in and what the last manifest had alone taken out."""
    wanted = annotated(manifest)
    removed = deletions(last_applied(live), last_applied(wanted), kind_shape(kind))
    merged = strategic_merge(kind, live, removed) if removed else live
    return strategic_merge(kind, merged, wanted)


def deletions(old: JsonObject, new: JsonObject, shape: Shape | None) -> JsonObject:
    """Return the strategic merge patch that removes what ``old`` has and ``new`` lacks.

    ``shape`` is the type both have; lists without a merge key are left to the merge, which replaces them.
    """
    patch: JsonObject = {}
    for name, value in old.items():
        inner = _field(shape, name)
        if name not in new:
            patch[name] = None
        elif isinstance(value, dict) and isinstance(new[name], dict):
            if gone := deletions(value, new[name], inner):
                patch[name] = gone
        elif _is_keyed_list(inner, value) and isinstance(new[name], list):
            patch |= {name: entries} if (entries := _list_deletions(value, new[name], inner)) else {}
    return patch


def _field(shape: Shape | None, name: str) -> Shape | None:
    if shape is None:
        return None
    if shape.kind == "map":
        return shape.items
    # fields are compiled when first asked for by index; .get would see only those asked for before
    return shape.fields[name] if name in shape.fields else None  # noqa: SIM401


def _is_keyed_list(shape: Shape | None, value: Any) -> bool:
    return isinstance(value, list) and shape is not None and "merge" in shape.merge.strategies and bool(shape.merge.key)


def _list_deletions(old: list[Any], new: list[Any], shape: Shape | None) -> list[JsonObject]:
    if shape is None:
        return []
    key = shape.merge.key
    kept = {entry[key]: entry for entry in new if key in entry}
    entries: list[JsonObject] = []
    for entry in old:
        if entry.get(key) not in kept:
            entries.append({"$patch": "delete", key: entry.get(key)})
        elif gone := deletions(entry, kept[entry[key]], shape.items):
            entries.append({**gone, key: entry[key]})
    return entries


def difference(old: JsonObject, new: JsonObject) -> JsonObject:
    """Return the merge patch (RFC 7386) that makes ``new`` of ``old``; a list that differs is given whole."""
    patch: JsonObject = {name: None for name in old if name not in new}
    for name, value in new.items():
        before = old.get(name)
        if isinstance(before, dict) and isinstance(value, dict):
            if inner := difference(before, value):
                patch[name] = inner
        elif value != before or name not in old:
            patch[name] = value
    return patch
