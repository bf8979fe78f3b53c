"""The pod that an entry belongs to."""

from typing import TypedDict


class PodIdentity(TypedDict):
    """The pod that an entry belongs to."""

    uid: str
    """C(metadata.uid)."""
    name: str
    """C(metadata.name)."""
    namespace: str
    """C(metadata.namespace)."""
