"""Errors of node code.

NodeFault
├── KeyFault           one key cannot be realized; reason is a CamelCase word, the others go on
├── PassFault          the whole call cannot go on (lock held, unreadable option); the module fails
└── docker.DockerError Docker answered with an error, or not at all
"""

from __future__ import annotations

import re

# what Docker, runc, plugins and Go's libraries put into their words again each time
_NEW_EACH_TIME = (
    (re.compile(r"(?<!sha256:)\b[0-9a-f]{64}\b"), "<id>"),  # a container or layer; an image's digest stays
    (re.compile(r"(?<=/proc/)[0-9]+(?=/)"), "<pid>"),
    (re.compile(r"(?<=/tmp/GetImageBlob)[0-9]+"), "<id>"),
    (re.compile(r"((?:read|write) (?:tcp|udp) \S+):[0-9]+(?=->)"), r"\1"),  # the own port of a connection
    (re.compile(r"(?<=current time )[0-9T:.+-]+Z?"), "<now>"),  # crypto/x509
)


def steady(text: str) -> str:
    """Return what a program said without what differs each time: one cause is one text, and so one Event."""
    for pattern, instead in _NEW_EACH_TIME:
        text = pattern.sub(instead, text)
    return text


class NodeFault(Exception):
    """Base of the errors node code raises itself."""


class KeyFault(NodeFault):
    """One key cannot be realized; ``reason`` is for programs, the message (made ``steady``) for people."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(steady(message))
        self.reason = reason


class PassFault(NodeFault):
    """The call as a whole cannot go on; the message says why and what to do."""
