"""The messages of the gateway's socket (``/run/minik8s/gateway.sock``), one JSON object a line.

Reconciler to gateway::

    {"op": "relist", "node"}
    {"op": "pull", "id", "node", "image", "auth": null | {…} | [{…}, …]}   username, password, serveraddress; in turn
    {"op": "cancel", "id"}
    {"op": "probe", "node", "pod", "sandbox", "checks": [check]}      all checks of a pod; an empty list ends them
    {"op": "heart", "node", "on": true}      listen closely to a node, or (false) no more

Gateway to reconciler::

    {"op": "state", "node", "containers": [observation], "images": ["repo:tag", "sha256:…"], "took_s"}
                                                      after hello or relist; seconds it took, none for one told again
    {"op": "event", "node", "action": "create|start|die|oom|destroy|update|pause", "id",
     "container": observation | null}
    {"op": "images", "node", "images"}
    {"op": "pulled", "id", "node", "image", "ok", "image_id", "reason": "ErrImagePull" | "Cancelled", "message"}
    {"op": "alive", "node", "alive": true}       with alive false: "message", why it does not answer
    {"op": "beat", "node", "silent": false}      of nodes that are listened to closely: heart.py
    {"op": "way", "node", "argv", "state_dir", "run_dir"}    what runs a command on the node, which follows ([]: this
                                                             machine), and where the node keeps what is ours
    {"op": "stats", "node", "source": "cadvisor" | "docker", "containers": {id: working set in bytes},      every 10 s
     "machine": null | {"at_s", "memory_bytes", "memory_available_bytes", "processes", "most_processes",
                        "disk": null | {"capacity_bytes", "available_bytes", "inodes", "inodes_free"}}}
    {"op": "image-list", "node", "images": [{"id", "names", "size_bytes"}]}                             every minute
    {"op": "checked", "node", "pod", "results": {id: {"state", "streak", "message", "took_s"}}}
    {"op": "error", "message"}              the line was no request; the connection ends

A check is ``{"id": "<container id>/<liveness|readiness|startup|postStart|preStop>", "container", "once": false,
"started_at", "initial_delay_s", "period_s", "timeout_s", "success", "failure"}`` and one of ``"exec": [argv]``,
``"http": {"host", "port", "path", "scheme", "headers": [[name, value]]}``, ``"tcp": {"host", "port"}``,
``"grpc": {"host", "port", "service"}``, ``"sleep": seconds``. A check with the same id goes on; a hook (``once``) runs
once, and its ``timeout_s`` may change while it runs. Results of all checks of a pod are sent whenever one changes;
``state`` is unknown, success or failure, ``streak`` below 0 counts failures, ``took_s`` is a hook's.

A client gets ``way``, ``alive``, ``state`` and ``checked`` of every node when it connects; every client gets every
message. One that does not read is disconnected.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.errors import Minik8sError
from minik8s_modules.gateway.probing.checks import BadCheck, Check
from minik8s_modules.gateway.probing.checks import parse as parse_check
from minik8s_modules.module_utils.minik8s.core.faults import steady

LINE_LIMIT = 1024 * 1024


class BadMessage(Minik8sError):
    """A line that is no request; the message says why."""


class Relist(NamedTuple):
    """Asks for a fresh ``state`` of ``node``."""

    node: str


class PullRequest(NamedTuple):
    """Asks to pull ``image``; answered by one ``pulled`` of the same ``id``."""

    id: str
    node: str
    image: str
    auth: tuple[Mapping[str, str], ...]
    """Credentials to try one after the other; none: without one."""


class Cancel(NamedTuple):
    """Breaks the pull ``id`` off; its ``pulled`` has the reason Cancelled."""

    id: str


class Probe(NamedTuple):
    """Declares all checks of a pod, whose pause container is ``sandbox``; none ends them."""

    node: str
    pod: str
    sandbox: str
    checks: tuple[Check, ...]


class Listen(NamedTuple):
    """Asks to listen closely to ``node``, or no more."""

    node: str
    on: bool


Request = Relist | PullRequest | Cancel | Probe | Listen


def parse(line: bytes) -> Request:
    """Return the request in ``line``.

    Raises:
        BadMessage: it is none.
    """
    if not line.endswith(b"\n"):
        raise BadMessage(f"an unterminated line of {len(line)} bytes")
    try:
        message = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise BadMessage(f"not JSON: {error}") from error
    if not isinstance(message, dict):
        raise BadMessage("a message must be a JSON object")
    match message.get("op"):
        case "relist":
            return Relist(_text(message, "node"))
        case "cancel":
            return Cancel(_text(message, "id"))
        case "pull":
            image, auth = _text(message, "image"), _auth(message.get("auth"))
            return PullRequest(_text(message, "id"), _text(message, "node"), image, auth)
        case "probe":
            return _probe(message)
        case "heart":
            return Listen(_text(message, "node"), message.get("on") is True)
        case other:
            raise BadMessage(f"unknown op {other!r}; known are relist, pull, cancel, probe, heart")


def _probe(message: Mapping[str, Any]) -> Probe:
    checks = message.get("checks")
    if not isinstance(checks, list):
        raise BadMessage("probe: checks must be a list")
    try:
        read = tuple(parse_check(check) for check in checks)
    except BadCheck as error:
        raise BadMessage(f"probe: {error}") from error
    return Probe(_text(message, "node"), _text(message, "pod"), str(message.get("sandbox") or ""), read)


def _text(message: Mapping[str, Any], key: str) -> str:
    value = message.get(key)
    if not isinstance(value, str) or not value:
        raise BadMessage(f"{message.get('op')}: {key} must be a non-empty string")
    return value


def _auth(value: Any) -> tuple[Mapping[str, str], ...]:
    given = [] if value is None else value if isinstance(value, list) else [value]
    for one in given:
        if not isinstance(one, dict) or not all(isinstance(each, str) for each in one.values()):
            # never with its content
            raise BadMessage("pull: auth must be null, a mapping of strings, or a list of such mappings")
    return tuple(given)


def encode(message: Mapping[str, Any]) -> bytes:
    """Return ``message`` as one line."""
    return orjson.dumps(message) + b"\n"


def state(node: str, containers: list[JsonObject], images: list[str], took_s: float | None = None) -> JsonObject:
    """Return all that is known of ``node``; ``took_s`` is how long it took to list, None where it is told again."""
    told = {"op": "state", "node": node, "containers": containers, "images": images}
    return told if took_s is None else {**told, "took_s": took_s}


def event(node: str, action: str, container_id: str, container: JsonObject | None) -> JsonObject:
    """Return what happened to a container, with its observation afterwards; None when it is gone."""
    return {"op": "event", "node": node, "action": action, "id": container_id, "container": container}


def images(node: str, names: list[str]) -> JsonObject:
    """Return the names and ids of the images ``node`` has now."""
    return {"op": "images", "node": node, "images": names}


def alive(node: str, *, alive: bool, message: str = "") -> JsonObject:
    """Return whether ``node`` answers, and if it does not, why."""
    return {"op": "alive", "node": node, "alive": alive, **({} if alive else {"message": steady(message)})}


def beat(node: str, *, silent: bool) -> JsonObject:
    """Return whether a node that is listened to closely has fallen silent."""
    return {"op": "beat", "node": node, "silent": silent}


def way(node: str, argv: list[str], state_dir: str, run_dir: str) -> JsonObject:
    """Return how commands reach ``node``, and where it keeps what is ours."""
    return {"op": "way", "node": node, "argv": argv, "state_dir": state_dir, "run_dir": run_dir}


def pulled(request: PullRequest, image_id: str) -> JsonObject:
    """Return the success of a pull."""
    return _pulled(request, ok=True, image_id=image_id)


def not_pulled(request: PullRequest, reason: str, message: str) -> JsonObject:
    """Return the failure of a pull; ``reason`` is ErrImagePull or Cancelled."""
    return _pulled(request, ok=False, reason=reason, message=steady(message))


def _pulled(request: PullRequest, *, ok: bool, image_id: str = "", reason: str = "", message: str = "") -> JsonObject:
    return {
        "op": "pulled",
        "id": request.id,
        "node": request.node,
        "image": request.image,
        "ok": ok,
        "image_id": image_id,
        "reason": reason,
        "message": message,
    }


def error(message: str) -> JsonObject:
    """Return the answer to a line that was no request."""
    return {"op": "error", "message": message}
