"""One request of an API server: ``METHOD /nodes/<node>/pods/<uid>/<what>?<options> HTTP/1.1`` and its headers.

``what`` is log, exec, attach, portforward or proxy. Options are Kubernetes' own names (container, follow, command,
ports, …), checked by the API server already; ``namespace`` and ``pod`` (its name) must be given, ``id`` is the Docker
id of the container where the API server knows it, ``since`` seconds since 1970. Behind a request for ``proxy`` comes,
as HTTP again, the one that the pod gets at the port ``ports``; ``scheme`` is http or https, ``prefix`` what clients
write before the pod's paths, ``host`` its address. The one request without a pod is ``GET /metrics``
(``?history=true``).

The API server finds the address in the Lease of the node (annotation ``minik8s.io/stream-endpoint``), connects with
mutual TLS and sends one request a connection. It signs the first line with the key of its client certificate, over
the four lines ``minik8s stream request``, ``<line>``, ``<seconds>``, ``<nonce>`` (ECDSA or RSA PKCS #1 v1.5, SHA-256)::

    X-Minik8s-Signed: <Unix seconds>.<nonce in hex>.<signature in base64>
    X-Minik8s-Certificate: <DER in base64>

Whoever parses the streams passes all three on to the gateway as they are, so it can invent no request.

The answer, its head included, is the client's: chunked text; WebSocket ``v5.channel.k8s.io``, ``v4.channel.k8s.io`` or
``SPDY/3.1+portforward.k8s.io``; or SPDY/3.1. Errors are Status objects. ``/metrics`` answers ``{node: {"source",
"machine": usage | null, "containers": [{"id", "pod_uid", "pod", "namespace", "container", "usage"}]}}``, where usage is
``{"timestamp_s", "window_s", "cpu_nanocores", "cpu_nanoseconds", "memory_bytes"}``; with history also the samples of
each container, ``[Unix seconds, CPU ns, working set]``. Where cgroups tell pressure, ``"pressure": {pod UID:
{"timestamp_s", "cpu", "memory", "io"}}`` comes along, and of the machine ``"pressure"`` in its usage.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qs, unquote

HEAD_BYTES = 64 * 1024
SIGNED, CERTIFICATE = "X-Minik8s-Signed", "X-Minik8s-Certificate"
"""``<Unix seconds>.<nonce in hex>.<signature in base64>``, and the signer's certificate, DER in base64."""
METRICS = "metrics"
_PARTS = 6
_OPTIONS = frozenset({
    "namespace", "pod", "container", "id", "stdin", "stdout", "stderr", "tty", "command", "ports", "follow",
    "tailLines", "limitBytes", "timestamps", "stream", "since", "history", "scheme", "prefix", "host",
})  # fmt: skip


class StreamRequest(NamedTuple):
    """What is asked; ``line`` is the request's first one, header names are in lower case."""

    node: str
    uid: str
    what: str
    options: Mapping[str, list[str]]
    headers: Mapping[str, str]
    line: str

    def text(self, name: str) -> str:
        """Return the first value of an option, "" when it is not given."""
        return self.options.get(name, [""])[0]

    def flag(self, name: str) -> bool:
        """Return whether an option is on."""
        return self.text(name) == "true"

    def channels(self) -> list[str]:
        """Return the wanted ones of stdin, stdout, stderr; a terminal has no stderr of its own."""
        wanted = [each for each in ("stdin", "stdout", "stderr") if self.flag(each)]
        return [each for each in wanted if each != "stderr" or not self.flag("tty")]

    @property
    def target(self) -> str:
        """Return path and query as they came."""
        return self.line.split(" ")[1]

    @property
    def pod(self) -> str:
        """Return the pod's name."""
        return self.text("pod")

    @property
    def namespace(self) -> str:
        """Return the pod's namespace."""
        return self.text("namespace")

    @property
    def container(self) -> str:
        """Return the container's name."""
        return self.text("container")


def parse(head: bytes) -> StreamRequest:
    """Return the request in the head of an HTTP message.

    Raises:
        ValueError: it is none of ours; the message says why.
    """
    line, *lines = head.decode("latin-1").split("\r\n")
    headers = {}
    for each in filter(None, lines):
        name, colon, value = each.partition(":")
        if not colon:
            raise ValueError(f"no header: {each!r}")
        headers[name.strip().lower()] = value.strip()
    return parse_line(line)._replace(headers=headers)


def parse_line(line: str) -> StreamRequest:
    """Return the request that the first line names, without headers.

    Raises:
        ValueError: it is none of ours; the message says why.
    """
    words = line.split(" ")
    if len(words) != 3 or words[2] != "HTTP/1.1" or not (line.isascii() and line.isprintable()):  # noqa: PLR2004
        raise ValueError("no request line of HTTP/1.1")
    path, _, query = words[1].partition("?")
    options = parse_qs(query, keep_blank_values=True)
    if unknown := sorted(set(options) - _OPTIONS):
        raise ValueError(f"no option of a stream: {unknown[0]}")
    if path == f"/{METRICS}":
        return StreamRequest("", "", METRICS, options, {}, line)
    parts = path.split("/")
    if len(parts) != _PARTS or (parts[1], parts[3]) != ("nodes", "pods"):
        raise ValueError(f"nothing is served at {path}")
    if not all(options.get(each, [""])[0] for each in ("namespace", "pod")):
        raise ValueError("a request must give the pod's namespace and name (options namespace and pod)")
    return StreamRequest(unquote(parts[2]), unquote(parts[4]), parts[5], options, {}, line)


def signed_text(line: str, at_s: int, nonce: str) -> bytes:
    """Return what is signed of a request: its first line, when, and a number that is used once."""
    return f"minik8s stream request\n{line}\n{at_s}\n{nonce}".encode()
