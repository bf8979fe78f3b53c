"""Connections to the members of one etcd cluster, one member in use; a thread that calls has a connection of its own.

Every call has a deadline. When the endpoint in use fails, the next one is used from then on. The failed call itself is
tried there only if it cannot have had an effect: reads always, writes only when etcd cannot have seen them whole. A
write that may have been done ends in StoreUnavailable and the caller reads before it goes on.

Errands of an event loop share a connection (shared.py), made by a thread after their first call; what that cannot
carry, or did not, a thread does for them. Any other connection carries one call at a time (http2.py) and is kept for
the next one; as many come about as calls are made at once. When one breaks, those that wait at the same endpoint are
closed as well: etcd has probably gone. One that has waited for longer than ``CERTAIN_S`` is looked at before its use.

When one of the certificate files changes, later calls go over new connections; what is running on an old one (a watch)
goes on there, for etcd has accepted it. So certificates are renewed without a restart.

Connections open at the first call, so a store made before a fork is safe as long as nobody has used it.
"""

from __future__ import annotations

import logging
import socket
import ssl
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

from minik8s_modules.base import errands
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.base.files import stamp_if_there
from minik8s_modules.base.places import place
from minik8s_modules.base.tls import CIPHERS
from minik8s_modules.module_utils.minik8s.rpc.http2 import Broken, CallFailed, Channel
from minik8s_modules.module_utils.minik8s.rpc.multiplexed import Multiplexed
from minik8s_modules.store.errors import StoreUnavailable
from minik8s_modules.store.wire.shared import Shared

log = logging.getLogger(__name__)

CALL_TIMEOUT_S = 5.0
CONNECT_TIMEOUT_S = 2.0
LOOK_S = 1.0  # between looks at the certificate files
CERTAIN_S = 0.05  # after its last use, a connection is taken to be there still
ALIVE_S = 7.5  # a watch is quiet for so long before etcd is asked whether it is there; it allows one ping per 5 s
IDLE_CONNECTIONS = 16  # of an endpoint are kept
# statuses of gRPC: CANCELLED, DEADLINE_EXCEEDED, UNAVAILABLE
UNREACHABLE: Final = frozenset({1, 4, 14})

C = TypeVar("C", bound=Channel)


class Tls(NamedTuple):
    """PEM files: the authority of etcd's servers, and our client certificate with its key."""

    ca: Path
    cert: Path
    key: Path


class _Idle(NamedTuple):
    channel: Channel
    since_s: float


