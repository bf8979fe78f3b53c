"""Validation of containers. Source: kubernetes ``pkg/apis/core/validation/validation.go`` (``validateContainers``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from minik8s_modules.api import cause, quantities, syntax
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods import huge_pages
from minik8s_modules.api.validation import check
from minik8s_modules.api.validation.pods import security

PROTOCOLS = ("TCP", "UDP", "SCTP")
_FIELD_PATHS = (
    "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
    "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
)  # fmt: skip
_SUBSCRIPT = re.compile(r"metadata\.(annotations|labels)\['(.*)'\]")
_RESOURCE_FIELDS = (
    "limits.cpu", "limits.ephemeral-storage", "limits.memory",
    "requests.cpu", "requests.ephemeral-storage", "requests.memory",
)  # fmt: skip
_HUGE_PAGES = tuple(f"{side}.{huge_pages.PREFIX}" for side in ("limits", "requests"))
_STANDARD_RESOURCES = ("cpu", "memory", "ephemeral-storage")
_VALUE_SOURCES = ("configMapKeyRef", "fieldRef", "resourceFieldRef", "secretKeyRef")


def validate_containers(
    field: str, containers: list[JsonObject], volumes: set[str], *, host_network: bool, init: bool = False
) -> list[Cause]:
    """Return what is wrong with a list of containers; ``volumes`` are the names of the pod's volumes."""
    if not containers and not init:
        return [cause.required(field)]
    causes: list[Cause] = []
    seen: set[str] = set()
    ports: set[tuple[str, str, int]] = set()
    for index, container in enumerate(containers):
        at = f"{field}[{index}]"
        causes += _name(f"{at}.name", container.get("name") or "", seen)
        causes += _IMAGE(at, container)
        causes += _ports(f"{at}.ports", container.get("ports") or [], host_network=host_network)
        causes += _host_port_conflicts(f"{at}.ports", container.get("ports") or [], ports)
        causes += _ENVIRONMENT(at, container)
        causes += _mounts(f"{at}.volumeMounts", container.get("volumeMounts") or [], volumes)
        causes += _propagations(f"{at}.volumeMounts", container)
        causes += validate_resources(f"{at}.resources", container.get("resources") or {})
        causes += security.container_security(f"{at}.securityContext", container.get("securityContext") or {})
    return causes


def _name(field: str, name: str, seen: set[str]) -> list[Cause]:
    if not name:
        return [cause.required(field)]
    causes = cause.all_invalid(field, name, syntax.dns1123_label(name))
    if name in seen:
        causes.append(cause.duplicate(field, name))
    seen.add(name)
    return causes


_TRIMMED = check.held(lambda image: image == image.strip(), "must not have leading or trailing whitespace")
_IMAGE = check.fields(
    ("image", check.mandatory(_TRIMMED)),
    ("imagePullPolicy", check.one_of("Always", "IfNotPresent", "Never")),
    ("terminationMessagePolicy", check.if_given(check.one_of("File", "FallbackToLogsOnError"))),
)
_CONTAINER_PORT = check.mandatory(check.port_number)
_PROTOCOL = check.one_of(*PROTOCOLS)


def _ports(field: str, ports: list[JsonObject], *, host_network: bool) -> list[Cause]:
    causes: list[Cause] = []
    names: set[str] = set()
    for index, port in enumerate(ports):
        at = f"{field}[{index}]"
        causes += _port_name(f"{at}.name", port.get("name") or "", names)
        causes += _CONTAINER_PORT(f"{at}.containerPort", port.get("containerPort"))
        causes += security.host_port(at, port, host_network=host_network)
        causes += _PROTOCOL(f"{at}.protocol", port.get("protocol"))
    return causes


def _port_name(field: str, name: str, names: set[str]) -> list[Cause]:
    if not name:
        return []
    causes = cause.all_invalid(field, name, syntax.port_name(name))
    if name in names:
        causes.append(cause.duplicate(field, name))
    names.add(name)
    return causes


def _host_port_conflicts(field: str, ports: list[JsonObject], taken: set[tuple[str, str, int]]) -> list[Cause]:
    causes = []
    for index, port in enumerate(ports):
        host_port = port.get("hostPort") or 0
        key = (port.get("protocol", ""), port.get("hostIP") or "", host_port)
        if host_port and key in taken:
            causes.append(cause.duplicate(f"{field}[{index}].hostPort", f"{key[0]}/{key[1]}/{host_port}"))
        taken.add(key)
    return causes


