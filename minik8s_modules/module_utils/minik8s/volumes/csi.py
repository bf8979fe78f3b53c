"""CSI volumes: mounted by drivers of others, at a target of the pod's; noted before a driver is asked for anything.

    record ─NodeStageVolume─▶ staging, once a node ─NodePublishVolume─▶ target, once a pod     (and back, for removal)

The record ``<state_dir>/csi/<uid>/<volume>.json`` says whom to ask to take the volume away; it is written first and
goes last, and says when the volume is ready, so that whatever a kill or a slow driver leaves is finished by the next
pass: what is mounted may still lack its group. CSI's calls may be repeated. Nothing is deleted here but records and
empty folders, which alone ``rmdir`` takes. Source: kubernetes ``pkg/volume/csi``.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Callable, NamedTuple

from ..core.faults import KeyFault
from ..core.files import read_json, write_atomically
from ..core.paths import CSI_KIND, KUBELET, component, csi_records, csi_staging, csi_target, split_key
from ..core.section import Facets, Plan, Step
from . import csi_calls, csi_secrets, mounts, persistent

Checkpoint = Callable[[str], None]
MOUNTED, UNFINISHED = "mounted", "not finished"
_ENDING = ".json"
_CALLS = frozenset({"stage", "publish", "expand"})
_STAGING = threading.Lock()
"""Held while it is decided whether a pod's volume is the node's last: two pods' volumes go side by side."""
_MODES = {  # csi.proto's VolumeCapability.AccessMode.Mode, as kubelet takes it from the first mode of a volume
    "ReadWriteOnce": 1, "ReadOnlyMany": 3, "ReadWriteMany": 5, "ReadWriteOncePod": 1,
}  # fmt: skip


class Dirs(NamedTuple):
    """Where records are kept, and where the values of Secrets stand."""

    state: str
    run: str


def check(key: str, entry: Mapping[str, Any]) -> None:
    """Raise KeyFault for a name that cannot be part of a path, or a mode nobody knows."""
    component(entry["driver"])
    if not entry["handle"]:
        raise KeyFault("InvalidEntry", f"{key}.handle is empty; it must be the driver's id of the volume")
    for call, reference in (entry.get("secrets") or {}).items():
        if call not in _CALLS:
            raise KeyFault("InvalidEntry", f"{key}.secrets has {call!r}; known are {sorted(_CALLS)}")
        split_key(reference)
    if entry.get("access_mode", "ReadWriteOnce") not in _MODES:
        raise KeyFault("InvalidEntry", f"{key}.access_mode is {entry['access_mode']!r}; known are {sorted(_MODES)}")


def is_target(path: str) -> bool:
    """Return whether a volume at ``path`` is a driver's."""
    return path.startswith(f"{KUBELET}/pods/") and os.path.basename(path) == "mount"


def records(state_dir: str) -> dict[str, dict[str, Any]]:
    """Return what was noted of each pod's volume, by key."""
    found: dict[str, dict[str, Any]] = {}
    for uid in _list(csi_records(state_dir)):
        for name in _list(os.path.join(csi_records(state_dir), uid)):
            if name.endswith(_ENDING):
                record = read_json(os.path.join(csi_records(state_dir), uid, name))
                found[f"{uid}/{name[: -len(_ENDING)]}"] = record if isinstance(record, dict) else {}
    return found