class Connections:
    """The members' connections; thread-safe."""

    def __init__(self, endpoints: Sequence[str], tls: Tls | None, timeout_s: float = CALL_TIMEOUT_S) -> None:
        if not endpoints:
            raise ConfigurationError("no etcd endpoint is given; name at least one, as https://HOST:2379")
        self._addresses = [_address(endpoint, tls) for endpoint in endpoints]
        self._tls = tls
        self._timeout_s = timeout_s
        self._metadata = {"grpc-timeout": f"{int(timeout_s * 1000)}m"}
        self._context: ssl.SSLContext | None = None
        self._idle: dict[int, list[_Idle]] = {}
        self._open: dict[Channel, int] = {}  # and how many renewals of certificates preceded it
        self._renewals = 0
        self._stamp = self._seen = stamp_if_there(*(tls or ()))
        self._looked_s = 0.0
        self._lock = threading.Lock()
        self._current = 0
        self._closed = False
        self._shared: Shared | None = None
        self._sharing = False

    @property
    def endpoints(self) -> str:
        """The members' addresses, for messages."""
        return ", ".join(place(host, port) if port else host for host, port in self._addresses)

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._closed

    def read(self, method: str, message: bytes) -> bytes:
        """Return the answer of the first member that gives one. Raises CallFailed, StoreUnavailable."""
        return self._try(method, message, again=True)

    def write(self, method: str, message: bytes) -> bytes:
        """Return the answer; another member is asked only if the first cannot have seen the whole call.

        Raises:
            CallFailed: etcd says no.
            StoreUnavailable: it may have been done.
        """
        return self._try(method, message, again=False)

    def watching(self, metadata: Mapping[str, str]) -> tuple[int, Channel]:
        """Return the number of the endpoint in use, and a connection of the caller's own; ``end`` closes it.

        Raises:
            StoreUnavailable: no connection comes about.
        """
        number = self._current
        try:
            return number, self._connected(number, ALIVE_S, metadata, Channel)
        except Broken as error:
            self.failed(number)
            raise StoreUnavailable(f"etcd at {self.endpoints} does not answer: {error}") from error

    def end(self, channel: Channel) -> None:
        """Close a connection."""
        with self._lock:
            self._open.pop(channel, None)
        channel.close()

    def failed(self, number: int) -> None:
        """Use the endpoint after ``number`` from now on, unless somebody has moved on already."""
        with self._lock:
            if number == self._current:
                self._current = (number + 1) % len(self._addresses)
        self._forget_idle(number)

    def close(self) -> None:
        """Close every connection; running calls end."""
        with self._lock:
            self._closed = True
            opened = list(self._open)
            idle = [each.channel for waiting in self._idle.values() for each in waiting]
            self._idle = {}
            shared, self._shared = self._shared, None
        for channel in opened:
            channel.cut()
        if shared is not None and not shared.is_followed:
            shared.close()
        for channel in idle:
            self.end(channel)

    def _try(self, method: str, message: bytes, *, again: bool) -> bytes:
        here = errands.current()
        if here is None:
            return self._tried(method, message, again=again)
        shared = self._shared_now()
        if shared is not None and shared.takes(here, message):
            failure: CallFailed | Broken
            try:
                return shared.call(here, method, message, self._timeout_s)
            except CallFailed as error:
                if error.code not in UNREACHABLE:
                    raise
                failure = error
            except Broken as error:
                failure = error
            self.failed(shared.number)
            if not (again or _unseen(failure)):
                raise self._unavailable(failure) from failure
        most_s = len(self._addresses) * 2 * (self._timeout_s + CONNECT_TIMEOUT_S)
        try:
            answer = here.elsewhere(lambda: self._tried(method, message, again=again), most_s)
        except errands.Late as error:
            raise self._unavailable(error) from error
        self._share()
        return answer

    def _shared_now(self) -> Shared | None:
        """Return the connection of the loop's errands if it can be used."""
        with self._lock:
            self._check_open()
            self._notice_renewal()
            shared = self._shared
            is_current = shared is not None and self._open.get(shared.channel) == self._renewals
        if shared is None or (is_current and shared.usable and shared.number == self._current):
            return shared
        self._shared = None
        shared.leave()
        return None

    def _share(self) -> None:
        """Connect for the loop's errands; in a thread, since that may take long."""
        if not self._closed and self._shared is None and not self._sharing:
            self._sharing = True
            threading.Thread(target=self._connect_shared, name="etcd-connect", daemon=True).start()

    def _connect_shared(self) -> None:
        number = self._current
        try:
            shared = Shared(self._connected(number, self._timeout_s, self._metadata, Multiplexed), number, self.end)
            with self._lock:
                is_late = self._closed
                self._shared = None if is_late else shared
            if is_late:
                shared.close()
        except (Broken, StoreUnavailable, ConfigurationError) as error:
            log.debug("no connection for errands: %s", error)  # the next call finds that there is none, and tries again
        finally:
            self._sharing = False

    def _tried(self, method: str, message: bytes, *, again: bool) -> bytes:
        for left in reversed(range(len(self._addresses))):
            number = self._current
            try:
                return self._call(number, method, message, again=again)
            except CallFailed as error:
                if error.code not in UNREACHABLE:
                    raise
                failure: CallFailed | Broken = error
            except Broken as error:
                failure = error
            self.failed(number)
            if not left or not (again or _unseen(failure)):
                raise self._unavailable(failure) from failure
        raise AssertionError("the last attempt returns or raises")

    def _unavailable(self, failure: CallFailed | Broken | errands.Late) -> StoreUnavailable:
        details = failure.details if isinstance(failure, CallFailed) else str(failure)
        return StoreUnavailable(f"etcd at {self.endpoints} does not answer: {details}")

    def _call(self, number: int, method: str, message: bytes, *, again: bool) -> bytes:
        """Make the call at one endpoint; once more if only a connection that had waited was gone."""
        channel = self._waiting(number)
        if channel is not None:
            try:
                return self._called(number, channel, method, message)
            except Broken as error:
                self._forget_idle(number)
                if error.late or not (again or error.unseen):
                    raise
        return self._called(number, self._connected(number, self._timeout_s, self._metadata, Channel), method, message)

    def _called(self, number: int, channel: Channel, method: str, message: bytes) -> bytes:
        try:
            answer = channel.call(method, message, self._timeout_s)
        except CallFailed:
            self._keep(number, channel)
            raise
        except BaseException:  # whatever came in between: an answer may still be on its way
            self.end(channel)
            raise
        self._keep(number, channel)
        return answer

    def _waiting(self, number: int) -> Channel | None:
        """Return a connection that is kept, or None."""
        while True:
            with self._lock:
                self._check_open()
                self._notice_renewal()
                idle = self._idle.get(number)
                if not idle:
                    return None
                found = idle.pop()
            if time.monotonic() - found.since_s < CERTAIN_S or found.channel.alive():
                return found.channel
            self.end(found.channel)

    def _keep(self, number: int, channel: Channel) -> None:
        with self._lock:
            idle = self._idle.setdefault(number, [])
            current = not self._closed and self._open.get(channel) == self._renewals
            if current and channel.usable and len(idle) < IDLE_CONNECTIONS:
                idle.append(_Idle(channel, time.monotonic()))
                return
        self.end(channel)

    def _forget_idle(self, number: int) -> None:
        with self._lock:
            stale = self._idle.pop(number, [])
        for each in stale:
            self.end(each.channel)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("the connection to etcd has been closed")

    def _notice_renewal(self) -> None:
        now_s = time.monotonic()
        if self._tls is None or now_s - self._looked_s < LOOK_S:
            return
        self._looked_s = now_s
        before, self._seen = self._seen, stamp_if_there(*self._tls)
        stamp = self._seen
        # twice the same: not in the middle of replacing a pair, whose halves do not fit each other
        if stamp and stamp == before and stamp != self._stamp:
            self._stamp = stamp
            self._renewals += 1
            self._context = None
            former = [each.channel for waiting in self._idle.values() for each in waiting]
            self._idle = {}
            for channel in former:
                self._open.pop(channel, None)
                channel.close()

    def _connected(self, number: int, timeout_s: float, metadata: Mapping[str, str], kind: type[C]) -> C:
        """Return a new connection. Raises Broken, StoreUnavailable."""
        host, port = self._addresses[number]
        with self._lock:
            self._check_open()
            self._notice_renewal()
            renewals = self._renewals
        try:
            sock = self._secured(_dialled(host, port, min(self._timeout_s, CONNECT_TIMEOUT_S)), host)
        except OSError as error:
            raise Broken(f"cannot connect: {error}", unseen=True) from error
        _set_timeout(sock, timeout_s)
        # a Unix socket's path is not the name of a server, which etcd would refuse
        channel = kind(sock, place(host, port) if port else "localhost", metadata)
        with self._lock:
            if not self._closed:
                self._open[channel] = renewals
                return channel
        channel.close()
        raise StoreUnavailable("the connection to etcd has been closed")

    def _secured(self, sock: socket.socket, host: str) -> socket.socket:
        if self._tls is None:
            return sock
        try:
            context = self._context
            if context is None:
                context = self._context = _context(self._tls)
            return context.wrap_socket(sock, server_hostname=host)
        except BaseException:
            sock.close()
            raise


