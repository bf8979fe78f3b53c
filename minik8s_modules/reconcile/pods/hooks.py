"""postStart and preStop as checks that run once, by the gateway. Pure.

A hook's outcome is the gateway's to know, under the container's Docker id; a hook whose outcome is lost runs again, as
Kubernetes promises no more than "at least once". That postStart is done is also told by the API: a container is
reported running only then. Source: pkg/kubelet/lifecycle/handlers.go, kuberuntime_container.go (startContainer).
"""

from __future__ import annotations

from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.reconcile.pods.observed import ObservedContainer
from minik8s_modules.reconcile.pods.pod_context import PodContext, recorded_status
from minik8s_modules.reconcile.pods.sandboxes import address
from minik8s_modules.reconcile.values.resources import host_ip
from minik8s_modules.reconcile.values.values import CheckResult

_FOREVER_S = 86_400.0
"""postStart has no limit of its own."""


class NoSuchPort(Exception):
    """A probe or hook names a port that its container does not declare."""


def hook(container: JsonObject, name: str) -> JsonObject | None:
    """Return a hook of the container, ``postStart`` or ``preStop``; None where it has none."""
    given = objects.dig(container, "lifecycle", name)
    return given if given and any(key in given for key in ("exec", "httpGet", "sleep")) else None


def check_id(last: ObservedContainer, name: str) -> str:
    """Return the id of a probe or hook of one container."""
    return f"{last.id}/{name}"


def hook_check(
    context: PodContext, container: JsonObject, last: ObservedContainer, name: str, timeout_s: float = _FOREVER_S
) -> JsonObject:
    """Return the check that runs a hook; the hook must be there.

    Raises:
        NoSuchPort: it names a port the container lacks.
    """
    given = hook(container, name) or {}
    action = {"sleep": float(given["sleep"]["seconds"])} if "sleep" in given else action_of(context, container, given)
    return {"id": check_id(last, name), "container": last.id, "once": True, "timeout_s": timeout_s, **action}


def result(context: PodContext, last: ObservedContainer, name: str) -> CheckResult:
    """Return what is known of a probe or hook of one container."""
    return context.inputs.checks.get(check_id(last, name), CheckResult())


def is_recorded(context: PodContext, container: JsonObject, last: ObservedContainer) -> bool:
    """Return whether the API has this very container as having run."""
    recorded = recorded_status(context.pod, container["name"])
    state = recorded.get("state") or {}
    return recorded.get("containerID") == f"docker://{last.id}" and ("running" in state or "terminated" in state)


def action_of(context: PodContext, container: JsonObject, given: JsonObject) -> JsonObject:
    """Return the action of a probe or hook as the gateway takes it.

    Raises:
        NoSuchPort: it names a port the container lacks.
    """
    if "exec" in given:
        return {"exec": list(given["exec"].get("command") or [])}
    if "httpGet" in given:
        http = given["httpGet"]
        headers = [[one["name"], one.get("value") or ""] for one in http.get("httpHeaders") or []]
        where = {"host": _host(context, http), "port": _port(container, http["port"])}
        return {"http": {**where, "path": http.get("path") or "/", "scheme": http.get("scheme"), "headers": headers}}
    if "grpc" in given:
        service = given["grpc"].get("service") or ""
        return {"grpc": {"host": pod_address(context), "port": given["grpc"]["port"], "service": service}}
    tcp = given["tcpSocket"]
    return {"tcp": {"host": _host(context, tcp), "port": _port(container, tcp["port"])}}


def _host(context: PodContext, given: JsonObject) -> str:
    """Return the address to ask: no names are looked up, and one is known everywhere."""
    host = str(given.get("host") or pod_address(context))
    return "127.0.0.1" if host == "localhost" else host


def pod_address(context: PodContext) -> str:
    """Return the address at which the pod's containers listen."""
    if objects.spec(context.pod).get("hostNetwork"):
        return host_ip(context.inputs.node)
    return address(context.seen, context.inputs)


def _port(container: JsonObject, given: Any) -> int:
    if isinstance(given, int):
        return given
    for port in container.get("ports") or []:
        if port.get("name") == given:
            return int(port["containerPort"])
    if str(given).isdecimal():
        return int(given)
    raise NoSuchPort(f"couldn't find port: {given}")
