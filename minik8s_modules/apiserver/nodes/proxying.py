"""pods/proxy and services/proxy: which port of which pod a request goes on to, and as what request; pure.

A service's request goes to one of its ready endpoints. As in Kubernetes that must be a pod of the service's namespace
that has the endpoint's address; what is dialled in the end is the address that the pod's node knows, so neither an
EndpointSlice nor a status that somebody wrote leads anywhere else. On a pod that shares its node's network only
declared ports are reached: the others are the node's.

Sources: kubernetes ``pkg/registry/core/pod/strategy.go`` (ResourceLocation), ``pkg/registry/core/service/storage``,
k8s.io/apimachinery ``util/proxy``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple
from urllib.parse import quote, unquote

from minik8s_modules.api import objects
from minik8s_modules.api.errors import BadRequest, ServiceUnavailable
from minik8s_modules.api.objects import JsonObject, name, namespace, spec, status
from minik8s_modules.api.pods.mirror_pods import node_uid
from minik8s_modules.apiserver.http.target import proxy_prefix
from minik8s_modules.apiserver.nodes.gateways import Headers
from minik8s_modules.apiserver.nodes.pod_streams import PodStream
from minik8s_modules.base.places import place as written

SERVICE_NAME = "kubernetes.io/service-name"
_LARGEST_PORT = 65535
_DEFAULT_PORTS = {"http": 80, "https": 443}
# between two hops (RFC 9110, 7.6.1), and what is written again
_HOP = frozenset({
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
    "transfer-encoding", "upgrade", "content-length", "expect", "host", "x-forwarded-for", "x-forwarded-uri",
})  # fmt: skip
# what tells this server who asks is not for pods; client-go's front-proxy headers are nobody's here
_IDENTITY = ("authorization", "impersonate-", "x-remote-")
_BEARER = "base64url.bearer.authorization.k8s.io."
_VISIBLE = "".join(map(chr, range(0x21, 0x7F)))


class Name(NamedTuple):
    """What stands in the path for a name: ``name``, ``name:port`` or ``scheme:name:port``."""

    scheme: str
    name: str
    port: str


class Place(NamedTuple):
    """A port of a pod."""

    pod: JsonObject
    port: int


class Path(NamedTuple):
    """A path as it came, escapes and all: what names the proxy, and what is below it ("" or from its slash on)."""

    prefix: str
    below: str
    query: str

    @property
    def target(self) -> str:
        """Return what the pod is asked for."""
        path = self.below or "/"
        return quote(f"{path}?{self.query}" if self.query else path, safe=_VISIBLE, encoding="latin-1")

    @property
    def redirect(self) -> str:
        """Return where relative links of the pod's first page lead to the pod, "" where they do already."""
        return "" if self.below else f"{self.prefix}/{'?' if self.query else ''}{self.query}"


def name_of(text: str, what: str) -> Name:
    """Return the parts of a name; BadRequest when it is none."""
    parts = text.split(":")
    scheme, own, port = {1: ("", *parts, ""), 2: ("", *parts), 3: (*parts,)}.get(len(parts), ("", "", ""))
    if not own or scheme not in {"", "http", "https"}:
        forms = "NAME or NAME:PORT" if what == "node" else "NAME, NAME:PORT or https:NAME:PORT"
        raise BadRequest(f'invalid {what} request "{text}": write {forms}')
    return Name(scheme or "http", own, port)


def path_of(uri: str, path: str) -> Path:
    """Return the path of a request whose ``uri`` is as it came; ``path`` is the same without escapes.

    Raises:
        BadRequest: the two name different proxies, by an escaped slash.
    """
    known = proxy_prefix(path)
    raw, _, query = uri.partition("?")
    segments = raw.split("/")
    count = known.count("/") + 1
    prefix = "/".join(segments[:count])
    if not known or unquote(prefix) != known:
        raise BadRequest(
            f"the path up to /proxy must name a node, pod or service without escaped slashes, not {raw[:200]}"
        )
    return Path(prefix, raw[len(prefix) :], query)


def pod_port(pod: JsonObject, wanted: Name) -> int:
    """Return the port that is meant: by number, by name, or the first that a container declares.

    Raises:
        BadRequest: there is none.
    """
    declared = list(_declared(pod))
    if not wanted.port:
        port = declared[0][1] if declared else _DEFAULT_PORTS[wanted.scheme]
    elif wanted.port.isascii() and wanted.port.isdecimal():
        port = int(wanted.port)
    else:
        port = next((number for known, number in declared if known == wanted.port), 0)
    if not 0 < port <= _LARGEST_PORT:
        raise BadRequest(f'pod "{name(pod)}" has no port "{wanted.port}": give a number, or the name of a declared one')
    if not _reachable(pod, port):
        message = f'port {port} is not declared by pod "{name(pod)}", which shares the network of its node'
        raise BadRequest(f"{message}: only declared ports of such a pod are proxied")
    return port