def _variable(at: str, variable: JsonObject) -> list[Cause]:
    causes = _ENV_NAME(f"{at}.name", variable.get("name"))
    source = variable.get("valueFrom")
    if source is None:
        return causes
    given = [kind for kind in _VALUE_SOURCES if kind in source]
    if not given:
        detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
        causes.append(cause.invalid(f"{at}.valueFrom", "", detail))
    if variable.get("value") and given:
        causes.append(cause.invalid(f"{at}.valueFrom", "", "may not be specified when `value` is not empty"))
    elif len(given) > 1:
        causes.append(cause.invalid(f"{at}.valueFrom", "", "may not have more than one field specified at a time"))
    for kind in given:
        causes += _SOURCE_CHECKS[kind](f"{at}.valueFrom.{kind}", source[kind])
    return causes


_ENV_NAME = check.mandatory(check.syntax_of(syntax.env_name))
_KEY_REFERENCE = check.fields(
    ("name", check.absent_as("", check.subdomain)),
    ("key", check.mandatory(check.syntax_of(syntax.config_key))),
)


def _field_reference(at: str, reference: JsonObject) -> list[Cause]:
    path = reference.get("fieldPath") or ""
    if not path:
        return [cause.required(f"{at}.fieldPath")]
    if reference.get("apiVersion", "v1") != "v1":
        return [cause.not_supported(f"{at}.apiVersion", reference["apiVersion"], ["v1"])]
    subscript = _SUBSCRIPT.fullmatch(path)
    if subscript:
        key = subscript[2]
        return cause.all_invalid(at, key, syntax.qualified_name(key.lower() if subscript[1] == "annotations" else key))
    return [] if path in _FIELD_PATHS else [cause.not_supported(f"{at}.fieldPath", path, _FIELD_PATHS)]


def resource_reference(at: str, reference: JsonObject) -> list[Cause]:
    """Return what is wrong with a resourceFieldRef."""
    resource = reference.get("resource") or ""
    if not resource:
        return [cause.required(f"{at}.resource")]
    if resource not in _RESOURCE_FIELDS and not resource.startswith(_HUGE_PAGES):
        return [cause.not_supported(f"{at}.resource", resource, _RESOURCE_FIELDS)]
    divisor = quantities.parse(reference.get("divisor") or "0")
    of_cpu = resource.endswith(".cpu")
    allowed = ("1m", "1") if of_cpu else _BYTE_DIVISORS
    if not divisor or divisor in map(quantities.parse, allowed):
        return []
    detail = " and ".join(allowed) if of_cpu else ", ".join(allowed)
    family = "hugepages" if resource.startswith(_HUGE_PAGES) else _FAMILIES[resource.partition(".")[2]]
    return [
        cause.invalid(
            f"{at}.divisor", resource, f"only divisor's values {detail} are supported with the {family} resource"
        )
    ]


_FAMILIES = {"cpu": "cpu", "memory": "memory", "ephemeral-storage": "local ephemeral storage"}
_BYTE_DIVISORS = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
_SOURCE_CHECKS = {
    "configMapKeyRef": _KEY_REFERENCE,
    "secretKeyRef": _KEY_REFERENCE,
    "fieldRef": _field_reference,
    "resourceFieldRef": resource_reference,
}


def _one_source(at: str, source: JsonObject) -> list[Cause]:
    given = [kind for kind in ("configMapRef", "secretRef") if kind in source]
    if not given:
        return [cause.invalid(at, "", "must specify one of: `configMapRef` or `secretRef`")]
    return [cause.invalid(at, "", "may not have more than one field specified at a time")] if len(given) > 1 else []


_NAMED = check.if_given(check.fields(("name", check.mandatory(check.subdomain))))
_VARIABLES = check.fields(
    ("prefix", check.if_set(check.syntax_of(syntax.env_name))),
    ("", _one_source),
    (("configMapRef", "secretRef"), _NAMED),
)
_ENVIRONMENT = check.fields(("env", check.each(_variable)), ("envFrom", check.each(_VARIABLES)))


def _mounts(field: str, mounts: list[JsonObject], volumes: set[str]) -> list[Cause]:
    causes: list[Cause] = []
    paths: set[str] = set()
    for index, mount in enumerate(mounts):
        at = f"{field}[{index}]"
        name, path = mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            causes.append(cause.required(f"{at}.name"))
        elif name not in volumes:
            causes.append(cause.not_found(f"{at}.name", name))
        causes += _mount_path(f"{at}.mountPath", path, paths)
        causes += _sub_path(at, mount)
    return causes


