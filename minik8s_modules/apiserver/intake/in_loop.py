"""What the intake's loop answers itself: a thread would have to wait for the interpreter behind all others; it has it.

What waits for nobody and is short, it answers at once, ``AT_ONCE`` requests in a turn. Short writes are errands
(base/errands.py): while they wait for etcd it goes on, and etcd is asked for all of a turn together. ``ERRANDS`` begin
in a turn, and none once the first of them began ``BEGINNING_S`` ago, whatever they compute. What is over these numbers
has threads, and so has who comes without a certificate: each token may have to be verified.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable

from minik8s_modules.apiserver.intake.connections import Answer, Connection
from minik8s_modules.apiserver.intake.framing import Whole
from minik8s_modules.apiserver.intake.turns import Turns
from minik8s_modules.base.errands import Errands

AT_ONCE = 8
ERRANDS = 16
BEGINNING_S = 0.02  # 16 creates take 5 to 12 ms

Answering = Callable[[Connection, Whole], Answer]


class Loop:
    """See the module's docstring.

    Args:
        epoll: the loop's.
        wake: has it look around; from any thread.
        turns: an account has no more errands at once than threads.
        at_once: answers a request that waits for nobody and is short; else it returns None.
        errand: returns what answers a short write, None for all others.
        done: takes a connection and its answer.
    """

    def __init__(
        self,
        epoll: select.epoll,
        wake: Callable[[], None],
        turns: Turns[tuple[Connection, Whole]],
        at_once: Callable[[Connection, Whole], Answer | None],
        errand: Callable[[Connection, Whole], Answering | None],
        done: Callable[[Connection, Whole, Answer], None],
    ) -> None:
        self._turns, self._at_once, self._errand, self._done = turns, at_once, errand, done
        self.errands = Errands(epoll, wake)
        self._at_once_left, self._errands_left, self._until_s = AT_ONCE, ERRANDS, 0.0

    def begin_turn(self) -> None:
        """Allow as many requests again."""
        self._at_once_left, self._errands_left, self._until_s = AT_ONCE, ERRANDS, 0.0

    def answers(self, connection: Connection, whole: Whole) -> bool:
        """Answer a request, or begin to, if it is its account's turn; return whether it is answered here."""
        if connection.user is None or not self._turns.is_free(connection.account):
            return False
        return self._answers_at_once(connection, whole) or self._runs(connection, whole)

    def _answers_at_once(self, connection: Connection, whole: Whole) -> bool:
        answer = connection.answered(whole, self._at_once) if self._at_once_left else None
        if answer is None:
            return False
        self._at_once_left -= 1
        self._done(connection, whole, answer)
        return True

    def _runs(self, connection: Connection, whole: Whole) -> bool:
        answering = self._errand(connection, whole) if self._errands_left and self._has_time() else None
        if answering is None or not self._turns.begin(connection.account):
            return False
        self._errands_left -= 1
        account, answers = connection.account, [Answer([], keep=False)]

        def work() -> None:
            answers.append(connection.answered(whole, answering))

        def ended() -> None:
            self._turns.done(account)
            self._done(connection, whole, answers[-1])

        self.errands.run(work, ended)
        return True

    def _has_time(self) -> bool:
        now_s = time.monotonic()
        self._until_s = self._until_s or now_s + BEGINNING_S
        return now_s < self._until_s
