"""What an entry of the section ``volumes`` may say, and the files it asks for.

Kinds with files: configMap and downwardAPI carry them in clear; secret takes values of one Secret that the section
``secrets`` brought; projected has both, of any number of Secrets (service-account tokens are one).
``fs_group`` is the pod's fsGroup: kubelet's SetVolumeOwnership (pkg/volume/volume_linux.go) gives files of read-only
volumes that group and 0440, and writable directories the group, 0770 and setgid.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterator, Mapping
from typing import Any, Union

from ..core.faults import KeyFault
from ..core.paths import CSI_KIND, SECRET_KIND, component, relative, secret_dir, split_key
from ..core.schema import Schema, check_fields, schema_of
from ..entries.volumes import (
    ClearVolume,
    Csi,
    EmptyDir,
    HostPath,
    Local,
    Nfs,
    ProjectedFile,
    ProjectedVolume,
    SecretFile,
    SecretVolume,
    VolumeFile,
)
from . import csi, hostpath, media, nfs
from .secrets import Values, read_values
from .volume_files import File, Files

PROJECTED = "projected"
CLEAR_KINDS = frozenset({"configMap", "downwardAPI"})
FILE_KINDS = CLEAR_KINDS | {SECRET_KIND, PROJECTED}
KINDS: dict[str, Schema] = {
    "emptyDir": schema_of(EmptyDir),
    "hostPath": schema_of(HostPath),
    "local": schema_of(Local),
    "nfs": schema_of(Nfs),
    CSI_KIND: schema_of(Csi),
    "configMap": schema_of(ClearVolume),
    "downwardAPI": schema_of(ClearVolume),
    SECRET_KIND: schema_of(SecretVolume),
    PROJECTED: schema_of(ProjectedVolume),
}
FILE = schema_of(VolumeFile)
ITEM = schema_of(SecretFile)
SOURCED_ITEM = schema_of(ProjectedFile)
GROUP_READS = 0o440
DeclaredFiles = Union[Files, KeyFault, None]


def check_entry(key: str, entry: Mapping[str, Any]) -> None:
    """Raise KeyFault for an entry that cannot be used."""
    split_key(key)
    kind = dict(entry).get("kind")
    if kind not in KINDS:
        raise KeyFault("InvalidEntry", f"{key}.kind is {kind!r}; known are {sorted(KINDS)}")
    check_fields(key, entry, KINDS[kind])
    media.check(key, entry)
    if kind == "hostPath":
        hostpath.check(key, entry["path"], entry.get("type", ""))
    if kind == "local":
        hostpath.check(key, entry["path"], "Directory")
    if kind == nfs.KIND:
        nfs.check(key, entry)
    if kind == CSI_KIND:
        csi.check(key, entry)
    if kind in FILE_KINDS:
        _check_files(key, entry)


def _check_files(key: str, entry: Mapping[str, Any]) -> None:
    for path, row, schema in _rows(entry):
        relative(path)
        if path.startswith(".."):
            raise KeyFault("InvalidName", f"{key}: file {path!r} must not begin with '..'")
        check_fields(f"{key}.{path}", row, schema)
        if "key" in row:
            component(row["key"])
            split_key(row.get("secret", "") or entry.get("secret", ""))
    if entry["kind"] == SECRET_KIND and entry["secret"]:  # "": an optional secret that does not exist
        split_key(entry["secret"])
    _decoded(key, entry)


def _rows(entry: Mapping[str, Any]) -> Iterator[tuple[str, Any, Schema]]:
    for path, row in (entry.get("files") or {}).items():
        yield path, row, FILE
    for path, row in (entry.get("items") or {}).items():
        yield path, row, SOURCED_ITEM if entry["kind"] == PROJECTED else ITEM


def _decoded(key: str, entry: Mapping[str, Any]) -> Files:
    try:
        return {
            path: File(base64.b64decode(row["data"], validate=True), row["mode"])
            for path, row in (entry.get("files") or {}).items()
        }
    except (ValueError, binascii.Error):
        raise KeyFault("InvalidEntry", f"{key}: a file's data is no base64") from None


def wanted_files(run_dir: str, entry: Mapping[str, Any], *, check: bool = False) -> DeclaredFiles:
    """Return the files a volume must hold, None where it holds the pod's own, a KeyFault where a value is missing.

    A check takes a missing value for one that the section ``secrets`` would have written by now.
    """
    if entry["kind"] not in FILE_KINDS:
        return None
    files = _decoded("", entry)
    values: dict[str, Values] = {}
    for path, row in (entry.get("items") or {}).items():
        secret = row.get("secret") or entry.get("secret", "")
        if secret not in values:
            values[secret] = read_values(run_dir, secret)
        if check:
            values[secret].setdefault(row["key"], b"")
        if row["key"] not in values[secret]:
            missing = os.path.isdir(secret_dir(run_dir, secret))
            where = "" if missing else f" (secret {secret} is not here)"
            return KeyFault("FailedMount", f"references non-existent secret key: {row['key']}{where}")
        files[path] = File(values[secret][row["key"]], row["mode"], row.get("uid") or 0)
    group = entry.get("fs_group")
    if group is None:
        return files
    return {path: file._replace(mode=file.mode | GROUP_READS, gid=group) for path, file in files.items()}