def _unseen(failure: CallFailed | Broken) -> bool:
    """Return whether etcd cannot have acted on a call."""
    return isinstance(failure, Broken) and failure.unseen


def _dialled(host: str, port: int, timeout_s: float) -> socket.socket:
    if not port:
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(timeout_s)
        try:
            sock.connect(host)
        except OSError:
            sock.close()
            raise
        return sock
    sock = socket.create_connection((host, port), timeout_s)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _set_timeout(sock: socket.socket, timeout_s: float) -> None:
    """Have sending and receiving end after ``timeout_s``.

    The kernel does it where it can: Python would ask with ``poll`` before each call, and let go of its lock twice.
    """
    if isinstance(sock, ssl.SSLSocket):
        sock.settimeout(timeout_s)
        return
    sock.settimeout(None)
    span = struct.pack("ll", int(timeout_s), int(timeout_s % 1 * 1_000_000))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, span)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, span)


def _context(tls: Tls) -> ssl.SSLContext:
    for path in tls:  # OpenSSL does not say which one it cannot read
        try:
            path.open("rb").close()
        except OSError as error:
            raise ConfigurationError(f"cannot read etcd's certificate {path}: {error.strerror}") from error
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.load_verify_locations(tls.ca)
    context.load_cert_chain(tls.cert, tls.key)
    context.set_alpn_protocols(["h2"])
    return context


def _address(endpoint: str, tls: Tls | None) -> tuple[str, int]:
    """Return host and port; a Unix socket's path and 0."""
    parts = urlsplit(endpoint)
    if parts.scheme == "unix" and parts.path and not tls:
        return parts.path, 0
    wanted = "https" if tls else "http"
    if parts.scheme != wanted or not parts.hostname:
        reason = "etcd.ca, cert and key are given" if tls else "no etcd.ca, cert and key are given"
        raise ConfigurationError(f"etcd endpoint {endpoint!r} must be {wanted}://HOST:PORT, as {reason}")
    return parts.hostname, parts.port or 2379
