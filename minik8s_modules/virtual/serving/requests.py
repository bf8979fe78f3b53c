"""What a request to a kubelet asks for, from its first line and headers. Pure.

``/containerLogs/{ns}/{pod}/{container}``, ``/exec/…``, ``/attach/…`` (also with the Pod's uid before the container),
``/portForward/{ns}/{pod}``, ``/pods``, ``/runningpods/``, ``/stats/summary``, ``/metrics/resource``, ``/healthz``.
Sources: kubernetes ``pkg/kubelet/server/server.go``, virtual-kubelet ``node/api/server.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qs, unquote

from minik8s_modules.base.clock import parse_rfc3339
from minik8s_modules.streams.requests import StreamRequest
from minik8s_modules.virtual.errors import InvalidInput
from minik8s_modules.virtual.provider import ContainerLogOptions

OF_CONTAINERS = {"containerLogs": "log", "exec": "exec", "attach": "attach"}
OF_PODS = {"portForward": "portforward"}
OF_NODES = {
    "/pods": "pods",
    "/runningpods": "runningpods",
    "/stats/summary": "summary",
    "/metrics/resource": "resource",
    "/healthz": "healthz",
}
# kubelet's names of what is streamed, and ours
_CHANNELS = {"input": "stdin", "output": "stdout", "error": "stderr", "tty": "tty"}
_ON = frozenset({"1", "true"})


class KubeletRequest(NamedTuple):
    """What is asked for; ``stream`` is the same in the words of the code that speaks WebSocket and SPDY."""

    what: str
    namespace: str
    pod: str
    container: str
    stream: StreamRequest

    def query(self, name: str) -> str:
        """Return the first value of a parameter, "" where it is not given."""
        return self.stream.text(name)


def parse(head: bytes) -> KubeletRequest:
    """Return the request in the head of an HTTP message.

    Raises:
        ValueError: it is no request of HTTP/1.1.
        LookupError: nothing is served at its path.
    """
    line, *lines = head.decode("latin-1").split("\r\n")
    words = line.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):  # noqa: PLR2004 - method, target, version
        raise ValueError("no request line of HTTP/1.1")
    headers = {}
    for each in filter(None, lines):
        name, colon, value = each.partition(":")
        if not colon:
            raise ValueError(f"no header: {each!r}")
        headers[name.strip().lower()] = value.strip()
    path, _, query = words[1].partition("?")
    what, namespace, pod, container = _placed(path)
    options = _options(parse_qs(query, keep_blank_values=True), namespace, pod, container)
    return KubeletRequest(what, namespace, pod, container, StreamRequest("", "", what, options, headers, line))


def _placed(path: str) -> tuple[str, str, str, str]:
    if (what := OF_NODES.get(path.rstrip("/"))) is not None:
        return what, "", "", ""
    first, *rest = [unquote(part) for part in path.split("/")[1:]]
    if first in OF_CONTAINERS and len(rest) in {3, 4} and all(rest):
        return OF_CONTAINERS[first], rest[0], rest[1], rest[-1]
    if first in OF_PODS and len(rest) in {2, 3} and all(rest):
        return OF_PODS[first], rest[0], rest[1], ""
    raise LookupError(f"nothing is served at {path}")


def _options(given: Mapping[str, list[str]], namespace: str, pod: str, container: str) -> dict[str, list[str]]:
    found = {name: list(values) for name, values in given.items()}
    for theirs, ours in _CHANNELS.items():
        if found.pop(theirs, found.get(ours, [""]))[0] in _ON:
            found[ours] = ["true"]
    if "port" in found:
        found["ports"] = [port for text in found.pop("port") for port in text.split(",")]
    return {**found, "namespace": [namespace], "pod": [pod], "container": [container]}


def log_options(request: KubeletRequest) -> ContainerLogOptions:
    """Return which part of a log is wanted.

    Raises:
        InvalidInput: a parameter cannot be used.
    """
    since = request.query("sinceTime")
    try:
        moment = parse_rfc3339(since) if since else None
    except ValueError as error:
        raise InvalidInput(f"sinceTime must be a time in RFC 3339, not {since!r}") from error
    seconds = _number(request, "sinceSeconds", 1, 0)
    if seconds and moment is not None:
        raise InvalidInput("both sinceSeconds and sinceTime are given; give one")
    return ContainerLogOptions(
        tail=_number(request, "tailLines", 0, -1),
        limit_bytes=_number(request, "limitBytes", 1, 0),
        timestamps=request.query("timestamps") in _ON,
        follow=request.query("follow") in _ON,
        previous=request.query("previous") in _ON,
        since_seconds=seconds,
        since_time=moment,
    )


def _number(request: KubeletRequest, name: str, least: int, default: int) -> int:
    text = request.query(name)
    if not text:
        return default
    if not text.isascii() or not text.isdecimal() or int(text) < least:
        raise InvalidInput(f"{name} must be a number from {least}, not {text!r}")
    return int(text)
