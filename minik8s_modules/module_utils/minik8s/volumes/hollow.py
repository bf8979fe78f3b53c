"""Folders of pods, and of namespaces with secrets, that hold nothing: a run was killed before it removed them, too.

A folder is made before what it is for and removed after it; in between no key of a section tells of it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterator

from ..core.files import TEMPORARY, remove_leftovers
from ..core.paths import MOUNTS, csi_records, secrets_dir


def of_pods(state_dir: str, run_dir: str, uids: Collection[str] | None) -> dict[str, list[str]]:
    """Return the folders without a volume by the uid of their pod, the inner ones first; ``uids`` None: of all pods."""
    found: dict[str, list[str]] = {}
    on_disk, noted = os.path.join(state_dir, "pods"), csi_records(state_dir)
    for base in (os.path.join(secrets_dir(run_dir), ".volumes"), noted, on_disk):
        for uid in _names(base):
            if uids is None or uid in uids:
                folder = os.path.join(base, uid)
                inner = list(_hollow(folder, ("volumes", MOUNTS))) if base == on_disk else []
                if _holds_nothing(folder, but=inner, cut_off=base == noted):
                    found[uid] = [*found.get(uid, ()), *inner, folder]
    return found


def of_secrets(*bases: str) -> list[str]:
    """Return the folders in ``bases`` that hold nothing, but for hidden ones."""
    return [
        folder for base in bases for folder in _hollow(base, [one for one in _names(base) if not one.startswith(".")])
    ]


def remove(checkpoint: Callable[[str], None], folders: Collection[str]) -> None:
    """Remove folders, the inner ones first."""
    for folder in folders:
        checkpoint("remove empty folder")
        remove_leftovers(folder)
        with contextlib.suppress(FileNotFoundError):  # it went with what was removed before in the same pass
            os.rmdir(folder)


def _hollow(base: str, names: Collection[str]) -> Iterator[str]:
    return (folder for name in names if _holds_nothing(folder := os.path.join(base, name)))


def _holds_nothing(folder: str, but: Collection[str] = (), *, cut_off: bool = False) -> bool:
    """Return whether a folder holds nothing ``but`` some folders; ``cut_off``: and files not written to their end."""
    if not os.path.isdir(folder) or os.path.islink(folder):
        return False
    rest = [name for name in _names(folder) if os.path.join(folder, name) not in but]
    return all(cut_off and name.startswith(TEMPORARY) for name in rest)


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
