"""Errors of node code.

NodeFault
├── KeyFault           one key cannot be realized; reason is a CamelCase word, the others go on
├── PassFault          the whole call cannot go on (lock held, unreadable option); the module fails
└── docker.DockerError Docker answered with an error, or not at all
"""

from __future__ import annotations


class NodeFault(Exception):
    """Base of the errors node code raises itself."""


class KeyFault(NodeFault):
    """One key cannot be realized; ``reason`` is for programs, the message for people."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class PassFault(NodeFault):
    """The call as a whole cannot go on; the message says why and what to do."""
