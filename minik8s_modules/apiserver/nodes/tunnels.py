"""Streams through the API server: bytes from a client's connection to a gateway's and back, by one thread for all.

A request thread has checked the request, opened the gateway's connection and gone back to the pool; from then on only
this thread touches the two sockets, so a TLS connection is never used by two threads. Of what passes it looks at the
answer's head alone (intake/answer_heads.py): WebSocket, SPDY and the text of logs are the gateway's. Each direction
holds at most ``BUFFER_BYTES``; when the reader is slower than the writer, the writer is not read. Of what is ready each
tunnel moves ``TURN_BYTES`` a turn, then it is the next one's.

The client's end ends the tunnel. The gateway's end does too, once the client has all of it: the connection is then shut
for writing and what the client still sends is read away for ``LINGER_S``, because closing a socket with unread bytes
resets it and can lose what was sent last (an exit code).
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import ssl
import threading
from collections import deque
from typing import NamedTuple

from minik8s_modules.api.errors import TooManyRequests
from minik8s_modules.apiserver.intake.answer_heads import AnswerHead
from minik8s_modules.apiserver.intake.limits import Admission, Holder
from minik8s_modules.base.clock import Clock

log = logging.getLogger(__name__)

BUFFER_BYTES = 512 * 1024
TURN_BYTES = 1024 * 1024
READ_BYTES = 64 * 1024
LINGER_S = 5.0
MOST = 2000
_TICK_S = 1.0
_BLOCKED = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class _Pair(NamedTuple):
    client: socket.socket
    gateway: socket.socket
    holder: Holder
    ahead: bytes
    head: AnswerHead | None


class Flow:
    """One direction: what was read from ``source`` and not yet taken by ``sink``."""

    def __init__(
        self, source: socket.socket, sink: socket.socket, held: bytes = b"", head: AnswerHead | None = None
    ) -> None:
        self._head = head
        self.source = source
        self.sink = sink
        self.held = bytearray(held)
        self.ended = False
        self.refused = False

    def move(self) -> int:
        """Move what can be moved now, a turn's worth at most; return the bytes read or written."""
        moved = 0
        while moved < TURN_BYTES:
            step = self._fill() + self._drain()
            if not step:
                break
            moved += step
        return moved

    def _fill(self) -> int:
        if self.ended or len(self.held) >= BUFFER_BYTES:
            return 0
        try:
            data = self.source.recv(READ_BYTES)
        except _BLOCKED:
            return 0
        except (OSError, ValueError):
            data = b""
        if not data:
            self.ended = True
        self.held += self._head.take(data) if self._head is not None else data
        return len(data)

    def _drain(self) -> int:
        if self.refused:
            self.held.clear()
        if not self.held:
            return 0
        with memoryview(self.held) as view:
            try:
                sent = self.sink.send(view[:READ_BYTES])
            except _BLOCKED:
                return 0
        del self.held[:sent]
        return sent


class Tunnel:
    """One stream."""

    def __init__(self, pair: _Pair) -> None:
        self.client = pair.client
        self.gateway = pair.gateway
        self.holder = pair.holder
        self.up = Flow(pair.client, pair.gateway, pair.ahead)
        self.down = Flow(pair.gateway, pair.client, head=pair.head)
        self.deadline = float("inf")
        self.charged = len(pair.ahead)
        self.interest: dict[int, int] = {}

    @property
    def lingering(self) -> bool:
        """Return whether only the client's last words are waited for."""
        return self.deadline != float("inf")

    def turn(self) -> tuple[bool, bool]:
        """Move bytes; return whether the tunnel is over, and whether there may be more to do at once."""
        if self.lingering:
            return self._discard(), False
        try:
            moved = (self._move_up(), self.down.move())
        except (OSError, ValueError):
            return True, False
        over = self.up.ended
        return over, max(moved) >= TURN_BYTES

    def _move_up(self) -> int:
        try:
            return self.up.move()
        except OSError:  # the gateway reads no more: what it has answered is yet to be told, and the rest read away
            self.up.refused = True
            return self.up.move()

    def has_sent_all(self) -> bool:
        """Return whether the gateway is done and the client has it all."""
        return self.down.ended and not self.down.held

    def _discard(self) -> bool:
        try:
            return not self.client.recv(READ_BYTES)
        except _BLOCKED:
            return False
        except (OSError, ValueError):
            return True

    def wanted(self) -> dict[int, int]:
        """Return what to wait for, by descriptor."""
        if self.lingering:
            return {self.client.fileno(): select.EPOLLIN}
        return {
            self.client.fileno(): _interest(self.up, self.down),
            self.gateway.fileno(): _interest(self.down, self.up),
        }


def _interest(reads: Flow, writes: Flow) -> int:
    room = not reads.ended and len(reads.held) < BUFFER_BYTES
    return (select.EPOLLIN if room else 0) | (select.EPOLLOUT if writes.held else 0)


