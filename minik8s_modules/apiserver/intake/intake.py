"""The intake: one event loop that accepts, shakes hands, and collects requests; a thread gets only what is whole.

Whoever stops in the middle, of a handshake, a head or a body, costs a file descriptor and some memory, and no thread.
Threads read from memory and write without waiting: what a client does not take at once the loop sends. In ``Turns``
accounts take turns for the threads. Deadlines are checked once a second: a handshake and a head have ``HEAD_S`` each,
the body and the sending of an answer ``REQUEST_S`` (kube-apiserver's --request-timeout). ``limits.py`` says how much
who may hold. A handshake costs as much as reading a hundred requests: a turn ends with ``HANDSHAKES`` steps of them.
What is short the loop answers itself (in_loop.py).
"""

from __future__ import annotations

import contextlib
import errno
import logging
import select
import socket
import ssl
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from functools import partial

from minik8s_modules.api.errors import StatusError
from minik8s_modules.apiserver.authorization.identity import user_of
from minik8s_modules.apiserver.intake.charging import Charging
from minik8s_modules.apiserver.intake.connections import WOULD_BLOCK, Answer, Connection, State, status_answer
from minik8s_modules.apiserver.intake.framing import Whole
from minik8s_modules.apiserver.intake.in_loop import Answering, Loop
from minik8s_modules.apiserver.intake.limits import Account, Admission, account_of
from minik8s_modules.apiserver.intake.turns import Turns

HEAD_S = 10.0
REQUEST_S = 60.0
# kubectl and client-go keep idle connections 90 s; closing ours later than theirs avoids resets under their feet
KEEPALIVE_S = 120.0
LINGER_S = 2.0
# a server that stops gives so long to who has just connected, and means to ask something
SILENT_S = 1.0
HANDSHAKES = 8
TICK_S = 1.0
# the largest TLS record, so nothing is left in the TLS layer where epoll would not see it
_RECORD_BYTES = 16 * 1024
# in one turn: records of a connection, connections accepted; at the end so many turns of these, which is any backlog
_PIECES, _ACCEPTED, _ROUNDS = 16, 64, 64
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_IN, _OUT = select.EPOLLIN, select.EPOLLOUT

log = logging.getLogger(__name__)


