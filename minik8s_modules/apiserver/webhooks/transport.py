"""POST over TLS with a deadline, on connections that are kept: how the API server asks programs outside.

A call ends with its deadline whatever the other side does: hangs, drips bytes, never ends its head or body. Each wait
for the socket is given what is left of the time. An answer of more than ``MAX_ANSWER_BYTES`` is cut off, redirects are
not followed, and of a body that is no answer nothing is told. A kept connection that turns out to be closed is replaced
by a new one, once, and only if nothing of an answer had come.
"""

from __future__ import annotations

import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from http import HTTPStatus
from typing import NamedTuple

import h11

from minik8s_modules.apiserver.webhooks.places import Address, Unreachable
from minik8s_modules.base.places import place as place_of
from minik8s_modules.base.sockets import SOCKET_OPTIONS

MAX_ANSWER_BYTES = 3 * 1024 * 1024
MAX_HEAD_BYTES = 64 * 1024
IDLE_S = 90.0
_IDLE_EACH = 8
_CONNECT_S = 3.0  # before the next address of a Service is tried
_READ_BYTES = 64 * 1024
_RESOLVERS = 16
# Go's words where nobody vouches for a server (X509_V_ERR_..._SELF_SIGNED..., _UNABLE_TO_...): installers look for them
# while a CA is not yet injected (cert-manager's check of its API).
_UNKNOWN, _UNKNOWN_CODES = "certificate signed by unknown authority", (18, 19, 20, 21)


class Place(NamedTuple):
    """Where a call goes; ``key`` is the same for calls that may share a connection."""

    key: Hashable
    server: str
    host: str
    target: str
    context: ssl.SSLContext
    addresses: Callable[[], Iterable[Address]]


class _Connection:
    def __init__(self, plain: ssl.SSLSocket) -> None:
        self.socket = plain
        self.http = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        self.used_at = time.monotonic()
        self.fresh = True

    def usable(self) -> bool:
        """Return whether it is still open: one that has something to say unasked is being closed."""
        if time.monotonic() - self.used_at > IDLE_S:
            return False
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        return not self.socket.pending() and not poll.poll(0)


class _Stale(Exception):
    """A kept connection was closed before an answer came."""


Connect = Callable[[Address, float], socket.socket]
"""Returns a connection to an address before a moment of the monotonic clock. Raises OSError."""


class Transport:
    """See the top of this file; from any thread."""

    def __init__(self, connect: Connect | None = None) -> None:
        self._connect = connect or direct
        self._idle: dict[Hashable, deque[_Connection]] = {}
        self._lock = threading.Lock()

    def post(self, place: Place, body: bytes, deadline: float) -> bytes:
        """Return the body of the answer, whose status is 200.

        Args:
            place: where to.
            body: JSON.
            deadline: the moment of ``time.monotonic`` when the call has failed.

        Raises:
            Unreachable: there is none, for whatever reason.
        """
        try:
            connection = self._kept(place.key)
            if connection is not None:
                try:
                    return self._asked(connection, place, body, deadline)
                except _Stale:
                    pass
            return self._asked(self._opened(place, deadline), place, body, deadline)
        except TimeoutError as error:
            raise Unreachable("context deadline exceeded") from error
        except ssl.SSLCertVerificationError as error:
            said = _UNKNOWN if error.verify_code in _UNKNOWN_CODES else error.verify_message
            raise Unreachable(f"tls: failed to verify certificate: x509: {said}") from error
        except _Stale as error:
            raise Unreachable("EOF") from error
        except (OSError, ValueError) as error:
            raise Unreachable(getattr(error, "strerror", None) or str(error) or type(error).__name__) from error

    def close(self) -> None:
        """Close the connections that are kept."""
        with self._lock:
            idle, self._idle = self._idle, {}
        for connections in idle.values():
            for each in connections:
                each.socket.close()

    def _kept(self, key: Hashable) -> _Connection | None:
        while True:
            with self._lock:
                connections = self._idle.get(key)
                if not connections:
                    self._idle.pop(key, None)
                    return None
                connection = connections.pop()
            if connection.usable():
                connection.fresh = False
                return connection
            connection.socket.close()

    def _keep(self, key: Hashable, connection: _Connection) -> None:
        connection.used_at = time.monotonic()
        with self._lock:
            self._drop_old(connection.used_at)
            connections = self._idle.setdefault(key, deque())
            connections.append(connection)
            if len(connections) > _IDLE_EACH:
                connections.popleft().socket.close()

    def _drop_old(self, now: float) -> None:
        for key, connections in list(self._idle.items()):
            while connections and now - connections[0].used_at > IDLE_S:
                connections.popleft().socket.close()
            if not connections:
                del self._idle[key]

    def _opened(self, place: Place, deadline: float) -> _Connection:
        found = list(place.addresses())
        for left, address in zip(range(len(found) - 1, -1, -1), found, strict=True):
            until = min(deadline, time.monotonic() + _CONNECT_S) if left else deadline
            try:
                plain = self._connect(address, until)
            except OSError as error:
                if left:
                    continue
                if isinstance(error, TimeoutError):
                    raise
                why = error.strerror or str(error)
                raise Unreachable(
                    f"dial tcp {place_of(address.host, address.port)}: connect: {why[:1].lower()}{why[1:]}"
                ) from error
            return _Connection(_secured(plain, place, deadline))
        raise Unreachable(f"{place.host} has no address")

    def _asked(self, connection: _Connection, place: Place, body: bytes, deadline: float) -> bytes:
        try:
            answer = _exchange(connection, place, body, deadline)
        except BaseException:
            connection.socket.close()
            raise
        if connection.http.our_state is h11.DONE and connection.http.their_state is h11.DONE:
            connection.http.start_next_cycle()
            self._keep(place.key, connection)
        else:
            connection.socket.close()
        return answer


