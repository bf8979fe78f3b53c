"""What goes wrong in a launcher; the message is for people and ends in the pod's termination message."""

from __future__ import annotations


class LauncherError(Exception):
    """Everything below."""


class Unusable(LauncherError):
    """The machine cannot start as it is declared: what, where and why."""


class Refused(LauncherError):
    """The machine does not do what a client asks for; it goes on."""