class Tunnels:
    """See the module's docstring."""

    def __init__(self, clock: Clock, admission: Admission) -> None:
        self._clock = clock
        self._admission = admission
        self._epoll = select.epoll()
        self._tunnels: set[Tunnel] = set()
        self._by_descriptor: dict[int, Tunnel] = {}
        self._new: deque[_Pair | None] = deque()
        self._again: set[Tunnel] = set()
        self._wake_read, self._wake_write = socket.socketpair()
        for end in (self._wake_read, self._wake_write):
            end.setblocking(False)  # noqa: FBT003 - the standard library's signature
        self._epoll.register(self._wake_read, select.EPOLLIN)
        self._thread = threading.Thread(target=self._run, name="streams", daemon=True)
        self._running = True

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def join(
        self,
        client: socket.socket,
        gateway: socket.socket,
        holder: Holder,
        ahead: bytes = b"",
        head: AnswerHead | None = None,
    ) -> None:
        """Take both connections over; from any thread. Both must not block; ``ahead`` was read from the client's.

        Where the answer's head is yet to come, it goes by ``head``.
        """
        self._put(_Pair(client, gateway, holder, ahead, head))

    def admit(self, holder: Holder, ahead: int = 0) -> None:
        """Raise TooManyRequests when no further stream, or none of ``holder`` with ``ahead`` bytes held, is taken."""
        self._admission.admit("streams", holder)
        if self._admission.bytes.room(holder.account) < ahead:
            raise self._admission.refuse("bytes_per_user")
        if len(self._tunnels) >= MOST:
            raise TooManyRequests(f"this API server carries {MOST} streams already; close some, or try again")

    def charge(self, holder: Holder, amount: int) -> None:
        """Charge ``holder`` for bytes that are held for its stream elsewhere; negative when they are no more."""
        if amount:
            self._admission.bytes.add(holder.account, amount)

    def stop(self) -> None:
        """Cut all streams and end the thread."""
        self._put(None)
        self._thread.join(timeout=5.0)

    def failure(self) -> str:
        """Return why no stream can work, "" when they can."""
        return "" if self._thread.is_alive() else "the streams thread has ended"

    def count(self) -> int:
        """Return the number of streams."""
        return len(self._tunnels)

    def _put(self, item: _Pair | None) -> None:
        self._new.append(item)
        with contextlib.suppress(OSError):  # the pipe is full of wake-ups already, or the thread has ended
            self._wake_write.send(b"x")

    # everything below runs in the thread of streams

    def _run(self) -> None:
        next_tick = 0.0
        while self._running:
            ready = self._again
            self._again = set()
            for descriptor, _ in self._epoll.poll(0 if ready else _TICK_S if self._tunnels else None):
                if descriptor == self._wake_read.fileno():
                    self._wake_read.recv(65536)
                    self._take_new(ready)
                elif tunnel := self._by_descriptor.get(descriptor):
                    ready.add(tunnel)
            for tunnel in ready:
                self._guarded_turn(tunnel)
            if self._clock.monotonic() >= next_tick:
                next_tick = self._clock.monotonic() + _TICK_S
                self._end_late()
        for tunnel in list(self._tunnels):
            self._drop(tunnel)
        self._epoll.close()
        self._wake_read.close()
        self._wake_write.close()

    def _take_new(self, ready: set[Tunnel]) -> None:
        while self._new:
            pair = self._new.popleft()
            if pair is None:
                self._running = False
                return
            tunnel = Tunnel(pair)
            self._tunnels.add(tunnel)
            self._admission.hold("streams", tunnel.holder, 1)
            self._admission.bytes.add(tunnel.holder.account, tunnel.charged)
            ready.add(tunnel)

    def _guarded_turn(self, tunnel: Tunnel) -> None:
        if tunnel not in self._tunnels:
            return
        try:
            over, more = tunnel.turn()
            if over:
                self._drop(tunnel)
                return
            if not tunnel.up.held:
                self._uncharge(tunnel)
            if tunnel.has_sent_all() and not tunnel.lingering:
                self._linger(tunnel)
            self._watch(tunnel)
            if more:
                self._again.add(tunnel)
        except Exception:  # the thread must outlive a defect, whatever it is
            log.exception("a stream failed")
            self._drop(tunnel)

    def _watch(self, tunnel: Tunnel) -> None:
        """Make epoll wait for what the tunnel waits for."""
        wanted = tunnel.wanted()
        for descriptor, events in wanted.items():
            if descriptor not in tunnel.interest:
                self._epoll.register(descriptor, events)
                self._by_descriptor[descriptor] = tunnel
            elif tunnel.interest[descriptor] != events:
                self._epoll.modify(descriptor, events)
        tunnel.interest = wanted

    def _linger(self, tunnel: Tunnel) -> None:
        self._forget(tunnel, tunnel.gateway)
        tunnel.gateway.close()
        with contextlib.suppress(OSError):
            # the base class's method: SSLSocket's own would drop the TLS state that is still read with
            socket.socket.shutdown(tunnel.client, socket.SHUT_WR)
        tunnel.deadline = self._clock.monotonic() + LINGER_S

    def _end_late(self) -> None:
        now = self._clock.monotonic()
        for tunnel in [each for each in self._tunnels if each.deadline < now]:
            self._drop(tunnel)

    def _drop(self, tunnel: Tunnel) -> None:
        if tunnel not in self._tunnels:
            return
        self._tunnels.discard(tunnel)
        self._admission.hold("streams", tunnel.holder, -1)
        self._uncharge(tunnel)
        for end in (tunnel.client, tunnel.gateway):
            self._forget(tunnel, end)
            end.close()

    def _uncharge(self, tunnel: Tunnel) -> None:
        """Give back what its beginning was charged."""
        charged, tunnel.charged = tunnel.charged, 0
        if charged:
            self._admission.bytes.add(tunnel.holder.account, -charged)

    def _forget(self, tunnel: Tunnel, end: socket.socket) -> None:
        descriptor = end.fileno()
        if tunnel.interest.pop(descriptor, None) is not None:
            self._by_descriptor.pop(descriptor, None)
            with contextlib.suppress(OSError):
                self._epoll.unregister(descriptor)
