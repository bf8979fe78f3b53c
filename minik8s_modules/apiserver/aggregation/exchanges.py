"""A request on its way to an extension: what it asks, its body until that is sent, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from minik8s_modules.api.access.api_services import Remote
from minik8s_modules.apiserver.aggregation.heads import Head


class Body:
    """What a request has to say until that is said: then ``done`` is called, once, and nothing of it is kept."""

    def __init__(self, data: bytes = b"", done: Callable[[], None] | None = None) -> None:
        self._data, self._done = data, done

    def take(self) -> bytes:
        """Return it, and keep it no more."""
        data, self._data = self._data, b""
        return data

    def drop(self) -> None:
        """Keep it no more; nobody is charged for it from now on."""
        done, self._data, self._done = self._done, b"", None
        if done is not None:
            done()


class Outcome:
    """What becomes of a request: ``on_end`` learns, once, the code of its answer, 0 when there was none."""

    def __init__(self, on_end: Callable[[int], None] | None = None) -> None:
        self._code, self._on_end = 0, on_end

    def begun(self, code: int) -> None:
        """Note the code of the answer that begins now."""
        self._code = code

    def tell(self) -> None:
        """Tell how it went, if nobody has yet."""
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end(self._code)


class Exchange(NamedTuple):
    """A request for an extension; ``version`` is the client's of HTTP."""

    remote: Remote
    method: str
    target: str
    head: Head
    body: Body
    outcome: Outcome
    version: str = "1.1"
    endless: bool = False
    upgrade: bool = False
