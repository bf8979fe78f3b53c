"""Whether an image may be used now, must be pulled, or why it cannot be: kubelet's image manager.

Source: pkg/kubelet/images/image_manager.go. A failed pull reads ErrImagePull for a moment and
ImagePullBackOff until the next try, 10 s to 5 min after the failure; with policy Always every attempt of a
container wants a pull newer than itself. Images that the installation builds are never pulled: a registry would have
somebody else's of these names, and a Pod that asks for one would put it in the place of ours, for all Pods of the node.
"""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from typing import NamedTuple

from minik8s_modules.base.backoff import IMAGE_PULL
from minik8s_modules.reconcile.values.values import PodEvent, PullState, Waiting

OURS = "minik8s/"
"""Images of these names are made by the installation, on each machine: pause, sidecars, the examples' programs."""
SHOWN_AS_ERROR = timedelta(seconds=2)
"""How long a failed pull reads ErrImagePull before it reads ImagePullBackOff."""

# https://github.com/distribution/reference, regexp.go
_NAME = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_DOMAIN = r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)*(?::[0-9]+)?"
_REFERENCE = re.compile(
    rf"(?P<name>(?:{_DOMAIN}/)?{_NAME}(?:/{_NAME})*)(?::(?P<tag>\w[\w.-]{{0,127}}))?(?:@(?P<digest>sha256:[0-9a-f]{{64}}))?",
    re.ASCII,
)
_IMAGE_ID = re.compile(r"sha256:[0-9a-f]{64}")
_LONGEST_NAME = 255


class ImageDecision(NamedTuple):
    """``ready`` to be used, else why not; ``pull`` asks for a pull now."""

    ready: bool
    pull: bool = False
    waiting: Waiting | None = None
    wake_at: datetime | None = None
    events: tuple[PodEvent, ...] = ()


def normalized(image: str) -> str:
    """Return ``image`` as Docker lists it: without Docker Hub's host, with its tag.

    Raises:
        ValueError: ``image`` is no image reference.
    """
    if _IMAGE_ID.fullmatch(image):
        return image
    match = _REFERENCE.fullmatch(image)
    if match is None or len(match["name"]) > _LONGEST_NAME:
        raise ValueError("invalid reference format")
    name = match["name"]
    for prefix in ("docker.io/", "index.docker.io/"):
        name = name.removeprefix(prefix)
    name = name.removeprefix("library/")
    if match["digest"]:
        return f"{name}@{match['digest']}"
    return f"{name}:{match['tag'] or 'latest'}"


def default_policy(image: str) -> str:
    """Return the pull policy of a container that names none: Always for the tag latest, else IfNotPresent."""
    try:
        return "Always" if normalized(image).endswith(":latest") else "IfNotPresent"
    except ValueError:
        return "IfNotPresent"


def present(image: str, images: AbstractSet[str]) -> bool:
    """Return whether normalized ``image`` is among the names and ids a node lists."""
    return image in images or ("@" in image and image.partition("@")[2] in images)


def decide_image(
    image: str,
    policy: str,
    images: AbstractSet[str],
    pull: PullState | None,
    needed_since: datetime,
    now: datetime,
) -> ImageDecision:
    """Decide about the image of a container attempt that is needed since ``needed_since``."""
    try:
        name = normalized(image)
    except ValueError as error:
        text = f'Failed to apply default image tag "{image}": couldn\'t parse image name "{image}": {error}'
        return _refused("InvalidImageName", text, f"invalid/{image}", "InspectFailed")
    here = present(name, images)
    if name.startswith(OURS):
        return ImageDecision(ready=True) if here else _not_built(image)
    policy = policy or default_policy(image)
    if policy == "Never" and not here:
        text = f'Container image "{image}" is not present with pull policy of Never'
        return _refused("ErrImageNeverPull", text, f"never/{image}", "ErrImageNeverPull")
    if here and policy != "Always":
        return ImageDecision(ready=True)
    pulled = pull is not None and not pull.active and not pull.failures and pull.finished_at is not None
    if here and pulled and pull and pull.finished_at and pull.finished_at >= needed_since:
        return ImageDecision(ready=True)
    return _pulling(image, pull, now)


def _not_built(image: str) -> ImageDecision:
    text = f'Container image "{image}" is not present; images of {OURS} are built by the installation, and never pulled'
    return _refused("ErrImageNeverPull", text, f"never/{image}", "ErrImageNeverPull")


def _refused(reason: str, text: str, key: str, event: str) -> ImageDecision:
    events = (
        PodEvent("Warning", event, text, key),
        PodEvent("Warning", "Failed", f"Error: {reason}", f"{key}/error"),
    )
    return ImageDecision(ready=False, waiting=Waiting(reason, text), events=events)


def _pulling(image: str, pull: PullState | None, now: datetime) -> ImageDecision:
    if pull is None or pull.finished_at is None or not pull.failures:
        return ImageDecision(ready=False, pull=not (pull and pull.active))
    reason = pull.reason or "ErrImagePull"
    key = f"pull/{image}/{pull.failures}"
    due = pull.finished_at + timedelta(seconds=IMAGE_PULL.delay_s(pull.failures))
    shown_until = pull.finished_at + SHOWN_AS_ERROR
    failed = (
        PodEvent("Warning", "Failed", f'Failed to pull image "{image}": {pull.message}', f"{key}/failed"),
        PodEvent("Warning", "Failed", f"Error: {reason}", f"{key}/error"),
    )
    if now < shown_until:
        return ImageDecision(ready=False, waiting=Waiting(reason, pull.message), wake_at=shown_until, events=failed)
    text = f'Back-off pulling image "{image}": {reason}: {pull.message}'
    backing_off = (
        PodEvent("Normal", "BackOff", f'Back-off pulling image "{image}"', f"{key}/backoff"),
        PodEvent("Warning", "Failed", "Error: ImagePullBackOff", f"{key}/backoff-error"),
    )
    return ImageDecision(
        ready=False,
        pull=now >= due and not pull.active,
        waiting=Waiting("ImagePullBackOff", text),
        wake_at=due if now < due else None,
        events=failed + backing_off,
    )
