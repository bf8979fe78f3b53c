"""The CSINode of a node: its drivers, as sidecars and the scheduler read them.

Source: kubernetes ``pkg/volume/csi/nodeinfomanager``. Labels that drivers give a Node stay when a driver goes, as
kubelet's do: volumes are bound to them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from minik8s_modules.api import objects
from minik8s_modules.api.errors import AlreadyExists, NotFound
from minik8s_modules.api.kinds import CSI_NODE, NODE
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.client.interface import Api

_MOST = 2**31 - 1
NODE_IDS = "csi.volume.kubernetes.io/nodeid"
Drivers = Mapping[str, JsonObject]
"""By name what a driver says of the node: ``{"node_id", "max_volumes", "topology"}``."""


def rows(drivers: Drivers) -> list[JsonObject]:
    """Return ``spec.drivers`` of the CSINode."""
    return [_row(name, drivers[name]) for name in sorted(drivers)]


def _row(name: str, said: JsonObject) -> JsonObject:
    row: JsonObject = {"name": name, "nodeID": str(said.get("node_id") or "")}
    if keys := sorted(said.get("topology") or {}):
        row["topologyKeys"] = keys
    most = min(int(said.get("max_volumes") or 0), _MOST)
    return row | {"allocatable": {"count": most}} if most > 0 else row


def node_changes(node: JsonObject, drivers: Drivers) -> JsonObject:
    """Return the patch that gives a Node the drivers' labels and ids; {} for none."""
    labels = {key: str(value) for said in drivers.values() for key, value in (said.get("topology") or {}).items()}
    new = {key: value for key, value in labels.items() if objects.labels(node).get(key) != value}
    ids = json.dumps({name: said.get("node_id") for name, said in sorted(drivers.items())}, separators=(",", ":"))
    marks = objects.annotations(node)
    wanted = {NODE_IDS: ids if drivers else None}
    meta: JsonObject = {"labels": new} if new else {}
    if marks.get(NODE_IDS) != wanted[NODE_IDS]:
        meta["annotations"] = wanted
    return {"metadata": meta} if meta else {}


def write(api: Api, node: JsonObject, drivers: Drivers) -> None:
    """Write the CSINode and what the Node says of drivers; raises as the API does."""
    changes = node_changes(node, drivers)
    if changes:
        api.patch(NODE, objects.name(node), "", changes)
    wanted = rows(drivers)
    try:
        there = api.get(CSI_NODE, objects.name(node))
    except NotFound:
        there = _create(api, node, wanted)
    before = objects.spec(there).get("drivers") or []
    if before == wanted:
        return
    known = {row["name"]: row for row in before}
    kept = [row for row in wanted if _may_become(known.get(row["name"]), row)]
    for step in [kept, wanted] if kept != wanted else [wanted]:  # a driver with another id goes first
        there = api.update(CSI_NODE, {**there, "spec": {"drivers": step}})


def _may_become(before: JsonObject | None, row: JsonObject) -> bool:
    fixed = ("nodeID", "topologyKeys")
    return before is None or all(before.get(field) == row.get(field) for field in fixed)


def _create(api: Api, node: JsonObject, wanted: list[JsonObject]) -> JsonObject:
    owner = {"apiVersion": "v1", "kind": "Node", "name": objects.name(node), "uid": objects.uid(node)}
    meta = {"name": objects.name(node), "ownerReferences": [owner]}
    try:
        return api.create(CSI_NODE, {"metadata": meta, "spec": {"drivers": wanted}})
    except AlreadyExists:
        return api.get(CSI_NODE, objects.name(node))
