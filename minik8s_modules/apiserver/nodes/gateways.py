"""Reaching the gateway that serves a node's streams: its address from the node's Lease, mutual TLS, one signed request.

The gateway writes its own address into the Leases it renews (gateway/leases.py). A fragment of it is the name that its
certificate is for: a node's own gateway has one for a name and none for addresses (``https://192.0.2.7:6446#n1.node…``).
What a client asked for is put together again here; of its headers only those of the two upgrade protocols go along.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from typing import Protocol
from urllib.parse import quote, urlencode, urlsplit

from minik8s_modules.api import objects
from minik8s_modules.api.errors import ServiceUnavailable
from minik8s_modules.api.kinds import LEASE
from minik8s_modules.apiserver.http.settings import TlsFiles
from minik8s_modules.apiserver.nodes.pod_streams import PodStream
from minik8s_modules.apiserver.nodes.signing import Signer
from minik8s_modules.base.clock import Clock, SystemClock
from minik8s_modules.base.files import Stamp, stamp
from minik8s_modules.base.sockets import SOCKET_OPTIONS
from minik8s_modules.store.cache import WatchCache

ENDPOINT = "minik8s.io/stream-endpoint"
CONNECT_S = 5.0
STREAM_HEADERS = (
    "Connection",
    "Upgrade",
    "Sec-WebSocket-Key",
    "Sec-WebSocket-Version",
    "Sec-WebSocket-Protocol",
    "X-Stream-Protocol-Version",
)


class Headers(Protocol):
    """A request's headers: werkzeug's."""

    def get(self, key: str) -> str | None:
        """Return the value, whatever the case of ``key``."""


class Gateways(Protocol):
    """How a stream to a node's gateway begins."""

    def connect(self, url: str, request: bytes) -> socket.socket:
        """Return a connection on which ``request`` was sent. Raises OSError."""


class TlsGateways:
    """Connects over mutual TLS, with the API server's client certificate."""

    def __init__(self, files: TlsFiles, clock: Clock | None = None) -> None:
        self._files = files
        self._clock = clock or SystemClock()
        self._stamp: Stamp = ()
        self._made: tuple[ssl.SSLContext, Signer] | None = None
        self._lock = threading.Lock()

    def connect(self, url: str, request: bytes) -> socket.socket:
        """Return a connection on which ``request`` was sent, signed. Raises OSError, ValueError."""
        parts = urlsplit(url)
        context, signer = self._own()
        plain = socket.create_connection((parts.hostname or "", parts.port or 443), CONNECT_S)
        try:
            for level, option, value in SOCKET_OPTIONS:
                plain.setsockopt(level, option, value)
            connection = context.wrap_socket(plain, server_hostname=parts.fragment or parts.hostname)
            connection.sendall(signer.signed(request))
        except BaseException:
            plain.close()
            raise
        return connection

    def _own(self) -> tuple[ssl.SSLContext, Signer]:
        """Return the context and the signer for the files as they are now."""
        files = (self._files.cert, self._files.key, self._files.ca)
        with self._lock:
            found = stamp(*files)
            if self._made is None or found != self._stamp:
                context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=str(self._files.ca))
                context.hostname_checks_common_name = False  # it names a user; a server's names are alternative names
                context.load_cert_chain(self._files.cert, self._files.key)
                signer = Signer(self._files.cert.read_bytes(), self._files.key.read_bytes(), self._clock.now)
                self._made, self._stamp = (context, signer), found
            return self._made


def endpoint_of(cache: WatchCache, node: str) -> str:
    """Return the URL of the gateway that serves ``node``.

    Raises:
        ServiceUnavailable: none says that it does.
    """
    lease = cache.get(LEASE.key("kube-node-lease", node))
    url = objects.annotations(lease.object).get(ENDPOINT, "") if lease else ""
    if not url.startswith("https://"):
        text = (
            f"no gateway serves streams of node {node} (Lease kube-node-lease/{node} has no annotation {ENDPOINT}), "
            "and its status names no kubelet (daemonEndpoints.kubeletEndpoint and an InternalIP)"
        )
        raise ServiceUnavailable(f"error dialing backend: {text}")
    return url


def request_bytes(method: str, wanted: PodStream, headers: Headers) -> bytes:
    """Return the request for the gateway (streams/requests.py)."""
    path = f"/nodes/{quote(wanted.node, safe='')}/pods/{quote(wanted.uid, safe='')}/{wanted.what}"
    lines = [f"{method} {path}?{urlencode(wanted.options)} HTTP/1.1", "Host: gateway"]
    lines += [f"{name}: {value}" for name in STREAM_HEADERS if (value := headers.get(name))]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def connect(gateways: Gateways | None, url: str, request: bytes) -> socket.socket:
    """Return the connection to the gateway, set not to block.

    Raises:
        ServiceUnavailable: it cannot be reached.
    """
    if gateways is None:
        text = "this API server has no client certificate for gateways (reconciler_client)"
        raise ServiceUnavailable(f"error dialing backend: {text}")
    try:
        connection = gateways.connect(url, request)
    except (OSError, ValueError) as error:
        raise ServiceUnavailable(f"error dialing backend: gateway {url} cannot be reached: {error}") from error
    with contextlib.suppress(OSError):
        connection.setblocking(False)  # noqa: FBT003 - the standard library's signature
    return connection
