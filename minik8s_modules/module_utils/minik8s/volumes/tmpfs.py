"""The tmpfs under ``<run_dir>/secrets``: secret values never touch a disk.

Where ``run_dir`` is a tmpfs itself (systemd hosts) a directory is enough; elsewhere one is mounted there.
"""

from __future__ import annotations

import os
import shutil

from ..core.faults import KeyFault
from ..core.paths import secrets_dir
from ..core.section import Context, Step
from . import mounts

KEY = "tmpfs"
SIZE_BYTES = 256 << 20  # a secret is 1 MiB at most; a bound, not a reservation


def is_ready(run_dir: str) -> bool:
    """Return whether the secrets' directory exists and lies on a tmpfs."""
    path = secrets_dir(run_dir)
    return os.path.isdir(path) and mounts.is_tmpfs(path)


def can_go(run_dir: str) -> bool:
    """Return whether there is a directory of ours to take away: on tmpfs, or the empty one a killed run left."""
    path = secrets_dir(run_dir)
    return os.path.isdir(path) and (is_ready(run_dir) or not os.listdir(path))


def step_to_unmount(run_dir: str) -> Step:
    """Return the step that takes the directory away."""
    return Step("unmount", KEY, secrets_dir(run_dir))


def step_to_mount(run_dir: str) -> Step:
    """Return the step that makes the directory."""
    return Step("mount", KEY, secrets_dir(run_dir))


def make_ready(context: Context) -> None:
    """Make the directory, on a tmpfs, for root alone."""
    path = secrets_dir(context.run_dir)
    context.checkpoint("make secrets directory")
    os.makedirs(path, mode=0o700, exist_ok=True)
    os.chmod(path, 0o700)
    if not mounts.is_tmpfs(path):
        context.checkpoint("mount tmpfs")
        mounts.mount_tmpfs(path, "0700", SIZE_BYTES)


def require(run_dir: str) -> None:
    """Refuse to go on where a secret would reach a disk.

    Raises:
        KeyFault: NoTmpfs.
    """
    if not is_ready(run_dir):
        raise KeyFault("NoTmpfs", f"{secrets_dir(run_dir)} is not a tmpfs; a secret value would reach the disk")


def take_away(context: Context) -> None:
    """Unmount our tmpfs and remove the directory; the caller knows that it holds nothing but marks."""
    path = os.path.realpath(secrets_dir(context.run_dir))
    for _ in mounts.at(path, mounts.mounts()):
        context.checkpoint("unmount tmpfs")
        mounts.unmount(path)
    context.checkpoint("remove secrets directory")
    if mounts.is_tmpfs(path):  # run_dir itself is one
        shutil.rmtree(path, ignore_errors=True)
    elif os.path.isdir(path) and not os.listdir(path):
        os.rmdir(path)
