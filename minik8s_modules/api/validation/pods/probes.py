"""Validation of probes, lifecycle hooks, sidecars and readiness gates.

Source: kubernetes ``pkg/apis/core/validation/validation.go`` (validateProbe, validateLifecycle).
Stricter in one thing: a host is an IPv4 address, for a pod's own network answers no names before it runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from minik8s_modules.api import cause, syntax
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject, spec
from minik8s_modules.api.validation import check

PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_HOOKS = ("postStart", "preStop")
_PROBE_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
_HOOK_HANDLERS = ("exec", "httpGet", "sleep")
_COUNTS = check.fields(
    (
        ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"),
        check.not_negative,
    )
)
_DEFAULT_GRACE_S = 30


def validate_probes(pod: JsonObject) -> list[Cause]:
    """Return what is wrong with the probes, hooks and sidecars of a pod."""
    declared = spec(pod)
    grace_s = declared.get("terminationGracePeriodSeconds", _DEFAULT_GRACE_S)
    causes: list[Cause] = []
    for field, at, container in _containers(declared):
        causes += _restart_policy(field, at, container)
        if field == "initContainers" and container.get("restartPolicy") != "Always":
            causes += _not_of_init(at, container)
            continue
        for name in PROBES:
            if container.get(name) is not None:
                causes += _probe(f"{at}.{name}", name, container[name])
        for name in _HOOKS:
            hook = (container.get("lifecycle") or {}).get(name)
            if hook is not None:
                causes += _hook(f"{at}.lifecycle.{name}", hook, grace_s)
    return causes + _GATES("spec.readinessGates", declared.get("readinessGates"))


_GATES = check.each(check.fields(("conditionType", check.qualified_name)))


def _containers(declared: JsonObject) -> Iterator[tuple[str, str, JsonObject]]:
    for field in ("initContainers", "containers"):
        for index, container in enumerate(declared.get(field) or []):
            yield field, f"spec.{field}[{index}]", container


def _restart_policy(field: str, at: str, container: JsonObject) -> list[Cause]:
    policy = container.get("restartPolicy")
    if policy in (None, "") or (field == "initContainers" and policy == "Always"):
        return []
    if field == "initContainers":
        return [cause.not_supported(f"{at}.restartPolicy", policy, ["Always"])]
    return [cause.forbidden(f"{at}.restartPolicy", "may not be set for non-init containers")]


def _not_of_init(at: str, container: JsonObject) -> list[Cause]:
    return [
        cause.forbidden(f"{at}.{name}", "may not be set for init containers without restartPolicy=Always")
        for name in (*PROBES, "lifecycle")
        if container.get(name)
    ]


def _probe(at: str, name: str, probe: JsonObject) -> list[Cause]:
    causes = _handler(at, probe, _PROBE_HANDLERS)
    causes += _COUNTS(at, probe)
    if name != "readinessProbe" and probe.get("successThreshold", 1) != 1:
        causes.append(cause.invalid(f"{at}.successThreshold", probe["successThreshold"], "must be 1"))
    grace_s = probe.get("terminationGracePeriodSeconds")
    if grace_s is not None and name == "readinessProbe":
        causes.append(
            cause.invalid(f"{at}.terminationGracePeriodSeconds", grace_s, "must not be set for readinessProbes")
        )
    elif grace_s is not None and grace_s <= 0:
        causes.append(cause.invalid(f"{at}.terminationGracePeriodSeconds", grace_s, "must be greater than 0"))
    return causes


def _hook(at: str, hook: JsonObject, grace_s: int) -> list[Cause]:
    causes = _handler(at, hook, _HOOK_HANDLERS)
    if "sleep" in hook:
        seconds = hook["sleep"].get("seconds", 0)
        if not 0 <= seconds <= grace_s:
            text = f"must be non-negative and less than terminationGracePeriodSeconds ({grace_s})"
            causes.append(cause.invalid(f"{at}.sleep.seconds", seconds, text))
    return causes


def _handler(at: str, given: JsonObject, known: tuple[str, ...]) -> list[Cause]:
    found = [name for name in known if given.get(name) is not None]
    if not found:
        # tcpSocket of a hook is refused by coverage.yml, and need not be missed here
        return [] if given.get("tcpSocket") else [cause.required(at, "must specify a handler type")]
    causes = [cause.forbidden(f"{at}.{name}", "may not specify more than 1 handler type") for name in found[1:]]
    return causes + _CHECKS[found[0]](f"{at}.{found[0]}", given[found[0]])


def _exec(at: str, given: JsonObject) -> list[Cause]:
    return [] if given.get("command") else [cause.required(f"{at}.command")]


def _http_get(at: str, given: JsonObject) -> list[Cause]:
    causes = [] if given.get("path") else [cause.required(f"{at}.path")]
    causes += _port(f"{at}.port", given.get("port")) + _host(at, given)
    if given.get("scheme", "HTTP") not in {"HTTP", "HTTPS"}:
        causes.append(cause.not_supported(f"{at}.scheme", given.get("scheme"), ["HTTP", "HTTPS"]))
    for index, header in enumerate(given.get("httpHeaders") or []):
        name = str(header.get("name") or "")
        if not name or not all(char.isalnum() or char in "!#$%&'*+-.^_`|~" for char in name) or not name.isascii():
            text = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name')"
            causes.append(cause.invalid(f"{at}.httpHeaders[{index}].name", name, text))
        if {"\r", "\n", "\0"} & set(str(header.get("value") or "")):
            where = f"{at}.httpHeaders[{index}].value"
            causes.append(cause.invalid(where, header["value"], "must not contain line breaks or NUL"))
    return causes


def _tcp_socket(at: str, given: JsonObject) -> list[Cause]:
    return _port(f"{at}.port", given.get("port")) + _host(at, given)


def _grpc(at: str, given: JsonObject) -> list[Cause]:
    return _port(f"{at}.port", given.get("port"))


_CHECKS = {"exec": _exec, "httpGet": _http_get, "tcpSocket": _tcp_socket, "grpc": _grpc, "sleep": check.no_rule}


def _port(field: str, port: Any) -> list[Cause]:
    if isinstance(port, int):
        return cause.all_invalid(field, port, syntax.port_number(port))
    if not port:
        return [cause.required(field)]
    return cause.all_invalid(field, port, syntax.port_name(str(port)))


def _host(at: str, given: JsonObject) -> list[Cause]:
    host = given.get("host")
    return cause.all_invalid(f"{at}.host", host, syntax.ip(str(host))) if host and host != "localhost" else []
