"""What the plugins in tree share: how they are made, and how scores are brought between 0 and 100."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minik8s_modules.scheduler.framework.points import BEST, Handle

Arguments = Mapping[str, Any]


class InTree:
    """A plugin that is made of its arguments and what it may work with."""

    name = ""

    def __init__(self, arguments: Arguments | None = None, handle: Handle | None = None) -> None:
        self.arguments: Arguments = arguments or {}
        self._handle = handle

    @property
    def handle(self) -> Handle:
        """What the plugin may work with."""
        assert self._handle is not None, f"{self.name} was made without a handle"  # noqa: S101 - a defect, never input
        return self._handle


def scaled(scores: Sequence[int], *, reverse: bool = False) -> list[int]:
    """Return the scores with the largest as 100, or, in reverse, 100 less that (helper.DefaultNormalizeScore)."""
    most = max(scores, default=0)
    if most == 0:
        return [BEST] * len(scores) if reverse else list(scores)
    return [BEST - BEST * each // most if reverse else BEST * each // most for each in scores]
