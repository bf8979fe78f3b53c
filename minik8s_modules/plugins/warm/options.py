"""What both warm connections make of their options, and the one command that becomes root.

The options themselves are told in ``doc_fragments/minik8s_warm.py``.
"""

from __future__ import annotations

import re
from typing import Any

PYTHON = "/usr/bin/python3"
# ansible runs a payload by "<interpreter>", perhaps quoted and in a shell;
# anything more (an environment) is not ours.
PLAIN = re.compile(r"""(/bin/sh -c )?['"]*[\w./-]+['"]*( && sleep 0)?['"]*\Z""")


def is_plain(command: str) -> bool:
    """Return whether ``command`` only starts the interpreter."""
    return bool(PLAIN.match(command))


def is_for_root(connection: Any, command: str) -> bool:
    """Return whether ``command`` only starts the interpreter: as the login user, or as root by sudo without a password.

    Both are what the warm interpreter is for, which is root's in any case, or the login user's (``warm_as_root``), for
    whom nobody becomes root by it.
    """
    become = connection.become
    if become is None:
        return is_plain(command)
    if not connection.get_option("warm_as_root"):
        return False
    if become.get_option("become_user") not in (None, "root"):
        return False
    before, wrapped, inner = command.partition(f"{become.success} ; ") if become.success else (command, "", "")
    if not wrapped:  # for ansible the login user is root already
        return is_plain(before)
    return become.name == "sudo" and not become.get_option("become_pass") and is_plain(inner)


def python(connection: Any) -> str:
    """Return the node's interpreter."""
    chosen = str(connection.get_option("warm_python"))
    return PYTHON if chosen.startswith("auto") else chosen


def directory(connection: Any, uid: int) -> str:
    """Return the node's directory for user ``uid``."""
    return str(connection.get_option("warm_directory")).replace("{uid}", str(uid))


def idle_s(connection: Any) -> float:
    """Return the seconds an idle interpreter stays."""
    return float(connection.get_option("warm_idle_s"))


def keeps_code(connection: Any) -> bool:
    """Return whether compiled code stays on the node for the next interpreter."""
    return bool(connection.get_option("warm_keep_code"))


def root_command(connection: Any, uid: int) -> list[str]:
    """Return the argv that runs a script from standard input as root, or as the user where that is asked for.

    For any other user this is the one sudoers command:
    ``minik8s-node ALL=(root) NOPASSWD: /usr/bin/python3 -I -``
    """
    argv = [python(connection), "-I", "-"]
    if uid != 0 and not connection.get_option("warm_as_root"):
        return argv
    # SUDO_UID tells the server who called; in a root shell that sudo opened it would be another user's
    return ["/usr/bin/env", "-u", "SUDO_UID", *argv] if uid == 0 else ["sudo", "-n", *argv]
