"""The one connection to etcd on which all errands of an event loop call (base/errands.py, rpc/multiplexed.py).

What errands ask in one turn of the loop goes out together at its end. Everything here runs in the loop's thread. A call
that is not answered in time is cancelled alone: etcd may have paused, and the others' answers are still to come. No
further call is made on such a connection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from minik8s_modules.base.errands import Errands, Pause
from minik8s_modules.module_utils.minik8s.rpc.http2 import Broken
from minik8s_modules.module_utils.minik8s.rpc.multiplexed import Multiplexed

log = logging.getLogger(__name__)


class Shared:
    """See the module's docstring.

    Args:
        channel: the connection.
        number: of its endpoint.
        end: closes it.
    """

    def __init__(self, channel: Multiplexed, number: int, end: Callable[[Multiplexed], None]) -> None:
        self.channel, self.number = channel, number
        self._end = end
        self._errands: Errands | None = None
        self._is_to_flush = self._is_blocked = self._is_leaving = self._is_gone = False

    @property
    def usable(self) -> bool:
        """Whether another call may be made."""
        return not (self._is_gone or self._is_leaving) and self.channel.usable

    def takes(self, errands: Errands, message: bytes) -> bool:
        """Return whether an errand of this loop can make a call with ``message``."""
        return self.usable and self._errands in {None, errands} and self.channel.takes(message)

    def call(self, errands: Errands, method: str, message: bytes, timeout_s: float) -> bytes:
        """Return the answer to ``message``; an errand, which waits for it.

        Raises:
            CallFailed: the server says no.
            Broken: no answer came within ``timeout_s``, or will.
        """
        if self._errands is None:
            self._errands = errands
            errands.follow(self.channel.descriptor(), self._on_ready, self.close)
            self._on_ready()  # nobody has looked since it was made
            if self._is_gone:
                raise Broken("the server closed the connection before its first call", unseen=True)
        pause = Pause(errands)
        call = self.channel.begin(method, message, pause.end)
        self._to_be_flushed()
        if not pause.wait(timeout_s) and not call.ended:
            self.channel.cancel(call, Broken("the answer took too long", late=True))
            self._to_be_flushed()
            self.leave()
        return call.answer()

    def close(self) -> None:
        """End the connection, and the calls that run on it."""
        self._break(Broken("the connection is closed"))

    @property
    def is_followed(self) -> bool:
        """Whether a loop looks after it, which then closes it."""
        return self._errands is not None

    def _to_be_flushed(self) -> None:
        if not self._is_to_flush and self._errands is not None:
            self._is_to_flush = True
            self._errands.at_last(self._flush)

    def leave(self) -> None:
        """End the connection once its calls have ended; there must be no further ones."""
        self._is_leaving = True
        self._end_if_left()

    def _end_if_left(self) -> None:
        if (self._is_leaving or not self.channel.usable) and not self.channel.running:
            self._break(Broken("the connection is no longer used"))

    def _on_ready(self) -> None:
        if self._did(self.channel.take_in):
            self._flush()
            self._end_if_left()

    def _flush(self) -> None:
        self._is_to_flush = False
        if self._is_gone:
            return
        if not self._did(self.channel.flush):
            return
        if self._errands is not None and self.channel.blocked != self._is_blocked:
            self._is_blocked = self.channel.blocked
            self._errands.follow_writing(self.channel.descriptor(), too=self._is_blocked)

    def _did(self, step: Callable[[], None]) -> bool:
        """Take a step; return whether the connection is still of use."""
        try:
            step()
        except Broken as error:
            self._break(error)
        except Exception as error:  # the loop must outlive a defect, and what no server should send
            log.exception("the connection to etcd failed")
            self._break(Broken(f"{type(error).__name__}: {error}"))
        return not self._is_gone

    def _break(self, error: Broken) -> None:
        if self._is_gone:
            return
        self._is_gone = True
        if self._errands is not None:
            self._errands.unfollow(self.channel.descriptor())
        self.channel.end_all(error)
        self._end(self.channel)
