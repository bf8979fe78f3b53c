"""Nodes that serve a kubelet's API themselves: virtual nodes, virtual-kubelet's, KWOK's, and kubelets.

Such a node says where in its status: ``daemonEndpoints.kubeletEndpoint.Port`` and an address. It is asked there where
no gateway says in the node's Lease that it serves the node's streams. The connection has mutual TLS: the server's
certificate must be signed by the cluster's authority and be for the address, or for the node's name.

A node writes its own address, so an address must not lead anywhere else: none of this machine or link (loopback,
link-local), none that is no single machine's, none of a Service, and not the one that this server is known by. Two
nodes may have one address, as a virtual node on a machine that is a node: whose kubelet answers there, its certificate
says. Source: kubernetes ``pkg/kubelet/client``, ``pkg/registry/core/node/strategy.go`` (``isProxyableHostname``).
"""

from __future__ import annotations

import contextlib
import http.client
import io
import ipaddress
import re
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote, urlencode

from minik8s_modules.api import objects
from minik8s_modules.api.errors import ServiceUnavailable
from minik8s_modules.api.kinds import LEASE, NODE
from minik8s_modules.api.network.service_ranges import Network
from minik8s_modules.api.nodes.virtual_nodes import is_virtual
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.syntax import non_special_ip
from minik8s_modules.apiserver.http.settings import TlsFiles
from minik8s_modules.apiserver.nodes.gateways import CONNECT_S, ENDPOINT, STREAM_HEADERS, Headers
from minik8s_modules.base.files import Stamp, stamp
from minik8s_modules.base.places import place
from minik8s_modules.base.sockets import SOCKET_OPTIONS
from minik8s_modules.store.cache import WatchCache

_ADDRESSES = ("InternalIP", "ExternalIP")
NODE_DOMAIN = ".node.minik8s.internal"
_API_SERVER, _DAEMONS, _NODE_USER = "kube-apiserver", "minik8s-", "system:node:"
"""Common names of what serves on the control plane (roles/pki/vars), and of nodes."""
_LARGEST_PORT = 65535
_LARGEST = 16 * 1024 * 1024
ANSWER_S = 5.0
"""Of a whole answer: one that comes a byte at a time would otherwise keep a thread for as long as the node likes."""
_TEXT = "text/plain"
_MEDIA = re.compile(r"(application/json|text/plain)(; ?[a-z]+=[A-Za-z0-9.-]+)*")
"""What is passed on: no page for a browser, which would run it as this server's."""
FIGURES = frozenset({"/pods", "/runningpods", "/stats/summary", "/metrics/resource"})


class Kubelet(NamedTuple):
    """Where a node serves its own API."""

    node: str
    address: str
    port: int


class Own(NamedTuple):
    """What would lead back to API servers.

    Attributes:
        address: of this one.
        port: of this one.
        kubelet_port: the port that machines send on to API servers.
        services: the addresses of Services, of each family; the first of the first range is the API's.
    """

    address: str = ""
    port: int = 0
    kubelet_port: int = 0
    services: tuple[Network, ...] = ()


class Kubelets(Protocol):
    """How a request to a kubelet begins."""

    def of(self, cache: WatchCache, node: str) -> Kubelet | None:
        """Return where the node serves its API; None where a gateway serves it, or nobody."""

    def connect(self, kubelet: Kubelet, request: bytes) -> socket.socket:
        """Return a connection on which ``request`` was sent. Raises OSError."""


class TlsKubelets:
    """Connects over mutual TLS, with the API server's client certificate."""

    def __init__(self, files: TlsFiles, own: Own) -> None:
        self._files, self._own = files, own
        self._lock = threading.Lock()
        self._made: tuple[Stamp, ssl.SSLContext] | None = None

    def of(self, cache: WatchCache, node: str) -> Kubelet | None:
        """Return where the node serves its API; None where a gateway serves it, or nobody.

        Raises:
            ServiceUnavailable: it names an address that requests must not be sent to.
        """
        lease = cache.get(LEASE.key("kube-node-lease", node))
        if lease is not None and objects.annotations(lease.object).get(ENDPOINT):
            return None
        found = cache.get(NODE.key("", node))
        return kubelet_of(found.object, self._own) if found is not None else None

    def connect(self, kubelet: Kubelet, request: bytes) -> socket.socket:
        """Return a connection on which ``request`` was sent. Raises OSError."""
        plain = socket.create_connection((kubelet.address, kubelet.port), CONNECT_S)
        try:
            for level, option, value in SOCKET_OPTIONS:
                plain.setsockopt(level, option, value)
            connection = self._context().wrap_socket(plain, server_hostname=kubelet.address)
            check_names(connection.getpeercert() or {}, kubelet)
            connection.sendall(request)
        except BaseException:
            plain.close()
            raise
        return connection

    def _context(self) -> ssl.SSLContext:
        """Return the context for the files as they are now."""
        files = (self._files.cert, self._files.key, self._files.ca)
        with self._lock:
            found = stamp(*files)
            if self._made is None or found != self._made[0]:
                context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=str(self._files.ca))
                context.check_hostname = False  # one of several names will do: check_names
                context.load_cert_chain(self._files.cert, self._files.key)
                self._made = (found, context)
            return self._made[1]


