"""HTTP towards one API server: a keep-alive pool with a client certificate or token, bytes in, bytes out.

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

import urllib3
from urllib3.connection import HTTPConnection
from urllib3.exceptions import HTTPError
from urllib3.response import BaseHTTPResponse

from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.client.bearer import Bearer
from minik8s_modules.client.errors import ApiUnreachable
from minik8s_modules.client.kubeconfig import Access

CONNECT_TIMEOUT_S = 5.0
READ_TIMEOUT_S = 30.0
# A watch's peer that vanished without a FIN is noticed after 30 + 3 * 10 s, less than the kubelet's 40 s
# lease
KEEPALIVE = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
]
# Only reads are repeated after a keep-alive connection turned out to be closed: a write may have happened
_REPEATABLE = frozenset({"GET", "HEAD"})


class Transport:
    """A thread-safe pool of connections to one server."""

    def __init__(
        self,
        access: Access,
        *,
        user_agent: str = "minik8s",
        pool_size: int = 16,
        read_timeout_s: float = READ_TIMEOUT_S,
    ) -> None:
        options = [*HTTPConnection.default_socket_options, *KEEPALIVE]
        self._headers = {"User-Agent": user_agent, "Accept": "application/json"}
        self._bearer = Bearer(access)
        self._pool: urllib3.HTTPConnectionPool
        url = urllib3.util.parse_url(access.server)
        timeout = urllib3.Timeout(connect=CONNECT_TIMEOUT_S, read=read_timeout_s)
        if url.scheme == "https":
            self._pool = urllib3.HTTPSConnectionPool(
                url.host or "",
                url.port or 443,
                maxsize=pool_size,
                timeout=timeout,
                retries=False,
                ssl_context=tls_context(access),
                socket_options=options,
            )
        else:
            self._pool = urllib3.HTTPConnectionPool(
                url.host or "",
                url.port or 80,
                maxsize=pool_size,
                timeout=timeout,
                retries=False,
                socket_options=options,
            )
        self._prefix = (url.path or "").rstrip("/")
        self._server = access.server

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> BaseHTTPResponse:
        """Return the whole answer to one request, whatever its status.

        Raises:
            ApiUnreachable: no complete answer came.
        """
        attempts = 2 if method in _REPEATABLE else 1
        while True:
            attempts -= 1
            try:
                shown = {**self._headers, **self._bearer.headers(), **(headers or {})}
                return self._pool.urlopen(method, self._prefix + path, body=body, headers=shown)
            except (HTTPError, OSError) as error:
                if attempts == 0:
                    raise self._unreachable(method, path, error) from error

    def stream(self, path: str, read_timeout_s: float, headers: Mapping[str, str] | None = None) -> BaseHTTPResponse:
        """Return a GET's answer as soon as its headers are there; the caller reads and closes it.

        Raises:
            ApiUnreachable: no headers came.
        """
        timeout = urllib3.Timeout(connect=CONNECT_TIMEOUT_S, read=read_timeout_s)
        try:
            response = self._pool.urlopen(
                "GET",
                self._prefix + path,
                headers={**self._headers, **self._bearer.headers(), **(headers or {})},
                preload_content=False,
                timeout=timeout,
            )
            if response.status != HTTPStatus.OK:
                response.read(cache_content=True)
        except (HTTPError, OSError) as error:
            raise self._unreachable("GET", path, error) from error
        return response

    def close(self) -> None:
        """Close the idle connections."""
        self._pool.close()

    def _unreachable(self, method: str, path: str, error: Exception) -> ApiUnreachable:
        return ApiUnreachable(f"{method} {self._server}{path.partition('?')[0]}: {error}")


def tls_context(access: Access) -> ssl.SSLContext:
    """Return a context that trusts only ``access``'s CA and shows its certificate.

    Raises:
        ConfigurationError: a PEM text is none, or the key is not the certificate's.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        if access.ca_pem:
            context.load_verify_locations(cadata=access.ca_pem.decode("ascii"))
        else:
            context.load_default_certs()
        if access.cert_pem:
            _load_chain(context, access.cert_pem + b"\n" + access.key_pem)
    except (ssl.SSLError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the certificates for {access.server} cannot be used: {error}") from error
    return context


def _load_chain(context: ssl.SSLContext, pem: bytes) -> None:
    handle = os.memfd_create("minik8s-client", os.MFD_CLOEXEC)
    try:
        os.write(handle, pem)
        context.load_cert_chain(f"/proc/self/fd/{handle}")
    finally:
        os.close(handle)
