"""Entries of the section ``secrets``, key ``<namespace>/<name>``."""

from typing import TypedDict


class SecretEntry(TypedDict):
    """A Secret, without its values: they come in O(blob)."""

    hmac: str
    """HMAC (hexadecimal) of the values, so that a changed value is a changed entry."""
    keys: list[str]
    """Keys; each is a file below C(secrets/<namespace>/<name>) in O(run_dir)."""
