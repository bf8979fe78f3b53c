"""Charges connections and their bytes to accounts, and makes those that are over a limit give way (limits.py).

For one thread, the intake's. A connection is a stranger's, charged to its address, until a certificate or a token tells
its user. Which token is whose is remembered (by digest) once a request with it was authenticated, so that its next
request's body is the user's from the start; that decides who is charged, never who may do what.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable

from minik8s_modules.api.errors import StatusError
from minik8s_modules.apiserver.intake.connections import Connection
from minik8s_modules.apiserver.intake.limits import STRANGER, SYSTEM, USER, Account, Admission

log = logging.getLogger(__name__)

# what any connection may hold without being charged for it
FREE_BYTES = 16 * 1024
REMEMBERED = 4096
_AUTHORIZATION = re.compile(rb"\r\nauthorization:[ \t]*([^\r]+)")

Line = OrderedDict[Connection, None]


class Charging:
    """See the module's docstring.

    Args:
        admission: the limits.
        close: ends a connection at once.
        refuse: tells a connection an error and ends it.
    """

    def __init__(
        self,
        admission: Admission,
        close: Callable[[Connection], None],
        refuse: Callable[[Connection, StatusError], None],
    ) -> None:
        self._admission = admission
        self._limits = admission.limits
        self._most = {USER: self._limits.connections_per_user, STRANGER: self._limits.connections_per_address}
        self._close = close
        self._refuse = refuse
        self._count = 0
        self._lines: dict[Account, Line] = {}  # the connection unused longest comes first
        self._known: OrderedDict[bytes, Account] = OrderedDict()

    # connections

    def enter(self, connection: Connection) -> None:
        """Count a new connection; the one unused longest goes when that is one too many."""
        self._lines.setdefault(connection.account, OrderedDict())[connection] = None
        self._count += 1
        found = self._surplus(connection)
        if found is not None:
            victim, limit = found
            if victim is connection:
                raise self._admission.refuse(limit)
            self._admission.rejected(limit)
            self._close(victim)

    def used(self, connection: Connection) -> None:
        """Note that a connection has just been used."""
        self._lines[connection.account].move_to_end(connection)

    def leave(self, connection: Connection) -> None:
        """Count a connection no more."""
        self.weigh(connection, 0)
        line = self._lines[connection.account]
        del line[connection]
        self._count -= 1
        if not line:
            del self._lines[connection.account]

    def move(self, connection: Connection, account: Account) -> None:
        """Let ``account`` answer for a connection.

        Raises:
            TooManyRequests: it has too many, all of them busy.
        """
        if account != connection.account:
            self.leave(connection)
            connection.account = account
            self.enter(connection)

    def close_one(self, why: str) -> None:
        """Close the connection unused longest, of the account that has most."""
        log.error(why)
        victim = _first(self._heaviest() or ())
        if victim is not None:
            self._close(victim)

    def _surplus(self, newest: Connection) -> tuple[Connection, str] | None:
        """Return which connection must go because of ``newest``, and by which limit; None while there is room."""
        rank, line = newest.account.rank, self._lines[newest.account]
        if rank != SYSTEM and len(line) > self._most[rank]:
            # a user's that wait for a request go before those in which one begins; strangers might only pretend that
            waiting = _first(each for each in line if each.idle and rank == USER)
            return waiting or _first(line) or newest, f"connections_per_{rank}"
        if self._count <= self._limits.connections:
            return None
        heaviest = self._heaviest()
        return (_first(heaviest) or newest, "connections") if heaviest else None

    def _heaviest(self) -> Line | None:
        limited = (line for account, line in self._lines.items() if account.rank != SYSTEM)
        return max(limited, key=len, default=None)

    # users

    def recognize(self, connection: Connection, head: bytes) -> None:
        """Charge a connection without a certificate to the user its token has been seen to be of.

        Raises:
            TooManyRequests: the user has too many connections, all of them busy.
        """
        token = b"" if connection.user else _token(head)
        account = self._known.get(token)
        if account is not None:
            self._known.move_to_end(token)
            self.move(connection, account)

    def remember(self, connection: Connection, head: bytes, account: Account) -> None:
        """Note whose the token was that a request came with."""
        token = b"" if connection.user else _token(head)
        if token:
            self._known[token] = account
            self._known.move_to_end(token)
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
            self.move(connection, account)

    # bytes

    def expect(self, connection: Connection, to_come: int) -> None:
        """Raise TooManyRequests when a user has no room for so many bytes; strangers give way when they have come."""
        if connection.account.rank == USER and self._admission.bytes.room(connection.account) < to_come:
            raise self._admission.refuse("bytes_per_user")

    def weigh(self, connection: Connection, held: int) -> None:
        """Charge what a connection holds.

        Raises:
            TooManyRequests: it is too much, and nothing else can give way.
        """
        charged = held if held > FREE_BYTES else 0
        change, connection.charged = charged - connection.charged, charged
        if not change:
            return
        within = self._admission.bytes.add(connection.account, change)
        if change < 0:
            return
        if not within and connection.account.rank == STRANGER:
            self._give_way(connection.account, connection, "bytes_per_address")
        elif not within:
            raise self._admission.refuse("bytes_per_user")
        elif self._admission.bytes.total > self._limits.bytes:
            self._give_way(self._admission.bytes.heaviest(), connection, "bytes")

    def _give_way(self, account: Account | None, newest: Connection, limit: str) -> None:
        """Refuse the connection that has held bytes of ``account`` the longest."""
        line = self._lines.get(account, ()) if account else ()
        victim = _first(each for each in line if each.charged) or newest
        error = self._admission.refuse(limit)
        if victim is newest:
            raise error
        self._refuse(victim, error)


def _first(line: Iterable[Connection]) -> Connection | None:
    """Return the first connection that can be closed."""
    return next((each for each in line if not each.busy), None)


def _token(head: bytes) -> bytes:
    """Return a digest of the credentials in a head, b"" when there are none."""
    found = _AUTHORIZATION.search(head.lower())
    return hashlib.sha256(head[found.start(1) : found.end(1)]).digest() if found else b""
