"""What can go wrong in a lab.

LabError            told to the user without a traceback
├── LabUsage        asked for something that cannot be: change the request
├── LabUnsupported  this node kind or this kernel cannot do it: choose another kind, or skip the test
├── LabBuildFailed  image or kernel could not be made: the message holds the program's words
└── LabNodeFailed   a node died, does not answer, or a command on it failed
"""

from __future__ import annotations


class LabError(Exception):
    """A failure of the lab; the message says what, why, and what to do."""


class LabUsage(LabError):
    """The request cannot be met."""


class LabUnsupported(LabError):
    """The node's kind or kernel lacks the ability."""


class LabBuildFailed(LabError):
    """Nodes cannot boot: something to boot from could not be made."""


class LabNodeFailed(LabError):
    """A node does not do what it should."""
