"""What all tables share: columns, and ages as kubectl prints them. Source: apimachinery ``util/duration``."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from minik8s_modules.api.objects import JsonObject, metadata
from minik8s_modules.base.clock import parse_rfc3339

NONE = "<none>"
UNKNOWN = "<unknown>"


class Column(NamedTuple):
    """One metav1.TableColumnDefinition; its fields are written as they are."""

    name: str
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0


NAME = Column(
    "Name", format="name", description="Name must be unique within a namespace; it is how an object is asked for."
)
AGE = Column("Age", description="Time since the object was created.")


def human_duration(seconds: float) -> str:
    """Return a duration as kubectl prints ages: ``5s``, ``3m20s``, ``4h5m``, ``7d3h``, ``2y1d``."""
    whole = int(seconds)
    if whole < 0:
        return "0s" if whole == -1 else "<invalid>"
    for limit, unit, symbol, part, part_symbol in _STEPS:
        if whole < limit:
            count, rest = divmod(whole, unit)
            rest = rest // part if part else 0
            return f"{count}{symbol}" + (f"{rest}{part_symbol}" if rest else "")
    return f"{whole // _YEAR}y"


_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 365 * 86400
_STEPS = (  # below this many seconds: this unit, and that part of the rest
    (2 * _MINUTE, 1, "s", 0, ""),
    (10 * _MINUTE, _MINUTE, "m", 1, "s"),
    (3 * _HOUR, _MINUTE, "m", 0, ""),
    (8 * _HOUR, _HOUR, "h", _MINUTE, "m"),
    (48 * _HOUR, _HOUR, "h", 0, ""),
    (8 * _DAY, _DAY, "d", _HOUR, "h"),
    (2 * _YEAR, _DAY, "d", 0, ""),
    (8 * _YEAR, _YEAR, "y", _DAY, "d"),
)


def since(timestamp: str | None, now: datetime) -> str:
    """Return the time since an RFC 3339 timestamp as kubectl prints it; ``<unknown>`` without one."""
    if not timestamp:
        return UNKNOWN
    return human_duration((now - parse_rfc3339(timestamp)).total_seconds())


def age(obj: JsonObject, now: datetime) -> str:
    """Return the time since the object was created."""
    return since(metadata(obj).get("creationTimestamp"), now)


def columns(*names: str) -> list[Column]:
    """Return string columns; a name that ends in ``+`` is shown with ``-o wide`` only."""
    return [Column(each.rstrip("+"), priority=int(each.endswith("+"))) for each in names]