def _list(folder: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []


def places(state_dir: str) -> Iterator[tuple[str, str]]:
    """Yield each noted volume's key and target."""
    for key in records(state_dir):
        yield key, csi_target(*split_key(key))


def in_use(state_dir: str) -> list[str]:
    """Return what the Node calls the attached volumes that may be mounted, as they are noted."""
    noted = (one for one in records(state_dir).values() if one.get("driver") and one.get("attached", True))
    return sorted({f"kubernetes.io/csi/{one['driver']}^{one.get('handle', '')}" for one in noted})


def facets(state_dir: str, path: str, among: list[mounts.Mount]) -> Facets:
    """Return whose volume the one at a target is, and whether the kernel shows it."""
    record = _record_at(state_dir, path)
    mounted = MOUNTED if record.get("ready") else UNFINISHED
    return {**_identity(record), "state": mounted if is_mounted(path, among) else "not mounted", **_size(record)}


def is_ready(state_dir: str, path: str) -> bool:
    """Return whether the volume at a target may be used: mounted, and given to its group."""
    return bool(_record_at(state_dir, path).get("ready")) and is_mounted(path)


def _record_at(state_dir: str, path: str) -> dict[str, Any]:
    """Return what was noted of the volume at a target, {} for nothing."""
    uid, volume = path[len(f"{KUBELET}/pods/") :].partition("/")[0], os.path.basename(os.path.dirname(path))
    found: dict[str, Any] = read_json(record_path(state_dir, f"{uid}/{volume}")) or {}
    return found


def _identity(said: Mapping[str, Any]) -> Facets:
    return {
        "csi": f"{said.get('driver', '')} {said.get('handle', '')}",
        "mode": "ro" if said.get("read_only") else "rw",
    }


def _size(said: Mapping[str, Any]) -> Facets:
    return {"size": str(said["size_bytes"])} if said.get("size_bytes") else {}


def size_of(entry: Mapping[str, Any]) -> dict[str, int]:
    """Return the size of a realized volume, where its driver has made the file system as large."""
    made = entry["kind"] == CSI_KIND and not entry.get("inline") and not entry.get("read_only")
    return {"size_bytes": entry["size_bytes"]} if made and entry.get("size_bytes") else {}


def is_mounted(path: str, among: list[mounts.Mount] | None = None) -> bool:
    """Return whether anything is mounted at the target; whoever listed the mounts is not asked again."""
    real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    return bool(mounts.at(real, mounts.mounts() if among is None else among))


def plan(steps: Plan, key: str, entry: Mapping[str, Any], before: Facets | None) -> None:
    """Plan a declared volume: there, of that driver, and as large as is declared."""
    wanted = {**_identity(entry), "state": MOUNTED, **_size(entry)}
    if before == wanted:
        return
    target = csi_target(*split_key(key))
    detail = f"{entry['driver']} {entry['handle']} on {target}"
    same = before is not None and _identity(entry).items() <= before.items()
    if before is not None and same and before["state"] == MOUNTED:
        steps.steps.append(Step("expand", key, f"{detail} to {wanted.get('size', 'any size')}", entry))
    else:
        if before is not None and not same:
            steps.steps.append(Step("unpublish", key, target))
        steps.steps.append(Step("publish", key, detail, entry))
        if entry.get("had_bytes"):
            steps.steps.append(Step("expand", key, f"{detail} to {wanted.get('size', 'any size')}", entry))
    steps.differs(key, before, wanted)


def publish(checkpoint: Checkpoint, dirs: Dirs, key: str, entry: Mapping[str, Any]) -> None:
    """Have the driver mount the volume; it may have done any part of that before.

    Raises:
        KeyFault: FailedMount, in the driver's words; SecretMissing.
    """
    target, secrets = csi_target(*split_key(key)), csi_secrets.read(dirs.run, entry)
    with csi_secrets.hidden(secrets), csi_calls.driver(entry["driver"], "FailedMount") as caller:
        staged = csi_calls.STAGES in caller.capabilities() and not entry.get("inline")
        staging = csi_staging(entry["driver"], entry["handle"]) if staged else ""
        kept = {name: entry.get(name) for name in ("driver", "handle", "read_only")}
        kept["attached"] = "publish_context" in entry
        kept["size_bytes"] = entry.get("had_bytes") or entry.get("size_bytes")
        record = {**kept, "staging": staging, "ready": False}
        checkpoint("note volume")
        with _STAGING:
            _note(record_path(dirs.state, key), record)
        asked = {
            "volume_id": entry["handle"],
            "publish_context": entry.get("publish_context") or {},
            "volume_context": entry.get("attributes") or {},
            "volume_capability": _capability(entry),
        }
        if staging:
            os.makedirs(staging, mode=0o750, exist_ok=True)
            checkpoint("stage volume")
            caller.call("csi.v1.Node/NodeStageVolume", staging_target_path=staging, secrets=secrets["stage"], **asked)
        os.makedirs(os.path.dirname(target), mode=0o750, exist_ok=True)
        checkpoint("publish volume")
        read_only = bool(entry.get("read_only"))
        where = {"staging_target_path": staging, "target_path": target, "readonly": read_only}
        caller.call("csi.v1.Node/NodePublishVolume", secrets=secrets["publish"], **where, **asked)
    if not is_mounted(target):
        raise KeyFault("FailedMount", f"CSI driver {entry['driver']} mounted nothing at {target}: {_NOT_SHARED}")
    if entry.get("fs_group") is not None:
        persistent.own(checkpoint, target, entry["fs_group"])
    checkpoint("note that it is ready")
    _note(record_path(dirs.state, key), {**record, "ready": True})


_NOT_SHARED = (
    "its container must mount /var/lib/kubelet/pods with mountPropagation Bidirectional, and that folder must be on a "
    "shared mount"
)


def _capability(entry: Mapping[str, Any]) -> dict[str, Any]:
    mount = {"fs_type": entry.get("fs_type", ""), "mount_flags": list(entry.get("options") or ())}
    return {"mount": mount, "access_mode": {"mode": _MODES[entry.get("access_mode") or "ReadWriteOnce"]}}


def expand(checkpoint: Checkpoint, dirs: Dirs, key: str, entry: Mapping[str, Any]) -> None:
    """Have the driver give a mounted volume the size that its object has now; raises as ``publish``."""
    record, secrets = records(dirs.state)[key], csi_secrets.read(dirs.run, entry)
    with csi_secrets.hidden(secrets), csi_calls.driver(entry["driver"], "VolumeResizeFailed") as caller:
        if csi_calls.EXPANDS in caller.capabilities():
            checkpoint("expand volume")
            caller.call(
                "csi.v1.Node/NodeExpandVolume",
                volume_id=entry["handle"],
                volume_path=csi_target(*split_key(key)),
                staging_target_path=record.get("staging") or "",
                capacity_range={"required_bytes": entry.get("size_bytes") or 0},
                volume_capability=_capability(entry),
                secrets=secrets["expand"],
            )
    checkpoint("note size")
    _note(record_path(dirs.state, key), {**record, "size_bytes": entry.get("size_bytes")})


def unpublish(checkpoint: Checkpoint, state_dir: str, key: str) -> None:
    """Have the driver take the volume from the pod, and from the node with its last pod; forget it then.

    Raises:
        KeyFault: FailedUnMount; the record stays, and the next pass goes on.
    """
    record = records(state_dir).get(key)
    if record is None:
        return
    if not record.get("driver"):
        raise KeyFault("FailedUnMount", f"{record_path(state_dir, key)} does not say which driver mounted the volume")
    target = csi_target(*split_key(key))
    with csi_calls.driver(record["driver"], "FailedUnMount") as caller:
        checkpoint("unpublish volume")
        caller.call("csi.v1.Node/NodeUnpublishVolume", volume_id=record["handle"], target_path=target)
        _remove_empty(checkpoint, target)
        with _STAGING:
            tidy(os.path.dirname(target), 4)  # the volume's folder, those of the kind and of volumes, the pod's
            _unstage(checkpoint, state_dir, key, caller)
    checkpoint("remove empty folder")
    tidy(os.path.dirname(record_path(state_dir, key)), 1)


def _unstage(checkpoint: Checkpoint, state_dir: str, key: str, caller: csi_calls.Caller) -> None:
    """Forget a pod's volume; with the last pod's on this node, it is taken from the node before."""
    everything = records(state_dir)
    record = everything.pop(key)
    staging = str(record.get("staging") or "")
    if staging and all(other.get("staging") != staging for other in everything.values()):
        checkpoint("unstage volume")
        caller.call("csi.v1.Node/NodeUnstageVolume", volume_id=record["handle"], staging_target_path=staging)
        _remove_empty(checkpoint, staging)
        tidy(os.path.dirname(staging), 1)
    checkpoint("forget volume")
    os.unlink(record_path(state_dir, key))


def _remove_empty(checkpoint: Checkpoint, path: str) -> None:
    """Take an empty mount point away; raise while something is mounted there, or lies in it."""
    if is_mounted(path):
        raise KeyFault("FailedUnMount", f"the driver did not unmount it: {path} is still mounted")
    checkpoint("remove mount point")
    try:
        os.rmdir(path)
    except FileNotFoundError:  # most drivers do so
        return
    except NotADirectoryError:
        raise KeyFault("FailedUnMount", f"{path} is not a folder and was not made by minik8s; remove it") from None
    except OSError as error:
        raise KeyFault("FailedUnMount", f"{path} is not empty, and stays: {error.strerror}") from error


def tidy(folder: str, levels: int) -> None:
    """Remove a folder, and those above it up to as many as ``levels`` together, as far as they are empty or gone."""
    for _ in range(levels):
        try:
            with contextlib.suppress(FileNotFoundError):  # a run that was killed here has removed it
                os.rmdir(folder)
        except OSError:
            return  # it still holds something
        folder = os.path.dirname(folder)


def record_path(state_dir: str, key: str) -> str:
    """Return the file that notes a pod's volume."""
    uid, volume = split_key(key)
    return os.path.join(csi_records(state_dir), uid, volume + _ENDING)


def _note(path: str, value: Mapping[str, Any]) -> None:
    """Write a record, whole and to disk: it alone knows whom to ask to unmount."""
    write_atomically(path, json.dumps(value, sort_keys=True).encode(), sync=True)
