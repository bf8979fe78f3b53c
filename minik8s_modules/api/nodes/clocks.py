"""What is known of clocks: how far a node's is off, and how far that of whoever renews a Lease is. Pure.

A node's: the gateway compares it with its own machine's and writes the difference on the node's Lease. A renewer's:
``renewTime`` is the renewer's time, and the API server notes its own time of the write in ``managedFields``.
"""

from __future__ import annotations

from datetime import timedelta

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import parse_rfc3339

CLOCK_AHEAD = "minik8s.io/clock-ahead-seconds"
"""Annotation of a node's Lease: whole seconds, below 0 where the node is behind."""


def node_ahead(lease: JsonObject) -> timedelta:
    """Return by how much the clock of a Lease's node is ahead of the gateway's machine, 0 where nothing is told."""
    try:
        return timedelta(seconds=int(objects.annotations(lease).get(CLOCK_AHEAD) or 0))
    except (ValueError, OverflowError):
        return timedelta(0)


def renewer_ahead(lease: JsonObject) -> timedelta | None:
    """Return by how much the clock of who renews a Lease is ahead of the API server's, to a second.

    None where it is not known: a Lease that does not say when it was written or renewed.
    """
    try:
        times = [
            parse_rfc3339(str(entry["time"]))
            for entry in objects.metadata(lease).get("managedFields") or []
            if "f:renewTime" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})
        ]
        return parse_rfc3339(str(objects.spec(lease)["renewTime"])) - max(times) if times else None
    except (KeyError, ValueError):
        return None
