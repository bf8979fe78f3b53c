"""What somebody asks who connects to a pod or service, as admission sees it: PodExecOptions and its like; pure.

A log is read, and so is no connection. Source: kubernetes ``pkg/apis/core`` (``PodExecOptions`` …).
"""

from __future__ import annotations

from typing import NamedTuple

from minik8s_modules.api.kind import PROXY, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.http.target import Target, proxy_prefix
from minik8s_modules.apiserver.nodes.pod_streams import Arguments, flag

_STREAMS = ("stdin", "stdout", "stderr", "tty")


class Connection(NamedTuple):
    """The options object and its kind."""

    kind: Kind
    obj: JsonObject


def options_of(target: Target, path: str, arguments: Arguments) -> Connection | None:
    """Return what is asked of a subresource that connects; None for one that only reads."""
    match target.subresource:
        case "exec":
            command = arguments.getlist("command")
            return _made("PodExecOptions", {**_streams(arguments), **({"command": command} if command else {})})
        case "attach":
            return _made("PodAttachOptions", _streams(arguments))
        case "portforward":
            words = ",".join(arguments.getlist("ports")).split(",")
            ports = [int(word) for word in words if word.isascii() and word.isdecimal() and len(word) < 6]  # noqa: PLR2004
            return _made("PodPortForwardOptions", {"ports": ports} if ports else {})
        case subresource if subresource == PROXY:
            below = path.removeprefix(proxy_prefix(path))
            return _made(f"{target.kind.kind}ProxyOptions", {"path": below} if below else {})
    return None


def _streams(arguments: Arguments) -> JsonObject:
    found: JsonObject = {each: True for each in _STREAMS if flag(arguments, each)}
    container = arguments.get("container")
    return {**found, **({"container": container} if container else {})}


def _made(name: str, fields: JsonObject) -> Connection:
    kind = Kind("", "v1", name, name.lower(), f"io.k8s.api.core.v1.{name}")
    return Connection(kind, {"kind": name, "apiVersion": "v1", **fields})
