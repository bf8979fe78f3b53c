"""APIs of others that keep silent: one that hangs holds one thread now and then, and not every thread that asks.

The API server passes requests for an extension on and waits as long as the client does. Where several threads work for
everybody, one extension would hold them all in turn.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from minik8s_modules.base.clock import Clock
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.client.errors import ApiUnreachable

AGAIN_S = 15.0
_LONG_S = 1.0  # whoever failed sooner held nobody up


class Silences:
    """Which APIs kept silent when they were asked last; thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._until_s: dict[str, float] = {}

    @contextmanager
    def asking(self, api: str) -> Iterator[None]:
        """Ask an API in the body; of one that kept silent, one thread finds out now and then whether it still does.

        Raises:
            ApiUnreachable: it kept silent lately.
        """
        began_s = self._begun(api)
        until_s = None
        try:
            yield
        except TemporaryError:
            now_s = self._clock.monotonic()
            until_s = now_s + AGAIN_S if now_s - began_s >= _LONG_S else None
            raise
        finally:
            with self._lock:
                if until_s is not None:
                    self._until_s[api] = until_s
                else:
                    self._until_s.pop(api, None)

    def _begun(self, api: str) -> float:
        with self._lock:
            now_s = self._clock.monotonic()
            if self._until_s.get(api, now_s) > now_s:
                raise ApiUnreachable(f"{api} has kept silent, and is asked again every {AGAIN_S:.0f} s")
            if api in self._until_s:
                self._until_s[api] = math.inf
            return now_s
