"""Termination messages: a file of the node stands in the container at ``terminationMessagePath``.

``<state_dir>/messages/<digest of the container's Docker name>``, writable for every user of the container (kubelet's
0666), in a directory that can be entered and not listed: the gateway, which is not root, reads the file the moment the
container dies, where the label says (``observations.py`` tells it). The file goes with its container.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping
from typing import Any

from . import labels


def message_file(state_dir: str, name: str) -> str:
    """Return where the message of the container with that Docker name stands."""
    return os.path.join(state_dir, "messages", hashlib.sha256(name.encode()).hexdigest()[:32])


def add_message(state_dir: str, name: str, entry: Mapping[str, Any], body: dict[str, Any]) -> None:
    """Make the file of a container about to be created, and mount it; a volume that is mounted there goes before it."""
    message, mounts = entry["message"], body["HostConfig"]["Mounts"]
    if not message or not message["path"].startswith("/") or message["path"] in {each["Target"] for each in mounts}:
        return
    path = message_file(state_dir, name)
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        os.makedirs(folder, exist_ok=True)
        os.chmod(folder, 0o711)  # noqa: S103 - entered by the gateway, listed by nobody
    with open(path, "wb") as made:
        os.fchmod(made.fileno(), 0o666)
    mounts.append({"Type": "bind", "Source": path, "Target": message["path"], "ReadOnly": False})
    body["Labels"][labels.MESSAGE] = f"{message['policy']}:{message['path']}"


def remove_message(state_dir: str, name: str) -> None:
    """Remove the file of a container that goes."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(message_file(state_dir, name))


def message_target(marks: Mapping[str, str]) -> str:
    """Return where a container with these labels has its message, "" for nowhere."""
    return marks.get(labels.MESSAGE, "").partition(":")[2]


def message_source(inspect: Mapping[str, Any]) -> str:
    """Return ``<policy>:<file on the node>`` of a container, "" when it has no message file."""
    marks = (inspect.get("Config") or {}).get("Labels") or {}
    target = message_target(marks)
    for mount in inspect.get("Mounts") or [] if target else []:
        if mount.get("Destination") == target:
            return f"{marks[labels.MESSAGE].partition(':')[0]}:{mount['Source']}"
    return ""