def _propagations(field: str, container: JsonObject) -> list[Cause]:
    """Look at what mounts let through; only who may mount on the node may have its mounts seen there."""
    privileged = bool((container.get("securityContext") or {}).get("privileged"))
    causes: list[Cause] = []
    for index, mount in enumerate(container.get("volumeMounts") or []):
        value, at = mount.get("mountPropagation"), f"{field}[{index}].mountPropagation"
        if value is not None and value not in _PROPAGATIONS:
            causes.append(cause.not_supported(at, value, _PROPAGATIONS))
        elif value == "Bidirectional" and not privileged:
            causes.append(
                cause.forbidden(at, "Bidirectional mount propagation is available only to privileged containers")
            )
    return causes


_PROPAGATIONS = ("Bidirectional", "HostToContainer", "None")


def _sub_path(at: str, mount: JsonObject) -> list[Cause]:
    """Look at the text as written; what variables bring into it is the node's to check."""
    causes = []
    for field in ("subPath", "subPathExpr"):
        if mount.get(field):
            causes += cause.local_path(f"{at}.{field}", mount[field])
    if mount.get("subPath") and mount.get("subPathExpr"):
        detail = "subPathExpr and subPath are mutually exclusive"
        causes.append(cause.invalid(f"{at}.subPathExpr", mount["subPathExpr"], detail))
    return causes


def _mount_path(field: str, path: str, paths: set[str]) -> list[Cause]:
    if not path:
        return [cause.required(field)]
    causes = []
    if path in paths:
        causes.append(cause.invalid(field, path, "must be unique"))
    if not path.startswith("/"):
        causes.append(cause.invalid(field, path, "must be an absolute path"))
    if ".." in path.split("/"):
        causes.append(cause.invalid(field, path, "must not contain '..'"))
    paths.add(path)
    return causes


def validate_resources(field: str, resources: JsonObject) -> list[Cause]:
    """Return what is wrong with requests and limits: names, signs, and requests above their limits."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    causes = _amounts(f"{field}.limits", limits)
    causes += _amounts(f"{field}.requests", requests)
    for name, amount in requests.items():
        if name in limits:
            causes += _within_limit(f"{field}.requests", name, amount, limits[name])
        elif _is_exact(name):
            causes.append(cause.required(f"{field}.limits", "Limit must be set for non overcommitable resources"))
    named = {*limits, *requests}
    if any(map(huge_pages.is_resource, named)) and not named & {"cpu", "memory"}:
        causes.append(cause.forbidden(field, "HugePages require cpu or memory"))
    return causes


def _is_exact(name: str) -> bool:
    """Return whether there is no more of a resource than is requested, so that a limit is the request."""
    return "/" in name or huge_pages.is_resource(name)


def _within_limit(field: str, name: str, amount: Any, limit: Any) -> list[Cause]:
    asked, allowed = quantities.parse(amount), quantities.parse(limit)
    if _is_exact(name) and asked != allowed:
        detail = f"must be equal to {name} limit of {quantities.canonical(limit)}"
    elif asked > allowed:
        detail = f"must be less than or equal to {name} limit of {quantities.canonical(limit)}"
    else:
        return []
    return [cause.invalid(field, quantities.canonical(amount), detail)]


def _amounts(field: str, amounts: Mapping[str, Any]) -> list[Cause]:
    causes: list[Cause] = []
    for name, amount in amounts.items():
        at = f"{field}[{name}]"
        causes += _resource_name(at, name)
        value = quantities.parse(amount)
        if value < 0:
            causes.append(cause.invalid(at, str(amount), cause.NOT_NEGATIVE))
        if "/" in name and value != value.to_integral_value():
            causes.append(cause.invalid(at, str(amount), "must be an integer"))
        if huge_pages.is_resource(name) and not huge_pages.is_whole(name, amount):
            shown = quantities.canonical(amount)
            causes.append(cause.invalid(at, shown, f"{shown} is not positive integer multiple of {name}"))
    return causes


def _resource_name(field: str, name: str) -> list[Cause]:
    messages = syntax.qualified_name(name)
    if not messages and not _is_exact(name) and name not in _STANDARD_RESOURCES:
        messages = ["must be a standard resource type or fully qualified", "must be a standard resource for containers"]
    return cause.all_invalid(field, name, messages)
