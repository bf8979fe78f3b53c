"""Callback plugin: keeps the modules that Ansible has packed for nodes, so that the next run need not pack them again.

Ansible packs a module with all that it imports at its first use in a run, and forgets it with the run. That parses
fifty to a hundred files a module: a quarter of the processor's time of a run of site.yml on one machine that changes
nothing (5 of 21 s). In a checkout, which has a folder ``.cache``, the folder of packed modules is therefore a link into
it. Its name there is a digest of all that is packed, so what is changed is packed again. The installed programs have no
``.cache``.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ansible import constants
from ansible.plugins.callback import CallbackBase
from ansible.release import __version__

DOCUMENTATION = r"""
name: minik8s_built_modules
type: aggregate
short_description: Keeps modules as they were packed for nodes
description:
  - Ansible packs each module with what it imports, once in a run. Where this checkout has a folder C(.cache) of the
    user who runs Ansible, packed modules stay there, and the next run takes them from it.
  - After a change of Ansible, of a module or of the code that modules share, all are packed again. What nobody used for
    O(built_modules_kept_days) is removed.
author: the minik8s authors
options:
  built_modules_kept_days:
    description: For how many days packed modules are kept that nobody uses.
    type: int
    default: 30
    ini: [{section: minik8s, key: built_modules_kept_days}]
"""
ROOT = Path(__file__).resolve().parents[3]
DAY_S = 86400
_RUN = "run-"


class CallbackModule(CallbackBase):  # type: ignore[misc]  # ansible is not typed
    """See the module's documentation."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "minik8s_built_modules"
    CALLBACK_NEEDS_ENABLED = True

    _kept: Path | None = None

    def v2_playbook_on_start(self, playbook: Any) -> None:  # noqa: ARG002  Ansible's signature
        """Have the run take packed modules from the checkout, and leave its own there."""
        cache = ROOT / ".cache"
        if not is_ours(cache):
            return
        kept = cache / "modules" / digest(sources())
        try:
            share(kept, Path(constants.DEFAULT_LOCAL_TMP) / "ansiballz_cache")
            begin(kept, os.getpid())
            prune(kept, time.time() - self.get_option("built_modules_kept_days") * DAY_S)
        except OSError as error:  # a full disk, say: the run packs for itself
            self._display.vv(f"packed modules are not kept: {error}")
        else:
            self._kept = kept

    def v2_playbook_on_stats(self, stats: Any) -> None:  # noqa: ARG002  Ansible's signature
        """Forget what was packed while somebody changed the sources: it may be of one state or the other."""
        if self._kept and self._kept.name != digest(sources()):
            empty(self._kept)
        elif self._kept:
            (self._kept / f"{_RUN}{os.getpid()}").unlink(missing_ok=True)


def sources() -> list[Path]:
    """Return the folders of our modules and of what they share."""
    return [Path(path) for path in (*constants.DEFAULT_MODULE_PATH, *constants.DEFAULT_MODULE_UTILS_PATH)]


def is_ours(folder: Path) -> bool:
    """Return whether a folder is there that only this user may write: what lies in it runs as root on nodes."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022


def digest(folders: Iterable[Path]) -> str:
    """Return what tells apart what modules are packed from: Ansible, Python, and every file below ``folders``."""
    made = hashlib.sha256(f"{__version__} {sys.version} {constants.__file__}".encode())
    for path in sorted(each for folder in folders for each in folder.rglob("*.py")):
        made.update(f"\0{path}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return made.hexdigest()[:16]


def share(kept: Path, place: Path) -> None:
    """Make ``place`` a link to ``kept``, which is made where it is missing; neither where somebody else could write."""
    kept.mkdir(parents=True, exist_ok=True, mode=0o755)
    if is_ours(kept.parent) and is_ours(kept):
        os.utime(kept)
        place.symlink_to(kept)


def begin(kept: Path, pid: int) -> None:
    """Note that a run uses ``kept``; one that was killed may have packed what was changed meanwhile, so that goes."""
    if any(not Path("/proc", run.name.removeprefix(_RUN)).exists() for run in kept.glob(f"{_RUN}*")):
        empty(kept)
    (kept / f"{_RUN}{pid}").touch()


def empty(kept: Path) -> None:
    """Remove what lies in ``kept``, but not the folder: another run's link may lead to it."""
    for file in kept.iterdir():
        file.unlink(missing_ok=True)


def prune(kept: Path, since_s: float) -> None:
    """Remove what lies beside ``kept`` and was not used since ``since_s``, in seconds since 1970."""
    for folder in kept.parent.iterdir():
        if folder != kept and folder.stat().st_mtime < since_s:
            shutil.rmtree(folder, ignore_errors=True)
