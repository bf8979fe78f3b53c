"""What both warm connections read from the inventory, and the one command that becomes root."""

from __future__ import annotations

import re
from typing import Any

import yaml

PYTHON = "/usr/bin/python3"
WARM = {
    "warm_python": {
        "description": "The node's Python. Discovery is not supported; C(auto) values mean the default.",
        "type": "str",
        "default": PYTHON,
        "env": [{"name": "ANSIBLE_PYTHON_INTERPRETER"}],
        "vars": [{"name": "ansible_python_interpreter"}],
    },
    "warm_directory": {
        "description": "Where the interpreter's socket lies on the node; made for the user, mode 0700.",
        "type": "str",
        "default": "/run/minik8s-warm-{uid}",
        "env": [{"name": "MINIK8S_WARM_DIRECTORY"}],
        "vars": [{"name": "minik8s_warm_directory"}],
    },
    "warm_idle_s": {
        "description": "Seconds after its last call when the interpreter exits.",
        "type": "float",
        "default": 30.0,
        "env": [{"name": "MINIK8S_WARM_IDLE_S"}],
        "vars": [{"name": "minik8s_warm_idle_s"}],
    },
}
SSH = {
    "warm_known_hosts": {
        "description": "File of pinned host keys, used instead of the user's and the system's.",
        "type": "path",
        "env": [{"name": "MINIK8S_KNOWN_HOSTS"}],
        "vars": [{"name": "minik8s_known_hosts"}],
    },
}
# ansible runs a payload by "<interpreter>", perhaps quoted and in a shell;
# anything more (an environment) is not ours.
PLAIN = re.compile(r"""(/bin/sh -c )?['"]*[\w./-]+['"]*( && sleep 0)?['"]*\Z""")


def extend(documentation: str, name: str, new_name: str, options: dict[str, Any]) -> str:
    """Return a stock plugin's documentation under ``new_name`` with ``options`` added."""
    parsed = yaml.safe_load(documentation.replace(f"name: {name}\n", f"name: {new_name}\n", 1))
    parsed["options"] = {**(parsed.get("options") or {}), **options}
    return yaml.safe_dump(parsed)


def is_plain(command: str) -> bool:
    """Return whether ``command`` only starts the interpreter."""
    return bool(PLAIN.match(command))


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


def root_command(connection: Any, uid: int) -> list[str]:
    """Return the argv that runs a script from standard input as root.

    For any other user this is the one sudoers command:
    ``minik8s-node ALL=(root) NOPASSWD: /usr/bin/python3 -I -``
    """
    argv = [python(connection), "-I", "-"]
    # SUDO_UID tells the server who called; in a root shell that sudo opened it would be another user's
    return ["/usr/bin/env", "-u", "SUDO_UID", *argv] if uid == 0 else ["sudo", "-n", *argv]
