"""What a log, exec, attach or port-forward request asks of a pod's node; pure.

Words are kube-apiserver's (``pkg/registry/core/pod/strategy.go``, ``pkg/apis/core/validation``) and, for a container
whose log does not exist yet, the kubelet's (``validateContainerLogStatus``), because kubectl and people know them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from minik8s_modules.api.errors import BadRequest, Cause, Invalid
from minik8s_modules.api.objects import JsonObject, containers, dig, init_containers, name, namespace, spec, status
from minik8s_modules.api.pods.mirror_pods import node_uid
from minik8s_modules.apiserver.authorization.attributes import Named
from minik8s_modules.base.clock import parse_rfc3339

STREAMED = ("log", "exec", "attach", "portforward")
_LARGEST_PORT = 65535
_DOCKER = "docker://"


class Arguments(Protocol):
    """Query parameters: werkzeug's MultiDict."""

    def get(self, key: str) -> str | None:
        """Return the first value."""

    def getlist(self, key: str) -> list[str]:
        """Return all values."""


class PodStream(NamedTuple):
    """Options for the gateway (streams/requests.py), of a pod on a node."""

    node: str
    uid: str
    what: str
    options: tuple[tuple[str, str], ...]


def log_request(pod: JsonObject, arguments: Arguments, now: datetime) -> PodStream | None:
    """Return what to ask for a log; None when the pod has no node yet, whose log is empty.

    Raises:
        BadRequest: no such container, or it has no log yet.
        Invalid: an option is out of its range.
    """
    options = _log_options(arguments, now)
    container = _container(pod, arguments)
    if not spec(pod).get("nodeName"):
        return None
    found = _log_container(pod, container, previous=flag(arguments, "previous"))
    return _wanted(pod, "log", [("container", container), ("id", found), *options])


def log_of_kubelet(pod: JsonObject, arguments: Arguments, now: datetime) -> str:
    """Return the container whose log is meant, where a kubelet knows whether there is one.

    Raises:
        BadRequest: no such container.
        Invalid: an option is out of its range.
    """
    _log_options(arguments, now)
    return _container(pod, arguments)


def command_request(pod: JsonObject, what: str, arguments: Arguments) -> PodStream:
    """Return what to ask for exec or attach.

    Raises:
        BadRequest: no such container, no command, no stream wanted, or no node.
    """
    container = _container(pod, arguments)
    _require_node(pod)
    streams = [each for each in ("stdin", "stdout", "stderr", "tty") if flag(arguments, each)]
    if not set(streams) - {"tty"}:
        raise BadRequest("you must specify at least 1 of stdin, stdout, stderr")
    commands = [("command", word) for word in arguments.getlist("command")] if what == "exec" else []
    if what == "exec" and not commands:
        raise BadRequest("you must specify at least one command for the container")
    return _wanted(pod, what, [("container", container), *((each, "true") for each in streams), *commands])


def forward_request(pod: JsonObject, arguments: Arguments) -> PodStream:
    """Return what to ask for a port-forward; ``ports`` are only given by clients of the older protocol."""
    _require_node(pod)
    if status(pod).get("phase") in {"Succeeded", "Failed"}:
        raise BadRequest(f"unable to forward port because pod is not running. Current status={status(pod)['phase']}")
    ports = [port for text in arguments.getlist("ports") for port in text.split(",")]
    for port in ports:
        if not port.isdecimal() or not 0 < int(port) <= _LARGEST_PORT:
            raise BadRequest(f'port "{port}" must be a number from 1 to 65535')
    return _wanted(pod, "portforward", [("ports", port) for port in ports])


def _wanted(pod: JsonObject, what: str, options: list[tuple[str, str]]) -> PodStream:
    whose = (("namespace", namespace(pod)), ("pod", name(pod)))
    return PodStream(spec(pod)["nodeName"], node_uid(pod), what, (*whose, *options))


def _require_node(pod: JsonObject) -> None:
    if not spec(pod).get("nodeName"):
        raise BadRequest(f"pod {name(pod)} does not have a host assigned")


def _container(pod: JsonObject, arguments: Arguments) -> str:
    """Return the container meant: the one named, else the only one."""
    apps = [each["name"] for each in containers(pod)]
    inits = [each["name"] for each in init_containers(pod)]
    extra = [each["name"] for each in spec(pod).get("ephemeralContainers") or []]
    named = arguments.get("container") or ""
    if named:
        if named not in {*apps, *inits, *extra}:
            raise BadRequest(f"container {named} is not valid for pod {name(pod)}")
        return named
    if len(apps) == 1:
        return str(apps[0])
    text = f"a container name must be specified for pod {name(pod)}, choose one of: [{' '.join(apps)}]"
    if inits:
        text += f" or one of the init containers: [{' '.join(inits)}]"
    if extra:
        text += f" or one of the ephemeral containers: [{' '.join(extra)}]"
    raise BadRequest(text)


