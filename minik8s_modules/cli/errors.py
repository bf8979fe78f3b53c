"""What a person did wrong on the command line, or what the cluster answered: one line, exit code 1."""

from __future__ import annotations

from minik8s_modules.base.errors import Minik8sError


class UsageError(Minik8sError):
    """The command cannot be carried out as it was given; the message says what to change."""
