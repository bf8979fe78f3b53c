"""Writes a file with its final owner and mode, so that no other user can read it for a moment, and never half."""

from __future__ import annotations

import grp
import os
import pwd
import stat
import tempfile
from pathlib import Path


def write_file(path: str, data: bytes, access: tuple[str, str, str]) -> None:
    """Replace ``path`` by ``data`` in one step; ``access`` is (owner, group, octal mode).

    Raises:
        KeyError: the owner or the group does not exist on this machine.
        OSError: the directory is missing or cannot be written.
    """
    owner, group, mode = access
    user_id, group_id = pwd.getpwnam(owner).pw_uid, grp.getgrnam(group).gr_gid
    target = Path(path)
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.chown(temporary, user_id, group_id)
        Path(temporary).chmod(int(mode, 8))
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def access_of(path: str) -> tuple[str, str, str]:
    """Return owner, group and mode of ``path``; numbers stand where an id has no name."""
    found = Path(path).stat()
    try:
        owner = pwd.getpwuid(found.st_uid).pw_name
        group = grp.getgrgid(found.st_gid).gr_name
    except KeyError:
        owner, group = str(found.st_uid), str(found.st_gid)
    return owner, group, f"{stat.S_IMODE(found.st_mode):04o}"
