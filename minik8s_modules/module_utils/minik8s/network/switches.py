"""Switches of the kernel's network, below /proc/sys/net."""

from __future__ import annotations

from ..core.faults import KeyFault

SYSCTL = "/proc/sys/net/"


def read_switch(name: str) -> str:
    """Return a kernel switch below ``net/``, "" when the kernel has none of that name."""
    try:
        with open(SYSCTL + name, encoding="ascii") as source:
            return source.read().strip()
    except OSError:
        return ""


def set_switch(name: str, value: str) -> None:
    """Set a kernel switch below ``net/``.

    Raises:
        KeyFault: the kernel has none of that name, or it is read-only here.
    """
    try:
        with open(SYSCTL + name, "w", encoding="ascii") as target:
            target.write(value)
    except OSError as error:
        raise KeyFault("NetworkNotReady", f"sysctl net/{name}={value}: {error}") from error