def service_places(
    service: JsonObject, wanted: Name, slices: Iterable[JsonObject], pod_of: Callable[[str], JsonObject | None]
) -> list[Place]:
    """Return where a service's request may go.

    Args:
        service: the service.
        wanted: the port by number, by name, or "" for the one without a name.
        slices: its EndpointSlices.
        pod_of: returns the pod of a name in its namespace.

    Raises:
        ServiceUnavailable: there is no such port, or no endpoint.
    """
    port_name = _port_name(service, wanted)
    found = [place for each in slices for place in _places(each, port_name, pod_of)]
    if not found:
        raise ServiceUnavailable(f'no endpoints available for service "{wanted.name}"')
    return found


def _port_name(service: JsonObject, wanted: Name) -> str:
    if not (wanted.port.isascii() and wanted.port.isdecimal()):
        return wanted.port
    for each in spec(service).get("ports") or []:
        if each.get("port") == int(wanted.port):
            return str(each.get("name") or "")
    raise ServiceUnavailable(f'no service port {wanted.port} found for service "{wanted.name}"')


def _places(endpoint_slice: JsonObject, port_name: str, pod_of: Callable[[str], JsonObject | None]) -> Iterator[Place]:
    ports = [each.get("port") for each in endpoint_slice.get("ports") or [] if (each.get("name") or "") == port_name]
    for endpoint in endpoint_slice.get("endpoints") or []:
        pod = _pod_behind(endpoint, namespace(endpoint_slice), pod_of)
        if pod is None or (endpoint.get("conditions") or {}).get("ready") is False:
            continue
        yield from (Place(pod, port) for port in ports if port and _reachable(pod, port))


def _pod_behind(endpoint: JsonObject, space: str, pod_of: Callable[[str], JsonObject | None]) -> JsonObject | None:
    """Return the pod of namespace ``space`` whose address the endpoint bears, None where it is anything else's."""
    target = endpoint.get("targetRef") or {}
    if target.get("kind") != "Pod" or target.get("namespace") != space:
        return None
    pod = pod_of(str(target.get("name")))
    own = {each.get("ip") for each in status(pod).get("podIPs") or []} if pod else set()
    return pod if own & set(endpoint.get("addresses") or []) and pod and spec(pod).get("nodeName") else None


def _declared(pod: JsonObject) -> Iterator[tuple[str, int]]:
    for container in objects.containers(pod):
        for port in container.get("ports") or []:
            yield str(port.get("name") or ""), int(port["containerPort"])


def _reachable(pod: JsonObject, port: int) -> bool:
    return not spec(pod).get("hostNetwork") or port in {number for _, number in _declared(pod)}


def wanted(place: Place, scheme: str, prefix: str) -> PodStream:
    """Return what to ask of the pod's node. Raises BadRequest when it has none."""
    pod = place.pod
    if not spec(pod).get("nodeName"):
        raise BadRequest(f"pod {name(pod)} does not have a host assigned")
    options = (
        ("namespace", namespace(pod)),
        ("pod", name(pod)),
        ("ports", str(place.port)),
        ("scheme", scheme),
        ("prefix", prefix),
        ("host", written(str(status(pod).get("podIP") or ""), place.port)),
    )
    return PodStream(spec(pod)["nodeName"], node_uid(pod), "proxy", options)


def is_upgrade(headers: Headers) -> bool:
    """Return whether a request asks for another protocol on its connection."""
    return bool(headers.get("Upgrade")) and "upgrade" in _tokens(headers.get("Connection") or "")


def forwarded(line: str, headers: Mapping[str, str], path: Path, client: str, length: int) -> bytes:
    """Return the head of the request that the pod gets.

    Args:
        line: its first line.
        headers: those that came, named like ``Content-Type``.
        path: what was asked for.
        client: the address it came from.
        length: of the body that follows, in bytes.
    """
    kept = passed_on(headers)
    before = headers.get("X-Forwarded-For")
    upgrade = [("Connection", "Upgrade"), ("Upgrade", headers["Upgrade"])] if is_upgrade(headers) else []
    own = [
        ("Host", headers.get("Host") or ""),
        *(upgrade or [("Connection", "close")]),
        ("X-Forwarded-For", f"{before}, {client}" if before else client),
        ("X-Forwarded-Uri", f"{path.prefix}{path.below}"),
        *([("Content-Length", str(length))] if length or not line.startswith(("GET ", "HEAD ")) else []),
    ]
    lines = [line, *(f"{key}: {value}" for key, value in (*own, *kept) if value)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def passed_on(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the headers that are for whoever is asked: not those between two hops, and none that says who asks."""
    dropped = _HOP | _tokens(headers.get("Connection") or "")
    return [
        (key, _without_bearer(value) if key.lower() == "sec-websocket-protocol" else value)
        for key, value in headers.items()
        if key.lower() not in dropped and not key.lower().startswith(_IDENTITY)
    ]


def _tokens(text: str) -> frozenset[str]:
    return frozenset(each.strip().lower() for each in text.split(","))


def _without_bearer(offered: str) -> str:
    """Return the WebSocket subprotocols without the one that carries a token."""
    return ", ".join(each for each in map(str.strip, offered.split(",")) if not each.startswith(_BEARER))