def _log_container(pod: JsonObject, container: str, *, previous: bool) -> str:
    """Return the Docker id of the container whose log is meant, as the pod's status tells it."""
    what = f'container "{container}" in pod "{name(pod)}"'
    found = _status_of(pod, container)
    state, last = found.get("state") or {}, dig(found, "lastState", "terminated") or {}
    if previous:
        if not last.get("containerID"):
            raise BadRequest(f'previous terminated container "{container}" in pod "{name(pod)}" not found')
        return _id(last)
    if not found:
        raise BadRequest(f"{what} is not available")
    if state.get("running") is not None:
        return _id(found)
    if dig(state, "terminated", "containerID"):
        return _id(state["terminated"])
    if last.get("containerID"):
        return _id(last)
    if state.get("terminated"):
        raise BadRequest(f"{what} is terminated")
    raise BadRequest(f"{what} is waiting to start{_why_waiting(state.get('waiting') or {})}")


def _why_waiting(waiting: Mapping[str, str]) -> str:
    reason = waiting.get("reason", "")
    known = {
        "": " - no logs yet",
        "ErrImagePull": ": image can't be pulled",
        "ImagePullBackOff": ": trying and failing to pull image",
    }
    return known.get(reason, f": {reason}")


def _status_of(pod: JsonObject, container: str) -> JsonObject:
    for field in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        for each in status(pod).get(field) or []:
            if each.get("name") == container:
                return dict(each)
    return {}


def _id(container_status: Mapping[str, str]) -> str:
    return container_status.get("containerID", "").removeprefix(_DOCKER)


def _log_options(arguments: Arguments, now: datetime) -> list[tuple[str, str]]:
    if flag(arguments, "insecureSkipTLSVerifyBackend"):
        raise BadRequest("insecureSkipTLSVerifyBackend is not supported: the gateway's certificate is always verified")
    causes: list[Cause] = []
    tail = _number(arguments, "tailLines", 0, causes)
    limit = _number(arguments, "limitBytes", 1, causes)
    seconds = _number(arguments, "sinceSeconds", 1, causes)
    since = _since(arguments, seconds, now, causes)
    stream = arguments.get("stream") or "All"
    if stream not in {"All", "Stdout", "Stderr"}:
        text = f'Unsupported value: "{stream}": supported values: "All", "Stderr", "Stdout"'
        causes.append(Cause("FieldValueNotSupported", text, "stream"))
    if causes:
        raise Invalid(Named("", "PodLogOptions", "pods"), "", causes)
    flags = [(each, "true") for each in ("follow", "timestamps") if flag(arguments, each)]
    values = {"tailLines": tail, "limitBytes": limit}
    numbers = [(key, str(value)) for key, value in values.items() if value is not None]
    return [*flags, *numbers, ("stream", stream), *([("since", since)] if since else [])]


def _since(arguments: Arguments, seconds: int | None, now: datetime, causes: list[Cause]) -> str:
    moment = arguments.get("sinceTime")
    if moment and seconds is not None:
        text = "Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified"
        causes.append(Cause("FieldValueForbidden", text, ""))
    if moment:
        try:
            return f"{parse_rfc3339(moment).timestamp():.9f}"
        except ValueError as error:
            raise BadRequest(f'sinceTime must be a time in RFC 3339, not "{moment}"') from error
    return f"{(now - timedelta(seconds=seconds)).timestamp():.9f}" if seconds else ""


def _number(arguments: Arguments, key: str, least: int, causes: list[Cause]) -> int | None:
    text = arguments.get(key)
    if not text:
        return None
    try:
        number = int(text)
    except ValueError as error:
        raise BadRequest(f'strconv.ParseInt: parsing "{text}": invalid syntax') from error
    if number < least:
        message = "greater than or equal to 0" if least == 0 else "greater than 0"
        causes.append(Cause("FieldValueInvalid", f"Invalid value: {number}: must be {message}", key))
    return number


def flag(arguments: Arguments, key: str) -> bool:
    """Return a boolean parameter as apimachinery's conversion reads it: there, and neither "false" nor "0"."""
    value = arguments.get(key)
    return value is not None and value.lower() not in {"false", "0"}
