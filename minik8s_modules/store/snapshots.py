"""Snapshots, and what a restored store needs before anybody may use it.

A restored etcd is the past: its revision is lower than what clients have seen, and a reconciler cut off since
could still hold a fencing token that looks newer. So a snapshot is *adjusted* before it is served:

1. the revision is raised by a billion, as etcd's documentation advises, so that no resourceVersion given out
after
   the snapshot comes again. It need not be known how far the lost store had got;
2. what lies before is marked as compacted: every watch and every continued list from before is told to list
again; 3. the cluster epoch, first half of every fencing token, is raised: max(epoch in the store + 1, Unix
seconds now).

etcdutl does 1 and 2 where it can (3.5.9 and newer). For older ones bolt.py raises the revision in the file: a
billion writes would take a day, and an offset added by the store would cost on every call for ever.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import orjson

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import rfc3339
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.store import bolt, tools
from minik8s_modules.store.errors import StoreError, StoreUnavailable
from minik8s_modules.store.interface import Store
from minik8s_modules.store.tools import Member, Snapshot, ToolError
from minik8s_modules.store.wire.connection import Tls

BUMP = 1_000_000_000
ETCD_USER = "minik8s-etcd"  # roles/etcd
SCRATCH_KEY = "/minik8s/restored"
EPOCH_KEY = "/registry/core/configmaps/kube-system/minik8s-cluster"


class Adjusted(NamedTuple):
    """What ``adjust`` changed; ``epoch_before`` is 0 where the snapshot had none."""

    revision_before: int
    revision: int
    epoch_before: int
    epoch: int


def save(endpoints: Sequence[str], tls: Tls | None, file: Path) -> Snapshot:
    """Write a snapshot of the first member that gives one to ``file`` (mode 0600).

    Raises:
        ToolError: no member gave one; the message says why.
        ConfigurationError: the file's directory does not exist.
    """
    if not file.parent.is_dir():
        raise ConfigurationError(f"cannot write {file}: there is no directory {file.parent}")
    failures = []
    for endpoint in endpoints:
        try:
            tools.save(endpoint, tls, file)
            return tools.status(file)
        except (ToolError, StoreUnavailable) as error:
            failures.append(f"{endpoint}: {error}")
    raise ToolError("; ".join(failures))


def restore(file: Path, data_dir: Path, member: Member, *, owner: str = "", epoch_at_least: int = 0) -> Adjusted:
    """Adjust the snapshot ``file`` and make ``data_dir`` from it; for ``owner`` see ``place``."""
    check_free(data_dir)
    with tempfile.TemporaryDirectory(prefix=".minik8s-restore-", dir=data_dir.parent) as work:
        adjusted = Path(work) / "adjusted"
        report = adjust(file, adjusted, epoch_at_least=epoch_at_least)
        place(adjusted, data_dir, member, owner=owner)
    return report


def place(file: Path, data_dir: Path, member: Member, *, owner: str = "") -> None:
    """Make ``data_dir`` from a snapshot as it is.

    Args:
        file: the snapshot.
        data_dir: must not exist, or be empty.
        member: whose data it shall be.
        owner: the user etcd runs as. "": whoever owned the empty directory, else our installation's user if
            the machine has it, else the owner of the parent directory.
    """
    check_free(data_dir)
    user_id, group_id = _owner(data_dir, owner)
    if data_dir.exists():
        data_dir.rmdir()
    tools.restore(file, data_dir, member)
    data_dir.chmod(0o700)
    for path in (data_dir, *data_dir.rglob("*")):
        os.chown(path, user_id, group_id)


def _owner(data_dir: Path, name: str) -> tuple[int, int]:
    try:
        found = pwd.getpwnam(name or ETCD_USER)
    except KeyError as error:
        if name:
            raise ConfigurationError(f"there is no user {name} to own {data_dir}") from error
        found = None
    if found and (name or not data_dir.exists()):
        return found.pw_uid, found.pw_gid
    model = (data_dir if data_dir.exists() else data_dir.parent).stat()
    return model.st_uid, model.st_gid


def adjust(file: Path, destination: Path, *, epoch_at_least: int = 0, now: Callable[[], float] = time.time) -> Adjusted:
    """Write to ``destination`` the snapshot ``file`` with raised revision and epoch; ``file`` stays as it is.

    Raises:
        ToolError: etcd's programs refuse the file (cut off, changed), or cannot serve it.
    """
    before = tools.status(file)
    with tempfile.TemporaryDirectory(prefix=".minik8s-adjust-", dir=destination.parent) as work:
        data_dir = Path(work) / "data"
        target = before.revision + BUMP
        if tools.can_bump():
            tools.restore(file, data_dir, Member(), bump=BUMP)
        else:
            tools.restore(file, data_dir, Member())
            _raise_in_place(data_dir, target)
        with tools.temporary_etcd(data_dir) as etcd:
            revision = etcd.store.revision()
            if revision < target:
                raise ToolError(f"etcd is at revision {revision} after the restore instead of {target}")
            old, new = raise_epoch(etcd.store, max(epoch_at_least, int(now())))
            etcd.store.compact(revision)
            tools.save(etcd.endpoint, None, destination)
            return Adjusted(before.revision, etcd.store.revision(), old, new)


def raise_epoch(store: Store, at_least: int) -> tuple[int, int]:
    """Raise the cluster epoch in the store to ``at_least``, or by one.

    Returns:
        The epoch before (0: there was none) and the new one.
    """
    entry = store.get(EPOCH_KEY)
    found = orjson.loads(entry.value) if entry else _new_cluster_object()
    before = _epoch_of(found)
    after = max(before + 1, at_least)
    found["data"] = {**(found.get("data") or {}), "epoch": str(after)}
    if entry:
        store.update(EPOCH_KEY, orjson.dumps(found), entry.revision)
    else:
        store.create(EPOCH_KEY, orjson.dumps(found))
    return before, after


def check_free(data_dir: Path) -> None:
    """Raise ConfigurationError unless a data directory can be made at ``data_dir``."""
    if not data_dir.parent.is_dir():
        raise ConfigurationError(f"cannot make {data_dir}: there is no directory {data_dir.parent}")
    if data_dir.exists() and (not data_dir.is_dir() or any(data_dir.iterdir())):
        raise ConfigurationError(
            f"{data_dir} is not empty; stop etcd and move it away first: mv {data_dir} {data_dir}.before-restore"
        )


def _raise_in_place(data_dir: Path, target: int) -> None:
    with tools.temporary_etcd(data_dir) as etcd:
        entry = etcd.store.get(SCRATCH_KEY)
        # the scratch key must be new: bolt.py moves the last write, and an object's own revision must not
        # move
        if entry:
            etcd.store.delete(SCRATCH_KEY, entry.revision)
        digest = _digest(etcd.store)
        etcd.store.create(SCRATCH_KEY, b"the revision was raised here")
    bolt.raise_last_revision(data_dir / "member" / "snap" / "db", target, SCRATCH_KEY.encode())
    with tools.temporary_etcd(data_dir) as etcd:
        if _digest(etcd.store) != digest:
            raise StoreError("the objects changed while their store's revision was raised; the snapshot is untouched")


def _digest(store: Store) -> str:
    """Return a hash over every object's key, revision and bytes."""
    total = hashlib.sha256()
    start = "/registry/"
    while True:
        page = store.range("/registry/", limit=2_000, start=start)
        for entry in page.entries:
            total.update(f"{entry.key}\0{entry.revision}\0{len(entry.value)}\0".encode() + entry.value)
        if not page.remaining:
            return total.hexdigest()
        start = page.entries[-1].key + "\0"


def _epoch_of(cluster: JsonObject) -> int:
    text = (cluster.get("data") or {}).get("epoch", "0")
    try:
        return int(text)
    except ValueError as error:
        raise StoreError(
            f"the cluster epoch {text!r} in ConfigMap kube-system/minik8s-cluster is not a number"
        ) from error


def _new_cluster_object() -> JsonObject:
    metadata = {
        "name": "minik8s-cluster",
        "namespace": "kube-system",
        "uid": str(uuid.uuid4()),
        "creationTimestamp": rfc3339(datetime.now(UTC)),
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {}}
