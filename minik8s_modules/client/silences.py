"""What of others' APIs keeps silent: who hangs holds one thread of those that ask, and not every thread.

The API server passes requests for an extension on and waits as long as the client does. Where several threads work for
everybody, one extension would hold them all in turn. An extension may hang for one thing and answer for all others, as
a metrics adapter does for one heavy query. So silence is remembered of each thing that is asked for, and what answered
last is asked whatever the rest does: nobody takes its answers from it by what else he asks.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from minik8s_modules.base.clock import Clock
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.client.errors import ApiUnreachable

AGAIN_S = 15.0
_LONG_S = 1.0  # whoever failed sooner held nobody up
_FORGOTTEN_S = 60.0  # a silence that nobody has come back to for so long says nothing of the rest any more
_ALL = 4
"""How many that used to answer fall silent, with no answer between, before the whole API is taken to hang."""
_KEPT = 4_000
_Asked = tuple[str, str]  # API, about
_Value = TypeVar("_Value")


class Silences:
    """What kept silent when it was asked last, and what answered; thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._silent: dict[_Asked, float] = {}  # until when it is left alone
        self._answering: dict[_Asked, None] = {}
        self._probed: set[str] = set()
        self._fallen: Counter[str] = Counter()

    @contextmanager
    def asking(self, api: str, about: str) -> Iterator[None]:
        """Ask an API about something in the body.

        While an API keeps silent about anything, one thread at a time asks it what is not known to answer.

        Raises:
            ApiUnreachable: it kept silent about this lately, or another thread is finding out what it answers.
        """
        asked = (api, about)
        began_s, probes = self._begun(asked)
        until_s = None
        try:
            yield
        except TemporaryError:
            now_s = self._clock.monotonic()
            until_s = now_s + AGAIN_S if now_s - began_s >= _LONG_S else None
            raise
        finally:
            with self._lock:
                if probes:
                    self._probed.discard(api)
                if until_s is None:
                    self._answers(asked)
                else:
                    self._falls_silent(asked, until_s)

    def _begun(self, asked: _Asked) -> tuple[float, bool]:
        """Return the time, and whether to find out what the API answers is this thread's alone."""
        with self._lock:
            now_s, api = self._clock.monotonic(), asked[0]
            if asked in self._answering or not self._is_doubtful(asked, now_s):
                return now_s, False
            if api in self._probed or self._silent.get(asked, now_s) > now_s:
                raise ApiUnreachable(f"{api} has kept silent, and is asked again every {AGAIN_S:.0f} s")
            self._probed.add(api)
            return now_s, True

    def _is_doubtful(self, asked: _Asked, now_s: float) -> bool:
        lately_s = now_s - _FORGOTTEN_S
        return asked in self._silent or any(
            api == asked[0] and until_s > lately_s for (api, _), until_s in self._silent.items()
        )

    def _answers(self, asked: _Asked) -> None:
        self._fallen.pop(asked[0], None)
        self._silent.pop(asked, None)
        _put(self._answering, asked, None)

    def _falls_silent(self, asked: _Asked, until_s: float) -> None:
        if asked in self._answering:
            del self._answering[asked]
            self._fallen[asked[0]] += 1
            if self._fallen[asked[0]] >= _ALL:
                self._answering = {each: None for each in self._answering if each[0] != asked[0]}
        _put(self._silent, asked, until_s)


def _put(kept: dict[_Asked, _Value], asked: _Asked, value: _Value) -> None:
    """Put it last; what was put first goes, where there are too many."""
    kept.pop(asked, None)
    kept[asked] = value
    if len(kept) > _KEPT:
        del kept[next(iter(kept))]
