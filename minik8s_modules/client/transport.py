"""HTTP towards the API servers of one cluster: keep-alive pools with a client certificate or token, bytes in and out.

Of several servers one is in use (``servers.py``). A read goes on to the next one when there is no answer; a write
only when it was never sent, for otherwise it may have happened, and the caller must look. A server that keeps silent
about a request may wait for somebody else itself: an extension, a webhook, a node. So it is asked whether it is ready,
and passed over only if it does not say so.

Private keys reach OpenSSL through a memory file, because ``load_cert_chain`` takes only names and a key
must not be copied to disk. What goes wrong below HTTP becomes ``ApiUnreachable``; what the API answers is
judged one level up.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError, ReadTimeoutError
from urllib3.response import BaseHTTPResponse

from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.client.bearer import Bearer
from minik8s_modules.client.errors import ApiUnreachable
from minik8s_modules.client.kubeconfig import Access
from minik8s_modules.client.servers import Servers

CONNECT_TIMEOUT_S = 5.0
# where another server can be asked, a machine without power must not hold a call for long
CONNECT_TIMEOUT_OF_SEVERAL_S = 2.0
READ_TIMEOUT_S = 30.0
CONNECTIONS = 16
_READY, _READY_WITHIN_S = "/readyz", 2.0  # it asks etcd, too; a server that hangs is passed over as much later
# A watch's peer that vanished without a FIN is noticed after 10 + 3 * 5 s, less than the kubelet's 40 s
# lease
KEEPALIVE = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
]
# Only reads are repeated after a keep-alive connection turned out to be closed: a write may have happened
_REPEATABLE = frozenset({"GET", "HEAD"})


class Transport:
    """Thread-safe pools of connections, one a server of ``access``."""

    def __init__(
        self,
        access: Access,
        *,
        user_agent: str = "minik8s",
        pool_size: int = CONNECTIONS,
        read_timeout_s: float = READ_TIMEOUT_S,
    ) -> None:
        self._headers = {"User-Agent": user_agent, "Accept": "application/json"}
        self._bearer = Bearer(access)
        self._addresses = (access.server, *access.others)
        connect_s = CONNECT_TIMEOUT_OF_SEVERAL_S if access.others else CONNECT_TIMEOUT_S
        self._timeout = urllib3.Timeout(connect=connect_s, read=read_timeout_s)
        self._pools = [_pool(address, access, pool_size, self._timeout) for address in self._addresses]
        self._prefixes = [(urllib3.util.parse_url(address).path or "").rstrip("/") for address in self._addresses]
        self._servers = Servers(len(self._addresses))

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        read_timeout_s: float = 0.0,
    ) -> BaseHTTPResponse:
        """Return the whole answer to one request, whatever its status; ``read_timeout_s`` 0 is the usual patience.

        Raises:
            ApiUnreachable: no complete answer came.
        """
        # a read may be sent once more to the same server: a connection kept alive may turn out to be closed
        spare = 1 if method in _REPEATABLE else 0
        timeout = self._patience(read_timeout_s) if read_timeout_s else self._timeout
        left = len(self._pools)
        while True:
            number = self._servers.current()
            shown = {**self._headers, **self._bearer.headers(), **(headers or {})}
            try:
                at = self._prefixes[number] + path
                return self._pools[number].urlopen(method, at, body=body, headers=shown, timeout=timeout)
            except (HTTPError, OSError) as error:
                gone = self._note(number, error)
                left, spare = (left - 1, spare) if gone else (left, spare - 1)
                waits = isinstance(error, ReadTimeoutError) and not gone
                if left == 0 or spare < 0 or waits or (method not in _REPEATABLE and not never_sent(error)):
                    raise self._unreachable(number, method, path, error) from error

    def stream(self, path: str, read_timeout_s: float, elsewhere: str = "") -> BaseHTTPResponse:
        """Return a GET's answer as soon as its headers are there; the caller reads and closes it.

        These are waited for with the usual patience, each piece of the body for ``read_timeout_s``. Servers other than
        the first are asked for ``elsewhere``, if it is given.

        Raises:
            ApiUnreachable: no headers came.
        """
        left = len(self._pools)
        while True:
            number = self._servers.current()
            try:
                return self._begin(number, (number and elsewhere) or path, read_timeout_s)
            except (HTTPError, OSError) as error:
                left = left - 1 if self._note(number, error) else 0
                if left == 0:
                    raise self._unreachable(number, "GET", path, error) from error

    def _begin(self, number: int, path: str, read_timeout_s: float) -> BaseHTTPResponse:
        response = self._pools[number].urlopen(
            "GET",
            self._prefixes[number] + path,
            headers={**self._headers, **self._bearer.headers()},
            preload_content=False,
            timeout=self._timeout,
        )
        if response.status != HTTPStatus.OK:
            response.read(cache_content=True)
        elif isinstance(response.connection, _AtOnce):
            response.connection.answering.settimeout(read_timeout_s)
        return response

    def _patience(self, read_timeout_s: float) -> urllib3.Timeout:
        return urllib3.Timeout(connect=self._timeout.connect_timeout, read=read_timeout_s)

    def _note(self, number: int, error: Exception) -> bool:
        """Pass a server over that is not there or hangs; return whether this one is so."""
        gone = never_sent(error) or (isinstance(error, ReadTimeoutError) and not self._is_ready(number))
        if gone:
            self._servers.failed(number)
        return gone

    def _is_ready(self, number: int) -> bool:
        """Return whether a server that keeps silent about a request says that it is ready, if there are others."""
        if self._servers.count == 1:
            return False
        timeout = self._patience(min(_READY_WITHIN_S, float(self._timeout.read_timeout or _READY_WITHIN_S)))
        at, shown = self._prefixes[number] + _READY, {**self._headers, **self._bearer.headers()}
        try:
            answer = self._pools[number].urlopen("GET", at, headers=shown, timeout=timeout)
        except (HTTPError, OSError):
            return False
        return answer.status < HTTPStatus.INTERNAL_SERVER_ERROR

    def close(self) -> None:
        """Close the idle connections."""
        for pool in self._pools:
            pool.close()

    def _unreachable(self, number: int, method: str, path: str, error: Exception) -> ApiUnreachable:
        return ApiUnreachable(f"{method} {self._addresses[number]}{path.partition('?')[0]}: {_said(error)}")


def _said(error: Exception) -> str:
    """Return what went wrong, without what urllib3 calls the connection or the pool in front of it."""
    who = error.conn if isinstance(error, NewConnectionError) else getattr(error, "pool", None)
    text = error.args[-1] if isinstance(error, ConnectTimeoutError) else error
    return str(text).removeprefix(f"{who}: ")


def never_sent(error: Exception) -> bool:
    """Return whether the request that ended in ``error`` cannot have reached a server: no connection came about."""
    return isinstance(error, NewConnectionError | ConnectTimeoutError)


class _AtOnce(HTTPConnection):
    """Sends head and body of a request at once: apart they are two records, each of which wakes the server.

    ``answering`` is the socket of the latest answer; ``sock`` is None where the answer ends the connection.
    """

    answering: socket.socket
    _held: list[bytes] | None = None

    def request(self, *arguments: Any, **named: Any) -> None:
        self._held = []
        try:
            super().request(*arguments, **named)
        finally:
            held, self._held = self._held, None
        super().send(b"".join(held))
        self.answering = self.sock

    def send(self, data: Any) -> None:
        if self._held is None:
            super().send(data)
        else:
            self._held.append(data)


class _SecureAtOnce(_AtOnce, HTTPSConnection):
    """The same over TLS."""


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _AtOnce


class _SecurePool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _SecureAtOnce


def _pool(address: str, access: Access, size: int, timeout: urllib3.Timeout) -> urllib3.HTTPConnectionPool:
    url = urllib3.util.parse_url(address)
    options = [*HTTPConnection.default_socket_options, *KEEPALIVE]
    if url.scheme != "https":
        return _Pool(
            url.host or "", url.port or 80, maxsize=size, timeout=timeout, retries=False, socket_options=options
        )
    return _SecurePool(
        url.host or "",
        url.port or 443,
        maxsize=size,
        timeout=timeout,
        retries=False,
        ssl_context=tls_context(access),
        socket_options=options,
    )


def tls_context(access: Access) -> ssl.SSLContext:
    """Return a context that trusts only ``access``'s CA and shows its certificate.

    Raises:
        ConfigurationError: a PEM text is none, or the key is not the certificate's.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.hostname_checks_common_name = False  # it names a user; a server's names are alternative names
    try:
        if access.ca_pem:
            context.load_verify_locations(cadata=access.ca_pem.decode("ascii", "backslashreplace"))
        else:
            context.load_default_certs()
        if access.cert_pem:
            _load_chain(context, access.cert_pem + b"\n" + access.key_pem)
    except ssl.SSLError as error:
        raise ConfigurationError(f"the certificates for {access.server} cannot be used: {error}") from error
    return context


def _load_chain(context: ssl.SSLContext, pem: bytes) -> None:
    handle = os.memfd_create("minik8s-client", os.MFD_CLOEXEC)
    try:
        os.write(handle, pem)
        context.load_cert_chain(f"/proc/self/fd/{handle}")
    finally:
        os.close(handle)