def left_s(deadline: float) -> float:
    """Return the seconds until ``deadline``. Raises TimeoutError when it is over."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the deadline is over")
    return left


def direct(address: Address, deadline: float) -> socket.socket:
    """Return a connection to an address, made before ``deadline``. Raises OSError."""
    host = _resolved(address.host, address.port, deadline)
    made = socket.create_connection((host, address.port), left_s(deadline))
    for level, option, value in SOCKET_OPTIONS:  # a watch of an extension is waited for without an end
        made.setsockopt(level, option, value)
    return made


_resolving = threading.BoundedSemaphore(_RESOLVERS)


def _resolved(host: str, port: int, deadline: float) -> str:
    """Return the address of ``host``; the system's resolver has no deadline, so it is waited for in a thread."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return host
    if not _resolving.acquire(timeout=left_s(deadline)):
        raise TimeoutError("names are resolved too slowly")
    found: list[str | OSError] = []

    def look() -> None:
        try:
            found.append(str(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4][0]))
        except OSError as error:
            found.append(error)
        finally:
            _resolving.release()

    thread = threading.Thread(target=look, name="resolver", daemon=True)
    thread.start()
    thread.join(left_s(deadline))
    if not found:
        raise TimeoutError(f"{host} was not resolved in time")
    if isinstance(found[0], OSError):
        raise OSError(0, f"lookup {host}: no such host") from found[0]
    return found[0]


def _secured(plain: socket.socket, place: Place, deadline: float) -> ssl.SSLSocket:
    try:
        plain.settimeout(left_s(deadline))
        return place.context.wrap_socket(plain, server_hostname=place.server)
    except BaseException:
        plain.close()
        raise


def _exchange(connection: _Connection, place: Place, body: bytes, deadline: float) -> bytes:
    headers = [
        ("Host", place.host),
        ("User-Agent", "kube-apiserver-admission"),
        ("Accept", "application/json, */*"),
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(body))),
    ]
    http = connection.http
    parts = (h11.Request(method="POST", target=place.target, headers=headers), h11.Data(body), h11.EndOfMessage())
    said = b"".join(http.send(part) or b"" for part in parts)
    try:
        connection.socket.settimeout(left_s(deadline))
        connection.socket.sendall(said)
    except (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
        raise _Stale from error
    try:
        return _answer(connection, deadline)
    except h11.RemoteProtocolError as error:
        raise Unreachable("malformed HTTP response") from error


def _answer(connection: _Connection, deadline: float) -> bytes:
    status, parts, size = 0, [], 0
    while True:
        event = connection.http.next_event()
        if event is h11.NEED_DATA:
            connection.http.receive_data(_read(connection, deadline, began=bool(status)))
        elif isinstance(event, h11.Response):
            status = event.status_code
            _refuse_unless_ok(status)
        elif isinstance(event, h11.Data):
            size += len(event.data)
            if size > MAX_ANSWER_BYTES:
                raise Unreachable(f"the answer is longer than {MAX_ANSWER_BYTES} bytes")
            parts.append(bytes(event.data))
        elif isinstance(event, h11.EndOfMessage):
            return b"".join(parts)


def _read(connection: _Connection, deadline: float, *, began: bool) -> bytes:
    connection.socket.settimeout(left_s(deadline))
    try:
        data = connection.socket.recv(_READ_BYTES)
    except (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
        if began or connection.http.trailing_data[0]:
            raise Unreachable("unexpected EOF") from error
        raise _Stale from error
    if not data and not began and not connection.http.trailing_data[0]:
        raise _Stale
    return data


def _refuse_unless_ok(status: int) -> None:
    if status == HTTPStatus.OK:
        return
    phrase = HTTPStatus(status).phrase if status in {*HTTPStatus} else "unknown"
    more = ", and redirects are not followed" if status // 100 == 3 else ""  # noqa: PLR2004 - 3xx
    raise Unreachable(f"the server answered {status} {phrase}{more}")
