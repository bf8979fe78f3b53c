"""One request of an API server: ``METHOD /nodes/<node>/pods/<uid>/<what>?<options> HTTP/1.1`` and its headers.

``what`` is log, exec, attach or portforward. Options are Kubernetes' own names (container, follow, command, ports, …),
checked by the API server already; ``namespace`` and ``pod`` (its name) must be given, ``id`` is the Docker id of the
container where the API server knows it, ``since`` seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qs, unquote

HEAD_BYTES = 64 * 1024
_PARTS = 6


class StreamRequest(NamedTuple):
    """What is asked; header names are in lower case."""

    node: str
    uid: str
    what: str
    options: Mapping[str, list[str]]
    headers: Mapping[str, str]
    target: str

    def text(self, name: str) -> str:
        """Return the first value of an option, "" when it is not given."""
        return self.options.get(name, [""])[0]

    def flag(self, name: str) -> bool:
        """Return whether an option is on."""
        return self.text(name) == "true"

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
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or words[2] != "HTTP/1.1":  # noqa: PLR2004 - method, target, version
        raise ValueError("no request line of HTTP/1.1")
    path, _, query = words[1].partition("?")
    parts = path.split("/")
    if len(parts) != _PARTS or (parts[1], parts[3]) != ("nodes", "pods"):
        raise ValueError(f"nothing is served at {path}")
    headers = {}
    for line in filter(None, lines):
        name, colon, value = line.partition(":")
        if not colon:
            raise ValueError(f"no header: {line!r}")
        headers[name.strip().lower()] = value.strip()
    options = parse_qs(query, keep_blank_values=True)
    if not all(options.get(each, [""])[0] for each in ("namespace", "pod")):
        raise ValueError("a request must give the pod's namespace and name (options namespace and pod)")
    return StreamRequest(unquote(parts[2]), unquote(parts[4]), parts[5], options, headers, words[1])
