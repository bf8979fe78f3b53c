"""Which node makes, and deletes, the folder of which volume that was made for a claim: the section ``folders``. Pure.

A folder is on the machine that has the data: the host a volume on a machine's disk names, the node whose address an
NFS volume has as its server. Pods that use it may run elsewhere.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.storage import claims
from minik8s_modules.api.storage.matching import reaches_node
from minik8s_modules.reconcile.values.values import Entry


def folders(volumes: Iterable[JsonObject], nodes: Iterable[JsonObject]) -> dict[str, dict[str, Entry]]:
    """Return the section ``folders`` of each of ``nodes`` that has any, by the node's name.

    An address that two nodes have is nobody's: one of them may have it from a machine that lies.
    """
    machines = sorted(nodes, key=objects.name)
    by_address: dict[str, JsonObject | None] = {}
    for machine in machines:
        for address in {str(each.get("address")) for each in _addresses(machine)}:
            by_address[address] = None if address in by_address else machine
    found: dict[str, dict[str, Entry]] = {}
    for volume in sorted(filter(claims.is_ours, volumes), key=objects.name):
        path, node = _place(volume, machines, by_address)
        if node is not None and (entry := _entry(volume, path)):
            found.setdefault(objects.name(node), {})[objects.name(volume)] = entry
    return found


def _addresses(node: JsonObject) -> list[JsonObject]:
    return objects.status(node).get("addresses") or []


def _place(
    volume: JsonObject, nodes: Iterable[JsonObject], by_address: Mapping[str, JsonObject | None]
) -> tuple[str, JsonObject | None]:
    """Return a volume's folder and the node that has it, None where no node does."""
    declared = objects.spec(volume)
    if declared.get("nfs"):
        return str(declared["nfs"].get("path") or ""), by_address.get(str(declared["nfs"].get("server") or ""))
    path = str(objects.dig(declared, "hostPath", "path") or "")
    here = [each for each in nodes if reaches_node(volume, each)] if path and declared.get("nodeAffinity") else []
    return path, here[0] if len(here) == 1 else None


def _entry(volume: JsonObject, path: str) -> Entry | None:
    root, name = posixpath.split(posixpath.normpath(path))
    state = "present"
    if objects.is_deleting(volume):
        if not is_to_go(volume):
            return None
        state = "absent"
    entry: Entry = {"root": root, "name": name, "owner": objects.uid(volume), "state": state}
    size = {"size_bytes": int(claims.capacity(volume))} if claims.is_limited(volume) and state == "present" else {}
    exported = {"exported": True} if objects.spec(volume).get("nfs") else {}
    return {**entry, **size, **exported}


def is_to_go(volume: JsonObject) -> bool:
    """Return whether a volume waits for its folder to be deleted, and nobody can have it any more."""
    held = objects.finalizers(volume)
    bound = objects.status(volume).get("phase") == "Bound" or claims.VOLUME_PROTECTION in held
    policy = objects.spec(volume).get("persistentVolumeReclaimPolicy")
    return objects.is_deleting(volume) and claims.VOLUME_FOLDER in held and policy == "Delete" and not bound
