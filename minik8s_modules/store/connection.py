"""Connections to the members of one etcd cluster: one etcd3 client per endpoint, one of them in use.

Every call carries a deadline. When the endpoint in use fails, the next one is used from then on. The failed
call itself is tried there only if it cannot have had an effect: reads always, writes only when no connection
came about at all (gRPC then never sent them). A write that may have been done ends in StoreUnavailable and
the caller reads before it goes on.

When one of the certificate files changes, later calls go over a new connection; what is running on the old one (a
watch) goes on there, for etcd has accepted it. So certificates are renewed without a restart.

Connections open at the first call, so a store made before a fork is safe as long as nobody has used it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import grpc

from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.base.files import stamp_if_there
from minik8s_modules.store.errors import StoreUnavailable
from minik8s_modules.store.stubs import etcd3

CALL_TIMEOUT_S = 5.0
LOOK_S = 1.0  # between looks at the certificate files
UNREACHABLE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)
# how gRPC's core words a call that failed for want of a connection (client_channel, "failed to connect to all
# addresses")
NEVER_SENT = "failed to connect to all addresses"
GRPC_OPTIONS = (
    ("grpc.max_receive_message_length", -1),  # 5,000 objects of 1 KB are 5.1 MB, the default is 4
    ("grpc.max_send_message_length", -1),  # etcd itself says how large a request may be
    ("grpc.use_local_subchannel_pool", 1),  # a new store does not inherit another's reconnect back-off
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),  # how long one connect may take
    ("grpc.max_reconnect_backoff_ms", 1000),  # the default, 120 s, would outlast every etcd restart
    ("grpc.keepalive_time_ms", 10_000),  # finds silently dead connections; etcd allows one ping per 5 s
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),  # idle watches must be pinged too
    ("grpc.enable_http_proxy", 0),
)

T = TypeVar("T")


class Tls(NamedTuple):
    """PEM files: the authority of etcd's servers, and our client certificate with its key."""

    ca: Path
    cert: Path
    key: Path


class Connections:
    """The members' clients; thread-safe."""

    def __init__(self, endpoints: Sequence[str], tls: Tls | None, timeout_s: float = CALL_TIMEOUT_S) -> None:
        if not endpoints:
            raise ConfigurationError("no etcd endpoint is given; name at least one, as https://HOST:2379")
        self._addresses = [_address(endpoint, tls) for endpoint in endpoints]
        self._tls = tls
        self._timeout_s = timeout_s
        self._clients: dict[int, Any] = {}
        self._former: list[Any] = []  # of certificates that were renewed
        self._stamp = self._seen = stamp_if_there(*(tls or ()))
        self._looked_s = 0.0
        self._lock = threading.Lock()
        self._current = 0
        self._closed = False

    @property
    def endpoints(self) -> str:
        """The members' addresses, for messages."""
        return ", ".join(f"{host}:{port}" for host, port in self._addresses)

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._closed

    def read(self, call: Callable[[Any, float], T]) -> T:
        """Return ``call(client, timeout_s)`` from the first member that answers."""
        return self._try(call, lambda _error: True)

    def write(self, call: Callable[[Any, float], T]) -> T:
        """Return ``call(client, timeout_s)``; another member is asked only if the call was never sent."""
        return self._try(call, lambda error: NEVER_SENT in (error.details() or ""))

    def client(self) -> tuple[int, Any]:
        """Return the number of the endpoint in use and its client.

        Raises:
            StoreUnavailable: ``close`` was called.
        """
        with self._lock:
            if self._closed:
                raise StoreUnavailable("the connection to etcd has been closed")
            self._notice_renewal()
            number = self._current
            if number not in self._clients:
                self._clients[number] = self._connect(number)
            return number, self._clients[number]

    def failed(self, number: int) -> None:
        """Use the endpoint after ``number`` from now on, unless somebody has moved on already."""
        with self._lock:
            if number == self._current:
                self._current = (number + 1) % len(self._addresses)

    def close(self) -> None:
        """Close every connection; running calls end."""
        with self._lock:
            self._closed = True
            clients = [*self._clients.values(), *self._former]
        for client in clients:
            client.close()

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
            self._former += self._clients.values()
            self._clients = {}

    def _try(self, call: Callable[[Any, float], T], again: Callable[[Any], bool]) -> T:
        for attempt in range(1, len(self._addresses) + 1):
            number, client = self.client()
            try:
                return call(client, self._timeout_s)
            except grpc.RpcError as error:
                if error.code() not in UNREACHABLE:
                    raise
                self.failed(number)
                if attempt == len(self._addresses) or not again(error):
                    raise StoreUnavailable(f"etcd at {self.endpoints} does not answer: {error.details()}") from error
            except ValueError as error:  # grpc's "Cannot invoke RPC on closed channel!"
                raise StoreUnavailable("the connection to etcd has been closed") from error
        raise AssertionError("the last attempt returns or raises")

    def _connect(self, number: int) -> Any:
        host, port = self._addresses[number]
        tls = self._tls
        # without it gRPC sends the path as authority, which etcd's HTTP server refuses
        authority = (("grpc.default_authority", "localhost"),) if host == "unix" else ()
        try:
            return etcd3.Etcd3Client(
                host,
                port,
                ca_cert=tls and str(tls.ca),
                cert_cert=tls and str(tls.cert),
                cert_key=tls and str(tls.key),
                grpc_options=GRPC_OPTIONS + authority,
            )
        except OSError as error:
            raise ConfigurationError(f"cannot read etcd's certificate {error.filename}: {error.strerror}") from error


def _address(endpoint: str, tls: Tls | None) -> tuple[str, int | str]:
    parts = urlsplit(endpoint)
    if parts.scheme == "unix" and parts.path and not tls:
        return "unix", parts.path  # joined by a colon, it is gRPC's name of the socket
    wanted = "https" if tls else "http"
    if parts.scheme != wanted or not parts.hostname:
        reason = "etcd.ca, cert and key are given" if tls else "no etcd.ca, cert and key are given"
        raise ConfigurationError(f"etcd endpoint {endpoint!r} must be {wanted}://HOST:PORT, as {reason}")
    return parts.hostname, parts.port or 2379
