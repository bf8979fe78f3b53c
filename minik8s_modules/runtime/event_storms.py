"""Keeps a storm of Events from becoming a storm of requests, by client-go's rules (``tools/record/events_cache.go``).

More than ten different messages of one reason about one object within ten minutes are told as one Event, "(combined
from similar events): …", whose count grows. And after 25 in a burst only one in five minutes is told at all. Unlike
client-go's, the second rule looks at each reason apart, so that 500 created pods do not hide one that could not be.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import NamedTuple

COMBINED = "(combined from similar events): "
SIMILAR_LIMIT = 10
SIMILAR_S = 600.0
BURST = 25.0
REFILL_S = 300.0
_KNOWN_LIMIT = 4096


class _Known(NamedTuple):
    messages: frozenset[str]
    last_s: float
    tokens: float


class Storms:
    """What has been told lately, by what it was about; not thread-safe."""

    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, _Known] = OrderedDict()

    def judge(self, about: Hashable, message: str, now_s: float) -> str | None:
        """Return what to tell: ``message``, or "" to add it to the combined Event; None for nothing.

        Args:
            about: object, type and reason.
            message: of the Event.
            now_s: monotonic seconds.
        """
        known = self._known.pop(about, _Known(frozenset(), now_s, BURST))
        passed_s = now_s - known.last_s
        messages = known.messages if passed_s <= SIMILAR_S else frozenset[str]()
        tokens = min(BURST, known.tokens + passed_s / REFILL_S)
        combined = len(messages | {message}) >= SIMILAR_LIMIT
        allowed = tokens >= 1
        self._known[about] = _Known(
            messages if combined else messages | {message}, now_s, tokens - 1 if allowed else tokens
        )
        if len(self._known) > _KNOWN_LIMIT:
            self._known.popitem(last=False)
        if not allowed:
            return None
        return "" if combined else message
