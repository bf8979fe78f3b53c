"""One connection as the intake sees it: its socket, what was read of its next request, what is still to be sent.

Its socket never blocks. It belongs to the event loop (intake.py), but to a thread while that answers a request of it
(state ANSWERING), so that no two threads ever use one TLS connection. epoll tells of it once (EPOLLONESHOT) and is
armed again when there is reason to, so a request that is being answered makes no noise, whatever its client does.
"""

from __future__ import annotations

import logging
import select
import socket
import ssl
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from http import HTTPStatus
from typing import NamedTuple, TypeVar

import orjson

from minik8s_modules.api.errors import StatusError
from minik8s_modules.apiserver.authorization.identity import User
from minik8s_modules.apiserver.intake.framing import Reader, Whole
from minik8s_modules.apiserver.intake.limits import Account, stranger
from minik8s_modules.base.sockets import SOCKET_OPTIONS

log = logging.getLogger(__name__)

WOULD_BLOCK = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
# answers up to this size go out in one piece, head and body
_JOINED_BYTES = 64 * 1024
_PIECE_BYTES = 64 * 1024
_MAPPED = "::ffff:"
"""What an IPv4 address begins with at a socket of both families (RFC 4291, 2.5.5.2); its client has one name."""


class State(Enum):
    """What a connection does; its order in time is that of its life."""

    SILENT = auto()
    """Accepted; nothing was heard, and nothing spent on TLS."""
    SHAKING = auto()
    """In the TLS handshake."""
    READING = auto()
    """Between requests, or in one that is not whole."""
    ANSWERING = auto()
    """Its request waits for a thread, or has one."""
    SENDING = auto()
    """Its client has not yet taken all of an answer."""
    LINGERING = auto()
    """Over; what its client still sends is read away, for closing would reset the connection and lose the answer."""


class Answer(NamedTuple):
    """What became of a request: what was sent, whether the connection is kept, and whose it turned out to be.

    ``taken`` says that the connection was handed over to the watch hub or the tunnels.
    """

    parts: list[bytes]
    keep: bool
    account: Account | None = None
    taken: bool = False


Made = TypeVar("Made", bound=Answer | None)


class Connection:
    """See the module's docstring.

    Attributes:
        account: to whom it is charged.
        user: whom its certificate names.
        number: how many requests have come.
        charged: how many bytes it holds at its account's expense.
    """

    def __init__(self, sock: socket.socket, peer: tuple[str, int], epoll: select.epoll, deadline: float) -> None:
        self._epoll = epoll
        self.sock = sock
        self.descriptor = sock.fileno()
        self.peer = peer
        self.server: tuple[str, int] = sock.getsockname()
        self.state = State.SILENT
        self.deadline = deadline
        self.account = stranger(peer[0])
        self.user: User | None = None
        self.reader = Reader()
        self.number = 0
        self.charged = 0
        self.closing = False
        self._out: deque[memoryview] = deque()
        self.out_bytes = 0
        self._arming: list[None] = []  # an entry for each thread that is about to; changed in one step, unlike a number

    @classmethod
    def of(cls, sock: socket.socket, peer: tuple[str, int], epoll: select.epoll, deadline: float) -> Connection | None:
        """Return the connection of a socket that was accepted, None where its client has gone already."""
        try:
            for level, option, value in SOCKET_OPTIONS:
                sock.setsockopt(level, option, value)
            sock.setblocking(False)  # noqa: FBT003 - the standard library's signature
        except OSError:
            sock.close()
            return None
        return cls(sock, (peer[0].removeprefix(_MAPPED), *peer[1:]), epoll, deadline)

    @property
    def busy(self) -> bool:
        """Return whether a thread may be using it."""
        return self.state is State.ANSWERING or bool(self._arming)

    @property
    def idle(self) -> bool:
        """Return whether nothing is asked of the server."""
        if self.state is State.READING:
            return self.number > 0 and not self.reader.held and not self._arming
        return self.state is State.SILENT

    def handshake(self, context: Callable[[], ssl.SSLContext]) -> ssl.SSLSocket:
        """Take a step of the TLS handshake and return the connection once it is done.

        Raises:
            OSError: one of WOULD_BLOCK where the client's next step is waited for; others when there will be none.
        """
        if not isinstance(self.sock, ssl.SSLSocket):
            self.sock = context().wrap_socket(self.sock, server_side=True, do_handshake_on_connect=False)
            self.state = State.SHAKING
        self.sock.do_handshake()
        return self.sock

    def arm(self, events: int) -> None:
        """Wait for one of ``events``; the first of them ends the waiting."""
        self._epoll.modify(self.descriptor, events | select.EPOLLONESHOT)

    def goes_on(self, answer: Answer, deadline: float) -> bool:
        """Wait for the next request until ``deadline``, if an answer needs nothing more; return whether that is so.

        For the thread that has answered: waking the event loop for it would cost more. It is the usual case that the
        client has taken everything, and that whose the connection is was known. Once armed, it is the loop's again.
        """
        if not answer.keep or answer.taken or self.out_bytes or self.charged or self.reader.held:
            return False
        if answer.account not in {None, self.account}:
            return False
        self._arming.append(None)  # until then nobody closes it, and gives its descriptor to another connection
        self.deadline = deadline
        self.state = State.READING
        try:
            self.arm(select.EPOLLIN)
        except (OSError, ValueError):
            self.state = State.ANSWERING
            return False
        finally:
            self._arming.pop()
        return True

    def take(self) -> socket.socket:
        """Return the socket for others to use; nothing here will use it again."""
        self._epoll.unregister(self.descriptor)
        return self.sock

    def answered(self, whole: Whole, answering: Callable[[Connection, Whole], Made]) -> Made | Answer:
        """Return the answer to a request, of which the client has been sent what it takes now; None is passed on."""
        try:
            answer = answering(self, whole)
            if answer is not None and not answer.taken:
                self.queue(answer.parts)
                self.send()
        except OSError:  # the client has gone
            return Answer([], keep=False)
        except Exception:
            log.exception("a request of %s failed", self.peer[0])
            return Answer([], keep=False)
        return answer

    def queue(self, parts: list[bytes]) -> None:
        """Take what is to be sent."""
        size = sum(map(len, parts))
        if size <= _JOINED_BYTES:
            parts = [b"".join(parts)]
        self._out.extend(memoryview(part) for part in parts if part)
        self.out_bytes += size

    def send(self, pieces: float = float("inf")) -> None:
        """Send what the client takes now, ``pieces`` at most; raises OSError when it has gone."""
        while self._out and pieces > 0:
            pieces -= 1
            view = self._out[0]
            try:
                sent = self.sock.send(view[:_PIECE_BYTES])
            except WOULD_BLOCK:
                return
            self.out_bytes -= sent
            if sent == len(view):
                self._out.popleft()
            else:
                self._out[0] = view[sent:]


def status_answer(error: StatusError) -> list[bytes]:
    """Return the answer that tells an error and ends the connection."""
    body = orjson.dumps(error.status())
    retry = f"Retry-After: {error.retry_after_s}\r\n" if error.retry_after_s else ""
    try:
        phrase = HTTPStatus(error.code).phrase
    except ValueError:
        phrase = error.reason
    head = (
        f"HTTP/1.1 {error.code} {phrase}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        f"Cache-Control: no-cache, private\r\n{retry}Connection: close\r\n\r\n"
    )
    return [head.encode(), body]
