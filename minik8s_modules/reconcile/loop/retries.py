"""When a key that failed is tried again together with another one that it needs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from minik8s_modules.reconcile.pods.pod_context import SANDBOX_MISSING, VOLUME_MISSING

_NEEDS = {SANDBOX_MISSING: "sandboxes", VOLUME_MISSING: "volumes"}
Moments = Mapping[tuple[str, str], float]
"""When a key is tried again, by (section, key), on the monotonic clock in seconds."""


def with_what_it_needs(again_at_s: Moments, key: str, reason: str) -> float | None:
    """Return when a container is tried again whose sandbox or volume the pass did not get to: together with it."""
    needs = _NEEDS.get(reason)
    moments = (at_s for (section, one), at_s in again_at_s.items() if section == needs and _pod(one) == _pod(key))
    return min(moments, default=None)


def made_again(volumes: Iterable[str], key: str, reason: str, at_s: float) -> Moments:
    """Return the volumes that a container lacks though they were made: who removed them by hand is not waited for."""
    if reason != VOLUME_MISSING:
        return {}
    return {("volumes", each): at_s for each in volumes if _pod(each) == _pod(key)}


def _pod(key: str) -> str:
    return key.partition("/")[0]