def check_names(certificate: Mapping[str, object], kubelet: Kubelet) -> None:
    """Raise ConnectionAbortedError unless the certificate is for the kubelet's address or node.

    Python has checked that the cluster's authority signed it. Only alternative names count, and no wildcards. A
    certificate of the control plane is no node's, whatever the node is called (``kubernetes``) and wherever it says
    that it is; one of another node is believed for this node's name alone, not for the address.
    """
    user = _user(certificate)
    given = certificate.get("subjectAltName", ())
    names = {(str(kind), _named(str(value))) for kind, value in given} if isinstance(given, tuple) else set()
    wanted = {("DNS", kubelet.node), ("DNS", f"{kubelet.node}{NODE_DOMAIN}")}
    if not user.startswith(_NODE_USER) or user == f"{_NODE_USER}{kubelet.node}":
        wanted.add(("IP Address", _named(kubelet.address)))
    if user == _API_SERVER or user.startswith(_DAEMONS):
        raise ConnectionAbortedError(f"its certificate is of {user}, not of node {kubelet.node}")
    if not names & wanted:
        subjects = ", ".join(sorted(value for _, value in names)) or "nobody"
        raise ConnectionAbortedError(
            f"its certificate is for {subjects}; it must be for {kubelet.address} or {kubelet.node}"
        )


def _named(name: str) -> str:
    """Return a name of a certificate, an address as Python writes it: OpenSSL writes FD00:0:0:0:0:0:0:21."""
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name


def _user(certificate: Mapping[str, object]) -> str:
    """Return the common name of the subject, "" without exactly one."""
    subject = certificate.get("subject", ())
    parts = [part for rdn in subject for part in rdn] if isinstance(subject, tuple) else []
    called = [str(value) for kind, value in parts if kind == "commonName"]
    return called[0] if len(called) == 1 else ""


def kubelet_of(node: JsonObject, own: Own) -> Kubelet | None:
    """Return where ``node`` serves its API, None where it does not say.

    Raises:
        ServiceUnavailable: it names an address that requests must not be sent to.
    """
    port = objects.dig(node, "status", "daemonEndpoints", "kubeletEndpoint", "Port")
    if not isinstance(port, int) or not 0 < port <= _LARGEST_PORT:
        return None
    if port == own.kubelet_port and not is_virtual(node):
        return None  # a machine of ours: that port leads to API servers
    given = objects.status(node).get("addresses") or []
    by_type = {str(each.get("type")): str(each.get("address") or "") for each in reversed(given)}
    address = next((by_type[kind] for kind in _ADDRESSES if by_type.get(kind)), "")
    if not address:
        return None
    why = non_special_ip(address) or _not_a_machines(address, port, own)
    if why:
        text = f"node {objects.name(node)} says that its kubelet is at {place(address, port)}: {address}"
        raise ServiceUnavailable(f"error dialing backend: {text} {'; '.join(why)}")
    return Kubelet(objects.name(node), address, port)


def _not_a_machines(address: str, port: int, own: Own) -> list[str]:
    """Return why an address leads to no other machine; one of IPv6 has many spellings."""
    found = ipaddress.ip_address(address)
    if own.address and (found, port) == (ipaddress.ip_address(own.address), own.port):
        return ["is this API server"]
    if any(found in each for each in own.services):
        return ["is an address of Services"]
    return ["is no address of one machine"] if found.is_multicast or found.is_reserved else []


def connected(kubelets: Kubelets | None, kubelet: Kubelet, request: bytes) -> socket.socket:
    """Return the connection to the kubelet, set not to block.

    Raises:
        ServiceUnavailable: it cannot be reached, or has no certificate that may be believed.
    """
    if kubelets is None:
        text = "this API server has no client certificate for kubelets (reconciler_client)"
        raise ServiceUnavailable(f"error dialing backend: {text}")
    try:
        connection = kubelets.connect(kubelet, request)
    except (OSError, ValueError) as error:
        where = f"the kubelet of node {kubelet.node} at {place(kubelet.address, kubelet.port)}"
        raise ServiceUnavailable(f"error dialing backend: {where} cannot be reached: {error}") from error
    with contextlib.suppress(OSError):
        connection.setblocking(False)  # noqa: FBT003 - the standard library's signature
    return connection


