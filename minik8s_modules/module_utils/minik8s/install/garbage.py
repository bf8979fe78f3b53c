"""Removing dead containers and unused images that were named: the acting half of garbage collection.

What to remove was decided from observations that may be some seconds old, so each is looked at again here: a container
must carry this node's label and be dead, and Docker itself refuses an image that any container uses.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..core import labels
from ..core.docker import CONFLICT, NOT_FOUND, Docker, DockerError

Forget = Callable[[str], object]
ALIVE = frozenset({"running", "paused", "restarting"})
LIMIT_S = 2.0  # a pass begins nothing after that


class RemovalRequest(NamedTuple):
    """Containers by id; images in order, as ``{"id", "names", "size_bytes"}``, until ``to_free_bytes`` are free."""

    containers: Sequence[str]
    images: Sequence[Mapping[str, Any]]
    to_free_bytes: int


class Collected(NamedTuple):
    """What was removed (in a check: would be), what failed and why, and whether time ran out before the end."""

    containers: list[str]
    images: list[str]
    freed_bytes: int
    errors: dict[str, str]
    unfinished: bool


def collect(
    docker: Docker, node: str, wanted: RemovalRequest, *, check: bool, forget: Forget = str, limit_s: float = LIMIT_S
) -> Collected:
    """Remove what is wanted and may go; ``forget`` gets the Docker name of each container that is gone."""
    end = time.monotonic() + limit_s
    errors: dict[str, str] = {}
    containers = [
        one for one in _until(end, wanted.containers) if _remove(docker, node, one, errors, forget, check=check)
    ]
    images, freed = [], 0
    for image in _until(end, wanted.images):
        if freed >= wanted.to_free_bytes:
            break
        if check or _remove_image(docker, image, errors):
            images.append(str(image["id"]))
            freed += int(image["size_bytes"])
    return Collected(containers, images, freed, errors, time.monotonic() >= end)


def _until(end: float, rows: Iterable[Any]) -> Iterable[Any]:
    for row in rows:
        if time.monotonic() >= end:
            return
        yield row


def _remove(docker: Docker, node: str, container: str, errors: dict[str, str], forget: Forget, *, check: bool) -> bool:
    try:
        found = docker.inspect(container)
        if found is None:
            return False
        marks = found["Config"]["Labels"] or {}
        if marks.get(labels.NODE) != node or found["State"]["Status"] in ALIVE:
            errors[container] = f"it is not a dead container of node {node}"
            return False
        if not check:
            docker.call("DELETE", f"/containers/{container}", query={"v": "1"})
            forget(found["Name"].lstrip("/"))
    except DockerError as error:
        if error.status != NOT_FOUND:
            errors[container] = str(error)
        return False
    return True


def _remove_image(docker: Docker, image: Mapping[str, Any], errors: dict[str, str]) -> bool:
    """Remove an image: by its names, since Docker refuses an id with several; the last name takes the image along."""
    for name in [*image["names"], image["id"]]:
        try:
            docker.call("DELETE", f"/images/{name}")
        except DockerError as error:
            if error.status == NOT_FOUND:
                continue
            errors[str(image["id"])] = str(error)
            if error.status == CONFLICT:
                return False
    return docker.image(str(image["id"])) is None
