"""How full the volumes of claims are: what their file systems say, or their drivers (NodeGetVolumeStats).

A volume is found by its entry in the node's last document. An NFS server that does not answer is asked by a program of
its own, which is left behind; a driver has as long. Volumes are asked side by side. Source: kubernetes
``pkg/volume/metrics_statfs.go``, ``pkg/volume/csi/csi_metrics.go``.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Union

from ..core.documents import load_document
from ..core.faults import KeyFault
from ..core.paths import CSI_KIND, csi_target, split_key, volume_path
from . import csi, csi_calls, nfs

AT_ONCE = 8
ASK_S = 5.0
_ON_DISK = frozenset({"hostPath", "local"})
_BYTES, _INODES = 1, 2  # VolumeUsage.Unit


Amount = Union[int, None]


class Room(NamedTuple):
    """Bytes and inodes of a volume; a driver may know only the one or the other."""

    capacity_bytes: Amount = None
    available_bytes: Amount = None
    used_bytes: Amount = None
    inodes: Amount = None
    inodes_free: Amount = None
    inodes_used: Amount = None

    def known(self) -> dict[str, int]:
        """Return what is known of it."""
        return {field: value for field, value in self._asdict().items() if value is not None}


def rooms(state_dir: str, run_dir: str, keys: Iterable[str]) -> dict[str, dict[str, int]]:
    """Return the room of each volume, ``<pod uid>/<volume>``, that is mounted and says it."""
    entries = load_document(state_dir, "volumes").entries
    wanted = {key: entries[key] for key in keys if key in entries}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = pool.map(lambda item: _room(state_dir, run_dir, *item), wanted.items())
        return {key: room.known() for key, room in zip(wanted, found) if room is not None}


def _room(state_dir: str, run_dir: str, key: str, entry: Mapping[str, Any]) -> Room | None:
    kind = entry["kind"]
    with contextlib.suppress(OSError, KeyFault, ValueError):
        if kind == CSI_KIND:
            return _of_driver(state_dir, key, entry)
        if kind in _ON_DISK:
            return _of_file_system(entry["path"])
        path = volume_path(state_dir, run_dir, *split_key(key), kind)
        return _of_server(path) if kind == nfs.KIND and nfs.is_mounted(path) else None
    return None


def _of_file_system(path: str) -> Room:
    found = os.statvfs(path)
    blocks, inodes = (found.f_blocks, found.f_bfree, found.f_bavail), (found.f_files, found.f_ffree)
    return _measured(found.f_frsize, blocks, inodes)


def _measured(block: int, blocks: tuple[int, int, int], inodes: tuple[int, int]) -> Room:
    total, free, available = blocks
    used = (total - free) * block
    return Room(total * block, available * block, used, inodes[0], inodes[1], inodes[0] - inodes[1])


def _of_server(path: str) -> Room | None:
    asking = subprocess.Popen(  # a child may wait in the kernel; this process may not
        ("stat", "-f", "-c", "%S %b %f %a %c %d", "--", path), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    try:
        output, _ = asking.communicate(timeout=ASK_S)
    except subprocess.TimeoutExpired:
        asking.kill()  # and not waited for: it ends when the kernel lets it
        return None
    block, total, free, available, inodes, inodes_free = map(int, output.split())
    return _measured(block, (total, free, available), (inodes, inodes_free))


def _of_driver(state_dir: str, key: str, entry: Mapping[str, Any]) -> Room | None:
    """Ask a driver about a volume that it has published; of others nothing is known (kubelet's metricsCsi)."""
    record = csi.records(state_dir).get(key) or {}
    if not record.get("ready"):
        return None
    with csi_calls.driver(entry["driver"], "VolumeStats", timeout_s=ASK_S) as caller:
        if csi_calls.STATS not in caller.capabilities():
            return None
        answer = caller.call(
            "csi.v1.Node/NodeGetVolumeStats",
            volume_id=entry["handle"],
            volume_path=csi_target(*split_key(key)),
            staging_target_path=record.get("staging") or "",
        )
    by_unit = {row["unit"]: row for row in answer["usage"]}
    size, inodes = by_unit.get(_BYTES), by_unit.get(_INODES)
    room = Room(*(size[field] for field in ("total", "available", "used"))) if size else Room()
    if inodes:
        room = room._replace(inodes=inodes["total"], inodes_free=inodes["available"], inodes_used=inodes["used"])
    return room if size or inodes else None
