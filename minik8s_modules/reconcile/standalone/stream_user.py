"""What the process that parses streams has where a node reconciles itself: a user without rights, and its files.

The files lie in ``<run_dir>/agent-streams``: root writes them, the user reads them, and nobody else.
"""

from __future__ import annotations

import logging
import os
import pwd
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from minik8s_modules.base.errors import ConfigurationError

log = logging.getLogger(__name__)
USER = "minik8s-streams"
_MADE = "made by minik8s reconciler"


class User(NamedTuple):
    """Numbers of a user and its group."""

    uid: int
    gid: int


def user() -> User:
    """Return the user, which is made where the machine has none.

    Raises:
        ConfigurationError: it cannot be made.
    """
    try:
        found = pwd.getpwnam(USER)
    except KeyError:
        _run("useradd", "--system", "--user-group", "--no-create-home", "--home-dir=/nonexistent",
             "--shell=/usr/sbin/nologin", f"--comment={_MADE}", USER)  # fmt: skip
        found = pwd.getpwnam(USER)
    return User(found.pw_uid, found.pw_gid)


def require_readable(user: User, python: str = sys.executable) -> None:
    """Have the user start the program once, and end there.

    Raises:
        ConfigurationError: it cannot, because it may not read this installation.
    """
    wanted = "minik8s_modules.streams.main"
    try:
        done = subprocess.run(
            [python, "-c", f"import {wanted}"],
            user=user.uid, group=user.gid, extra_groups=() if os.geteuid() == 0 else None,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    except OSError as error:
        said = error.strerror
    else:
        if not done.returncode:
            return
        said = done.stderr.strip().rpartition("\n")[2]
    raise ConfigurationError(
        f"{USER} cannot run {wanted} with {python}: {said}; install minik8s where every user may read it, such as /opt"
    )


def remove_user() -> None:
    """Remove the user if it was made here, and not by the playbooks."""
    try:
        if pwd.getpwnam(USER).pw_gecos == _MADE:
            _run("userdel", USER)
    except (KeyError, ConfigurationError) as error:
        log.debug("user %s stays: %s", USER, error)


def write(folder: Path, files: Mapping[str, str], owner: User) -> None:
    """Put the files there for ``owner`` to read."""
    folder.mkdir(mode=0o750, parents=True, exist_ok=True)
    os.chown(folder, 0, owner.gid)
    folder.chmod(0o750)
    for name, text in files.items():
        part = folder / f".{name}"
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o640), "w") as file:
            os.fchown(file.fileno(), 0, owner.gid)
            file.write(text)
        part.replace(folder / name)


def _run(*argv: str) -> None:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ConfigurationError(f"cannot run {argv[0]}: {error.strerror}") from error
    if done.returncode:
        raise ConfigurationError(f"{' '.join(argv)}: {done.stderr.strip()}")
