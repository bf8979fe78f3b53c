"""hostPath volumes: the checks of Kubernetes' types, in its words (pkg/volume/hostpath/host_path.go)."""

from __future__ import annotations

import os
import stat
from typing import Callable

from ..core.faults import KeyFault
from ..core.paths import KUBELETS_FOLDERS

MISSING = "missing"
KINDS = (
    (stat.S_ISDIR, "directory"),
    (stat.S_ISREG, "file"),
    (stat.S_ISSOCK, "socket"),
    (stat.S_ISCHR, "character device"),
    (stat.S_ISBLK, "block device"),
)
WANTED = {  # what a path of that type must be, and whether it is made when missing
    "": ("", True),
    "DirectoryOrCreate": ("directory", True),
    "Directory": ("directory", False),
    "FileOrCreate": ("file", True),
    "File": ("file", False),
    "Socket": ("socket", False),
    "CharDevice": ("character device", False),
    "BlockDevice": ("block device", False),
}


def check(key: str, path: str, kind: str) -> None:
    """Raise KeyFault for a path that is not absolute, leaves itself by "..", or a type Kubernetes does not know."""
    if not path.startswith("/") or ".." in path.split("/") or "\0" in path:
        raise KeyFault("InvalidEntry", f"{key}.path {path!r} must be absolute and must not contain '..' or NUL")
    if kind not in WANTED:
        raise KeyFault("InvalidEntry", f"{key}.type is {kind!r}; known are {sorted(WANTED)}")


def kind_of(path: str) -> str:
    """Return what stands at ``path`` (links followed, as Kubernetes does): directory, file, …, missing."""
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return MISSING
    return next((name for test, name in KINDS if test(mode)), "other")


def would_make(path: str, found: str, kind: str) -> str:
    """Return what is made for a missing path of that type; "" for nothing.

    The folders that a kubelet makes before any pod are made for the first one: CSI drivers ask that they be there.
    """
    wanted, makes = WANTED[kind]
    makes = makes or (wanted == "directory" and path in KUBELETS_FOLDERS)
    return (wanted or "directory") if makes and found == MISSING else ""


def fault(path: str, found: str, kind: str) -> KeyFault | None:
    """Return Kubernetes' complaint when ``found`` is not what the type asks for."""
    wanted = WANTED[kind][0]
    if not wanted or found == wanted:
        return None
    return KeyFault("FailedMount", f"hostPath type check failed: {path} is not a {wanted}")


def ensure(checkpoint: Callable[[str], None], path: str, kind: str) -> None:
    """Make what is missing (directory 0755, file 0644), then check.

    Raises:
        KeyFault: FailedMount.
    """
    making = would_make(path, kind_of(path), kind)
    if making:
        checkpoint("make host path")
    if making == "directory":
        os.makedirs(path, mode=0o755, exist_ok=True)
    elif making == "file":
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
    found = fault(path, kind_of(path), kind)
    if found:
        raise found
