"""A fake API that refuses also reads, and loses answers, for what must come to the same all the same."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from minik8s_modules.api.kinds import EVENT, Kind
from minik8s_modules.base.clock import SystemClock
from minik8s_modules.client.errors import ApiUnreachable
from minik8s_modules.client.fake import FakeApi, passing_error


class StormyApi(FakeApi):
    """While ``stormy``, one call in five fails: half of them before, half of them after it was made."""

    def __init__(self, seed: int, verbs: Iterable[str] = ("get", "update", "patch", "delete")) -> None:
        super().__init__(SystemClock())
        self._dice = random.Random(seed)
        self.stormy = False
        for verb in verbs:
            setattr(self, verb, self._unreliable(getattr(self, verb)))

    def _unreliable(self, call: Any) -> Any:
        def attempt(kind: Kind, *arguments: Any, **options: Any) -> Any:
            luck = self._dice.random() if self.stormy and kind != EVENT else 1.0
            if luck < 0.1:
                raise passing_error() if luck < 0.05 else ApiUnreachable("refused")
            answer = call(kind, *arguments, **options)
            if luck < 0.2:
                raise ApiUnreachable("the answer was lost")
            return answer

        return attempt