class KubeletAnswer(NamedTuple):
    """A whole answer."""

    media: str
    body: bytes


class TimedAnswer(io.RawIOBase):
    """What a node answers, as http.client reads it; TimeoutError once it has taken ``within_s``, else ``ANSWER_S``."""

    def __init__(self, connection: socket.socket, within_s: float | None = None) -> None:
        self._connection, self._within_s = connection, ANSWER_S if within_s is None else within_s
        self._until_s = time.monotonic() + self._within_s

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Read what is there."""
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError(f"its answer was not complete after {self._within_s:g} s")
        self._connection.settimeout(left_s)
        return self._connection.recv_into(buffer)

    def makefile(self, _mode: str) -> io.BufferedReader:
        """Return what http.client asks a socket for."""
        return io.BufferedReader(self)


def get(kubelets: Kubelets | None, kubelet: Kubelet, path: str) -> KubeletAnswer:
    """Return what the kubelet answers to a GET of ``path``, all of it.

    Raises:
        ServiceUnavailable: it does not answer, or refuses.
    """
    connection = connected(kubelets, kubelet, request_bytes("GET", kubelet, KubeletPath(path)))
    try:
        answer = http.client.HTTPResponse(TimedAnswer(connection))  # type: ignore[arg-type]  # it asks for no more of it
        answer.begin()
        body = answer.read(_LARGEST + 1)
    except (OSError, http.client.HTTPException) as error:
        raise ServiceUnavailable(f"the kubelet of node {kubelet.node} did not answer {path}: {error}") from error
    finally:
        connection.close()
    if answer.status != HTTPStatus.OK or len(body) > _LARGEST:
        raise ServiceUnavailable(f"the kubelet of node {kubelet.node} answers {path} with {answer.status}")
    media = answer.headers.get("Content-Type", _TEXT)
    return KubeletAnswer(media if _MEDIA.fullmatch(media) else _TEXT, body)


# --- what is asked -----------------------------------------------------------------------------------

LOG_OPTIONS = ("follow", "previous", "timestamps", "sinceSeconds", "sinceTime", "tailLines", "limitBytes")
_COMMAND = {"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"}


class KubeletPath(NamedTuple):
    """A request to a kubelet: path and parameters."""

    path: str
    query: tuple[tuple[str, str], ...] = ()


def log_wanted(pod: JsonObject, container: str, options: Mapping[str, str]) -> KubeletPath:
    """Return what to ask for a log; ``options`` are PodLogOptions, checked."""
    query = tuple((name, options[name]) for name in LOG_OPTIONS if options.get(name))
    return KubeletPath(_path("containerLogs", pod, container), query)


def command_wanted(pod: JsonObject, what: str, container: str, options: tuple[tuple[str, str], ...]) -> KubeletPath:
    """Return what to ask for exec or attach; ``options`` are those for a gateway (pod_streams.py)."""
    query = [(_COMMAND[name], "1") for name, value in options if name in _COMMAND and value == "true"]
    query += [each for each in options if each[0] == "command"]
    return KubeletPath(_path(what, pod, container), tuple(query))


def forward_wanted(pod: JsonObject, options: tuple[tuple[str, str], ...]) -> KubeletPath:
    """Return what to ask for a port-forward; ``options`` as for a command."""
    return KubeletPath(_path("portForward", pod), tuple(("port", value) for name, value in options if name == "ports"))


def _path(what: str, pod: JsonObject, *more: str) -> str:
    return "/" + "/".join([what, *(quote(each, safe="") for each in (*objects.key(pod), *more))])


def request_bytes(method: str, kubelet: Kubelet, wanted: KubeletPath, headers: Headers | None = None) -> bytes:
    """Return the request; of the client's headers only those of the two upgrade protocols go along."""
    target = f"{wanted.path}?{urlencode(wanted.query)}" if wanted.query else wanted.path
    lines = [f"{method} {target} HTTP/1.1", f"Host: {kubelet.node}", "User-Agent: minik8s-apiserver"]
    upgrade = [f"{name}: {value}" for name in STREAM_HEADERS if headers is not None and (value := headers.get(name))]
    lines += upgrade if any(each.startswith("Upgrade:") for each in upgrade) else ["Connection: close"]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
