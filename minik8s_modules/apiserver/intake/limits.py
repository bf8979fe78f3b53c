"""Who holds how much of the server: accounts, what each may hold, and who gives way when there is no more room.

What is held is charged to an account: a user's, or, as long as a connection's user is not known, its address's. Of
IPv6 that is the address's /64: a host has all addresses of its network, and may come from another one each time.
Daemons and administrators have accounts without limits: shutting them out would shut everybody out, and who has their
keys needs no flood. The service accounts of a namespace share one, because whoever may make one may make a thousand.
Connections and bytes are charged to an address only for strangers: behind one there may be many users. Nodes' watches
and streams are not: those of a whole network are in one /64.

Limits of connections never keep a newcomer out: the connection that was unused longest gives way, first of the account
that is over its limit, then, when the server is full, of the one that holds most. So strangers who hold connections
open only displace each other. Limits of watches, streams and bytes are answered with 429.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import NamedTuple

from minik8s_modules.api.errors import TooManyRequests
from minik8s_modules.apiserver.authorization.identity import ACCOUNT, ACCOUNTS, MASTERS, User
from minik8s_modules.apiserver.http.settings import Limits
from minik8s_modules.base.metrics import Registry

SYSTEM, USER, STRANGER = "system", "user", "address"
RETRY_AFTER_S = 1
_NODE = "system:node:"
_MAPPED = bytes(10) + b"\xff\xff"
"""What an IPv4 address begins with at a socket of both families (RFC 4291, 2.5.5.2)."""
_NETWORK_BYTES = 8


class Account(NamedTuple):
    """To whom something is charged; ``rank`` is SYSTEM, USER or STRANGER, whose name ``stranger`` makes."""

    name: str
    rank: str


class Holder(NamedTuple):
    """Who holds a watch or a stream: a user's account, and the address it came from."""

    account: Account
    address: str

    @property
    def charged(self) -> tuple[Account, ...]:
        """Return the accounts that are charged."""
        alone = self.account.rank == SYSTEM or self.account.name.startswith(_NODE)
        return (self.account,) if alone else (self.account, stranger(self.address))


def stranger(address: str) -> Account:
    """Return the account of whoever comes from ``address``: its own, of IPv6 that of its /64."""
    try:
        packed = socket.inet_pton(socket.AF_INET6, address.partition("%")[0])
    except OSError:
        return Account(address, STRANGER)
    if packed.startswith(_MAPPED):
        return Account(socket.inet_ntop(socket.AF_INET, packed[len(_MAPPED) :]), STRANGER)
    network = packed[:_NETWORK_BYTES] + bytes(_NETWORK_BYTES)
    return Account(f"{socket.inet_ntop(socket.AF_INET6, network)}/64", STRANGER)


def account_of(user: User) -> Account:
    """Return the account of ``user``."""
    if is_daemon(user) or MASTERS in user.groups:
        return Account(user.name, SYSTEM)
    if user.name.startswith(ACCOUNT):
        namespace = user.name.removeprefix(ACCOUNT).split(":", 1)[0]
        return Account(f"{ACCOUNTS}:{namespace}", USER)
    return Account(user.name, USER)


def is_daemon(user: User) -> bool:
    """Return whether ``user`` is one of the control plane's own processes."""
    return user.name.startswith(("system:kube-", "system:minik8s:"))


class Holdings:
    """What accounts hold of one thing; from any thread.

    Args:
        most: how much an account may hold.
    """

    def __init__(self, most: Callable[[Account], float]) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._held: dict[Account, int] = {}
        self.total = 0

    def add(self, account: Account, amount: int = 1) -> bool:
        """Charge ``amount``, which may be negative, and return whether the account is within its limit."""
        with self._lock:
            self.total += amount
            held = self._held.get(account, 0) + amount
            if held:
                self._held[account] = held
            else:
                self._held.pop(account, None)
        return held <= self._most(account)

    def room(self, account: Account) -> float:
        """Return how much more the account may hold; negative when it holds too much."""
        return self._most(account) - self._held.get(account, 0)

    def heaviest(self) -> Account | None:
        """Return who holds most, leaving out accounts without a limit."""
        with self._lock:
            limited = {account: held for account, held in self._held.items() if account.rank != SYSTEM}
        return max(limited, key=lambda account: limited[account], default=None)


class Admission:
    """What may be held, as the settings say, and what is refused, for the metrics."""

    def __init__(self, limits: Limits, metrics: Registry) -> None:
        self.limits = limits
        self.bytes = Holdings(self._most("bytes"))
        self.watches = Holdings(self._most("watches"))
        self.streams = Holdings(self._most("streams"))
        self._rejected = metrics.counter(
            "apiserver_limit_rejected_total", "Connections closed and requests answered 429 by a limit.", ("limit",)
        )
        metrics.gauge("apiserver_buffered_bytes", "Bytes held for slow clients.", (), lambda: {(): self.bytes.total})

    def admit(self, what: str, holder: Holder) -> None:
        """Raise TooManyRequests when a user, or everybody at an address, holds as many ``what`` as allowed."""
        held: Holdings = getattr(self, what)
        for account in holder.charged:
            if held.room(account) < 1:
                raise self.refuse(f"{what}_per_{account.rank}")

    def hold(self, what: str, holder: Holder, amount: int) -> None:
        """Note that ``holder`` holds ``amount`` more of ``what``."""
        held: Holdings = getattr(self, what)
        for account in holder.charged:
            held.add(account, amount)

    def refuse(self, limit: str) -> TooManyRequests:
        """Count a refusal and return the error that tells it; ``limit`` is a field of Limits."""
        self.rejected(limit)
        most = getattr(self.limits, limit)
        return TooManyRequests(
            f"too many {limit.replace('_', ' ')}: the limit is {most}. Close some, or try again later; "
            f"an administrator can raise limits.{limit} in the API server's configuration",
            retry_after_s=RETRY_AFTER_S,
        )

    def rejected(self, limit: str) -> None:
        """Count a refusal."""
        self._rejected.labels(limit).inc()

    def _most(self, what: str) -> Callable[[Account], float]:
        most: dict[str, float] = {
            SYSTEM: float("inf"),
            USER: getattr(self.limits, f"{what}_per_user"),
            STRANGER: getattr(self.limits, f"{what}_per_address"),
        }
        return lambda account: most[account.rank]
