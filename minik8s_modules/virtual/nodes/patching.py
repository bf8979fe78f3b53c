"""What to change of a Node: a three-way strategic merge of what was applied last, is wanted, and is there. Pure.

What was applied last stands in two annotations of the Node, under virtual-kubelet's names. What others have put beside
it (conditions, labels, annotations) is nobody's business here and stays. Source: virtual-kubelet ``node/node.go``
(``prepareThreeWayPatchBytesForNodeStatus``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject

LAST_STATUS = "virtual-kubelet.io/last-applied-node-status"
LAST_META = "virtual-kubelet.io/last-applied-object-meta"
_MERGED_BY = {"conditions": "type", "addresses": "type"}
"""Lists of a Node's status that strategic merge patches by a key; others are replaced."""
_TIMES = ("lastHeartbeatTime", "lastTransitionTime")


class NodePatch(NamedTuple):
    """Bodies of two patches, empty where there is nothing to change: of the Node itself, and of its status."""

    meta: JsonObject
    status: JsonObject


def node_patch(wanted: JsonObject, current: JsonObject) -> NodePatch:
    """Return what makes ``current`` what ``wanted`` says, as far as ``wanted`` has ever said it."""
    last_status, last_meta = _last(current, LAST_STATUS), _last(current, LAST_META)
    meta = {"labels": objects.labels(wanted), "annotations": _own(objects.annotations(wanted))}
    noted = {LAST_STATUS: _text(_timeless(objects.status(wanted))), LAST_META: _text(meta)}
    new = {**meta, "annotations": {**meta["annotations"], **noted}}
    old = {**last_meta, "annotations": {**(last_meta.get("annotations") or {}), **dict.fromkeys(noted, "")}}
    present = {"labels": objects.labels(current), "annotations": objects.annotations(current)}
    changed = _maps(old, new, present)
    return NodePatch(
        {"metadata": changed} if changed else {},
        _maps(last_status, objects.status(wanted), objects.status(current)),
    )


def _last(node: JsonObject, annotation: str) -> JsonObject:
    """Return what was applied last; what somebody has made unreadable counts as nothing."""
    try:
        found = json.loads(objects.annotations(node).get(annotation) or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _own(annotations: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in annotations.items() if key not in {LAST_STATUS, LAST_META}}


def _timeless(status: JsonObject) -> JsonObject:
    """Return the status without times, so that a heartbeat alone changes no annotation."""
    conditions = [
        {key: value for key, value in each.items() if key not in _TIMES} for each in status.get("conditions") or []
    ]
    return {**status, "conditions": conditions}


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def _maps(last: Mapping[str, Any], wanted: Mapping[str, Any], current: Mapping[str, Any]) -> JsonObject:
    patch: JsonObject = {}
    for key, value in wanted.items():
        present = current.get(key)
        if value == present:
            continue
        if isinstance(value, dict) and isinstance(present, dict):
            before = last.get(key)
            if inner := _maps(before if isinstance(before, dict) else {}, value, present):
                patch[key] = inner
        elif key in _MERGED_BY:
            if rows := _lists(last.get(key) or [], value, present or [], _MERGED_BY[key]):
                patch[key] = rows
        else:
            patch[key] = value
    return patch | {key: None for key in last if key not in wanted and key in current}


def _lists(last: list[JsonObject], wanted: list[JsonObject], current: list[JsonObject], key: str) -> list[JsonObject]:
    present = {each.get(key): each for each in current}
    changes = ((each[key], _maps({}, each, present.get(each[key]) or {})) for each in wanted)
    rows = [{key: name, **changed} for name, changed in changes if changed]
    named = {each[key] for each in wanted}
    gone = (each.get(key) for each in last if each.get(key) not in named)
    return [*rows, *({"$patch": "delete", key: each} for each in gone if each in present)]
