"""Which images of a node go when its disk fills: kubelet's image garbage collection. Pure; ``housekeeping.py`` acts.

Source: pkg/kubelet/images/image_gc_manager.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from typing import NamedTuple

from minik8s_modules.reconcile.values.images import OURS


class ImagePolicy(NamedTuple):
    """0 <= ``low_percent`` <= ``high_percent`` <= 100; defaults are kubelet's."""

    high_percent: int = 85
    low_percent: int = 80
    min_age_s: float = 120.0


class Image(NamedTuple):
    """One image as the node lists it."""

    id: str
    names: tuple[str, ...]
    size_bytes: int


class Record(NamedTuple):
    """Since when an image is known, and when it was last seen in use (None: never)."""

    first_seen: datetime
    last_used: datetime | None = None


Records = Mapping[str, Record]


class ImagePlan(NamedTuple):
    """``delete`` in this order until ``to_free_bytes`` are free; ``problem`` is (reason, message) of an Event."""

    to_free_bytes: int = 0
    delete: tuple[str, ...] = ()
    problem: tuple[str, str] | None = None


def detect(known: Records, images: Iterable[Image], used: AbstractSet[str], now: datetime) -> dict[str, Record]:
    """Return the records of the images there are; ``used`` are the ids that containers are made of."""
    found = {}
    for image in images:
        record = known.get(image.id) or Record(now)
        found[image.id] = record._replace(last_used=now) if image.id in used else record
    return found


def plan_images(
    images: Iterable[Image],
    records: Records,
    capacity_bytes: int,
    usage_bytes: int,
    policy: ImagePolicy,
    now: datetime,
    *,
    everything: bool = False,
) -> ImagePlan:
    """Return what to delete; ``records`` must be of ``now``. ``everything``: all that is unused, disk full or not.

    What would be freed too little is told after the deletions (``shortfall``).
    """
    if capacity_bytes <= 0:
        return ImagePlan(problem=("InvalidDiskCapacity", f"invalid capacity {capacity_bytes} on image filesystem"))
    if not everything and usage_bytes * 100 // capacity_bytes < policy.high_percent:
        return ImagePlan()
    to_free = usage_bytes if everything else usage_bytes - policy.low_percent * capacity_bytes // 100
    never = datetime.min.replace(tzinfo=now.tzinfo)
    order = sorted(
        (image for image in images if image.id in records),
        key=lambda image: (records[image.id].last_used or never, records[image.id].first_seen, image.id),
    )
    youngest = timedelta(seconds=0 if everything else policy.min_age_s)
    delete = tuple(image.id for image in order if _may_go(image, records[image.id], youngest, now))
    return ImagePlan(to_free, delete)


def _may_go(image: Image, record: Record, youngest: timedelta, now: datetime) -> bool:
    in_use = record.last_used is not None and record.last_used >= now
    ours = any(name.startswith(OURS) for name in image.names)
    return not in_use and not ours and now - record.first_seen >= youngest


def shortfall(plan: ImagePlan, freed_bytes: int) -> tuple[str, str] | None:
    """Return (reason, message) of the Event when the deletions freed too little."""
    if freed_bytes >= plan.to_free_bytes:
        return None
    text = f"Failed to garbage collect required amount of images. Attempted to free {plan.to_free_bytes} bytes"
    return "FreeDiskSpaceFailed", f"{text}, but only found {freed_bytes} bytes eligible to free."
