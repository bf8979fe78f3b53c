"""What a node connection can fail with; both are passing, the node's loop tries again.

Minik8sError
└── TemporaryError
    ├── NodeUnreachable     no SSH master, or it could not do what was asked
    │   └── FileRefused     it answers, and does not give the file
    ├── NobodyReads         the process that reads answers to probes is away
    └── DockerUnavailable   the node's Docker gave no answer; ``PullFailed`` is Docker's answer, and final
    for that pull
"""

from __future__ import annotations

from minik8s_modules.base.errors import Minik8sError, TemporaryError


class NodeUnreachable(TemporaryError):
    """The way to the node is broken."""


class FileRefused(NodeUnreachable):
    """The node answers, and does not give a file: it is not there, say."""


class NobodyReads(TemporaryError):
    """Nobody can tell what a container answered."""


class DockerUnavailable(TemporaryError):
    """The node's Docker does not answer."""


class PullFailed(Minik8sError):
    """Docker could not pull an image; the message is Docker's."""


class PullCancelled(Minik8sError):
    """The pull was cancelled before it ended."""
