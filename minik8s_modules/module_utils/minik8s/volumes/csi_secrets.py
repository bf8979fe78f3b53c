"""Secrets that a CSI driver is told with a call: read from the tmpfs for it, and in nobody's words afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from ..core.faults import KeyFault
from .secrets import read_values

SecretValues = Mapping[str, Mapping[str, str]]
"""By the call (stage, publish, expand) the values that the driver is told."""
_CALLS = ("stage", "publish", "expand")
_HIDDEN = "(secret)"
_SHORTEST = 3  # a shorter value says nothing, and would be found in every message


def read(run_dir: str, entry: Mapping[str, Any]) -> SecretValues:
    """Return what a driver is told.

    Raises:
        KeyFault: SecretMissing, or InvalidEntry for a value that is no text, which CSI cannot carry.
    """
    named = entry.get("secrets") or {}
    return {call: _texts(run_dir, named[call]) if call in named else {} for call in _CALLS}


def _texts(run_dir: str, reference: str) -> dict[str, str]:
    values = read_values(run_dir, reference)
    if not values:
        raise KeyFault(
            "SecretMissing", f"the values of secret {reference}, which the driver needs, are not on the node"
        )
    found = {}
    for name, value in values.items():
        try:
            found[name] = value.decode()
        except UnicodeDecodeError:
            why = f"key {name} of secret {reference} is not UTF-8: CSI passes only text to drivers"
            raise KeyFault("InvalidEntry", why) from None
    return found


@contextlib.contextmanager
def hidden(secrets: SecretValues) -> Iterator[None]:
    """Take the values out of what a driver says of a failure: its words become Events."""
    try:
        yield
    except KeyFault as fault:
        text = str(fault)
        values = {value for texts in secrets.values() for value in texts.values() if len(value) >= _SHORTEST}
        for value in sorted(values, key=len, reverse=True):
            text = text.replace(value, _HIDDEN)
        if text == str(fault):
            raise
        raise KeyFault(fault.reason, text) from None