class Intake:
    """See the module's docstring.

    Args:
        listeners: bound sockets.
        context: returns the TLS context for a new connection.
        admission: the limits, and what is held.
        threads: how many requests are answered at once.
        answer: answers a request of a connection, in a thread.
        at_once: does so in the loop itself, if that is short and nobody has to be waited for; else it returns None.
        errand: returns what answers it there though it has to be waited for; None where that is not short.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        context: Callable[[], ssl.SSLContext],
        admission: Admission,
        threads: int,
        answer: Answering,
        at_once: Callable[[Connection, Whole], Answer | None] = lambda _connection, _whole: None,
        errand: Callable[[Connection, Whole], Answering | None] = lambda _connection, _whole: None,
    ) -> None:
        self._listeners = {listener.fileno(): listener for listener in listeners}
        self._context = context
        self._answer = answer
        self._turns: Turns[tuple[Connection, Whole]] = Turns(threads)
        self._threads: list[threading.Thread] = []
        self._charging = Charging(admission, self._close, self._refuse)
        self._by_descriptor: dict[int, Connection] = {}
        self._shaking: OrderedDict[Account, deque[Connection]] = OrderedDict()
        self._returned: deque[tuple[Connection, Whole, Answer]] = deque()
        self._woken = False
        self._stopping = False
        self._next_tick = 0.0
        self._epoll = select.epoll()
        self._loop = Loop(self._epoll, self.wake, self._turns, at_once, errand, self._answered)
        self._wake_read, self._wake_write = socket.socketpair()
        for end in (self._wake_read, self._wake_write, *listeners):
            end.setblocking(False)  # noqa: FBT003 - the standard library's signature
        for end in (self._wake_read, *listeners):
            self._epoll.register(end, select.EPOLLIN)

    def count(self) -> int:
        """Return the number of connections, without those that were handed over."""
        return len(self._by_descriptor)

    def wake(self) -> None:
        """Make the loop look around; from any thread, or a signal handler."""
        with contextlib.suppress(OSError):  # full of wake-ups already, or over
            self._wake_write.send(b"x")

    def turn(self) -> None:
        """Do what there is to do, after waiting for it up to TICK_S."""
        self._loop.begin_turn()
        for descriptor, _ in self._epoll.poll(0 if self._shaking else TICK_S):
            if descriptor in self._listeners:
                self._accept(self._listeners[descriptor])
            elif descriptor == self._wake_read.fileno():
                self._take_back()
            elif connection := self._by_descriptor.get(descriptor):
                self._guarded(self._on_ready, connection)
            else:
                self._loop.errands.on_ready(descriptor)
        self._shake_hands()
        if time.monotonic() >= self._next_tick:
            self._next_tick = time.monotonic() + TICK_S
            self._end_late()
            self._loop.errands.end_late()
        self._loop.errands.end_turn()

    def stop(self, grace_s: float, own: Sequence[socket.socket] = ()) -> None:
        """Accept nothing more, give requests that have begun ``grace_s`` to end, and close all connections."""
        self._stopping = True
        for listener in self._listeners.values():
            self._epoll.unregister(listener)
        for listener in own:  # who waits there is taken by nobody else: until there is no more, or far too much
            any(not self._accept(listener) for _ in range(_ROUNDS))
            listener.close()
        self._listeners.clear()
        self._close_all(lambda each: each.idle and each.state is not State.SILENT)
        until = time.monotonic() + grace_s
        silent_until = time.monotonic() + min(grace_s, SILENT_S)
        while self._by_descriptor and time.monotonic() < until:
            self.turn()
            self._close_all(lambda each: each.idle and each.state is not State.SILENT)  # a thread may just be done
            if time.monotonic() >= silent_until:
                self._close_all(lambda each: each.state is State.SILENT)
        self._loop.errands.end()
        self._close_all(lambda _: True)
        self._turns.end(len(self._threads))
        for end in (self._epoll, self._wake_read, self._wake_write):
            end.close()

    def _close_all(self, which: Callable[[Connection], bool]) -> None:
        for connection in list(self._by_descriptor.values()):
            if which(connection):
                self._close(connection)

    def _accept(self, listener: socket.socket) -> bool:
        for _ in range(_ACCEPTED):
            try:
                sock, peer = listener.accept()
            except OSError as error:
                if error.errno in {errno.EMFILE, errno.ENFILE}:
                    self._charging.close_one("out of file descriptors; raise the limit of open files")
                return False
            connection = Connection.of(sock, peer, self._epoll, time.monotonic() + HEAD_S)
            if connection is None:
                continue
            self._by_descriptor[connection.descriptor] = connection
            self._epoll.register(connection.descriptor, _IN | select.EPOLLONESHOT)
            try:
                self._charging.enter(connection)
            except StatusError:  # there is no way to tell it yet
                self._close(connection)
        return True

    def _guarded(self, step: Callable[[Connection], None], connection: Connection) -> None:
        try:
            step(connection)
        except StatusError as error:
            self._refuse(connection, error)
        except (OSError, ValueError):  # gone, or no TLS
            self._close(connection)
        except Exception:  # the loop must outlive a defect, whatever it is
            log.exception("a connection of %s failed", connection.peer[0])
            self._close(connection)

    def _on_ready(self, connection: Connection) -> None:
        if connection.state is State.READING:
            self._read(connection)
        elif connection.state is State.SILENT or connection.state is State.SHAKING:
            self._shaking.setdefault(connection.account, deque()).append(connection)
        elif connection.state is State.SENDING:
            self._send(connection)
        elif connection.state is State.LINGERING:
            self._discard(connection)

    # handshakes

    def _shake_hands(self) -> None:
        """Make some steps of handshakes, of one stranger after another."""
        for _ in range(HANDSHAKES):
            if not self._shaking:
                return
            whose, line = next(iter(self._shaking.items()))
            connection = line.popleft()
            self._shaking.move_to_end(whose)
            if not line:
                del self._shaking[whose]
            if connection.descriptor >= 0:
                self._guarded(self._shake, connection)

    def _shake(self, connection: Connection) -> None:
        try:
            sock = connection.handshake(self._context)
        except ssl.SSLWantReadError:
            connection.arm(_IN)
            return
        except ssl.SSLWantWriteError:
            connection.arm(_OUT)
            return
        connection.state = State.READING
        connection.deadline = time.monotonic() + HEAD_S
        connection.user = user_of(sock.getpeercert())
        if connection.user is not None:
            self._charging.move(connection, account_of(connection.user))
        self._read(connection)

    # requests

    def _read(self, connection: Connection) -> None:
        for _ in range(_PIECES):
            try:
                data = connection.sock.recv(_RECORD_BYTES)
            except WOULD_BLOCK:
                break
            if not data:
                self._close(connection)
                return
            if not connection.reader.held:  # a request begins
                connection.deadline = time.monotonic() + HEAD_S
            connection.reader.feed(data)
            if self._collect(connection):
                return
            if len(data) < _RECORD_BYTES:
                break
        connection.arm(_IN)

    def _collect(self, connection: Connection) -> bool:
        """Pass the next request on if it is whole; return whether it was."""
        reader, in_body = connection.reader, connection.reader.frame is not None
        whole = reader.take()
        if whole is None:
            if reader.frame is not None and not in_body:
                self._head_came(connection)
            self._charging.weigh(connection, reader.held)
            return False
        self._charging.recognize(connection, whole.head)
        self._charging.used(connection)
        connection.state = State.ANSWERING
        connection.number += 1
        if self._loop.answers(connection, whole):
            return True
        if self._turns.put(connection.account, (connection, whole)) > len(self._threads):
            thread = threading.Thread(target=self._work, name=f"request-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        return True

    def _head_came(self, connection: Connection) -> None:
        """Give a body its time; refuse one for which its user has no room."""
        connection.deadline = time.monotonic() + REQUEST_S
        reader = connection.reader
        self._charging.recognize(connection, reader.head)
        self._charging.expect(connection, reader.to_come)
        if reader.frame is not None and reader.frame.asks:
            connection.sock.send(_CONTINUE)

    # answers

    def _answered(self, connection: Connection, whole: Whole, answer: Answer) -> None:
        """Go on with a connection that the loop itself has answered."""
        if self._stopping or not connection.goes_on(answer, time.monotonic() + KEEPALIVE_S):
            self._guarded(partial(self._go_on, whole=whole, answer=answer), connection)

    def _work(self) -> None:
        """Answer requests; a thread."""
        while (item := self._turns.take()) is not None:
            connection, whole = item
            answer = connection.answered(whole, self._answer)
            self._turns.done(connection.account)
            if self._stopping or not connection.goes_on(answer, time.monotonic() + KEEPALIVE_S):
                self._returned.append((connection, whole, answer))
                if not self._woken:
                    self._woken = True
                    self.wake()
            del item, connection, whole, answer  # a list's may be megabytes, and this thread may have nothing to do

    def _take_back(self) -> None:
        self._wake_read.recv(4096)
        self._woken = False
        while self._returned:
            connection, whole, answer = self._returned.popleft()
            self._guarded(partial(self._go_on, whole=whole, answer=answer), connection)

    def _go_on(self, connection: Connection, whole: Whole, answer: Answer) -> None:
        """Take a connection back from the thread that answered."""
        connection.state = State.SENDING
        if answer.taken:
            self._forget(connection)
            return
        connection.closing = not answer.keep or self._stopping
        if answer.account is not None:
            try:
                self._charging.remember(connection, whole.head, answer.account)
            except StatusError:  # one connection too many; what it asked has been answered
                connection.closing = True
        if connection.out_bytes:
            connection.deadline = time.monotonic() + REQUEST_S
            self._charging.weigh(connection, connection.out_bytes)
            connection.arm(_OUT)
        else:
            self._sent(connection)

    def _send(self, connection: Connection) -> None:
        connection.send(_PIECES)
        if connection.out_bytes:
            connection.arm(_OUT)
        else:
            self._sent(connection)

    def _sent(self, connection: Connection) -> None:
        """Turn to the next request, which may have come already, or end."""
        self._charging.weigh(connection, 0)
        if connection.closing:
            self._linger(connection)
            return
        connection.state = State.READING
        if connection.reader.held:
            connection.deadline = time.monotonic() + HEAD_S
            if self._collect(connection):
                return
        else:
            connection.deadline = time.monotonic() + KEEPALIVE_S
        connection.arm(_IN)

    def _refuse(self, connection: Connection, error: StatusError) -> None:
        """Tell an error and end the connection."""
        connection.closing = True
        connection.state = State.SENDING
        connection.deadline = time.monotonic() + LINGER_S
        self._charging.weigh(connection, 0)
        connection.queue(status_answer(error))
        try:
            connection.send()
            if connection.out_bytes:
                connection.arm(_OUT)
            else:
                self._linger(connection)
        except OSError:
            self._close(connection)

    # ends

    def _linger(self, connection: Connection) -> None:
        connection.state = State.LINGERING
        connection.deadline = time.monotonic() + LINGER_S
        # the base class's method: SSLSocket's own would drop the TLS state
        socket.socket.shutdown(connection.sock, socket.SHUT_WR)
        connection.arm(_IN)

    def _discard(self, connection: Connection) -> None:
        for _ in range(_PIECES):
            try:
                if not socket.socket.recv(connection.sock, 65536):
                    self._close(connection)
                    return
            except WOULD_BLOCK:
                break
        connection.arm(_IN)

    def _end_late(self) -> None:
        now = time.monotonic()
        for connection in [each for each in self._by_descriptor.values() if each.deadline < now and not each.busy]:
            if connection.state is State.READING and connection.reader.held:
                what, seconds = ("body", REQUEST_S) if connection.reader.frame else ("head", HEAD_S)
                error = StatusError(408, "RequestTimeout", f"the request's {what} did not arrive within {seconds:g} s")
                self._refuse(connection, error)
            else:
                self._close(connection)

    def _close(self, connection: Connection) -> None:
        if connection.descriptor >= 0:
            self._forget(connection)
            connection.sock.close()

    def _forget(self, connection: Connection) -> None:
        self._charging.leave(connection)
        if self._by_descriptor.get(connection.descriptor) is connection:
            del self._by_descriptor[connection.descriptor]
        connection.descriptor = -1
