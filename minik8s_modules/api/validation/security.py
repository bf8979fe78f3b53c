"""Validation of what pods and containers may do: securityContext, sysctls, host aliases, ports of the node.

Source: kubernetes ``pkg/apis/core/validation/validation.go`` (``validatePodSpecSecurityContext``,
``ValidateSecurityContext``, ``validateSysctls``, ``ValidateHostAliases``).
"""

from __future__ import annotations

import ipaddress
from typing import Any

from minik8s_modules.api import cause, syntax
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject, every_container
from minik8s_modules.api.pods import sysctls

_LARGEST_ID = 2**31 - 1
_ID_RANGE = f"must be between 0 and {_LARGEST_ID}, inclusive"
_CHOICES = {
    "fsGroupChangePolicy": ("Always", "OnRootMismatch"),
    "supplementalGroupsPolicy": ("Merge", "Strict"),
    "procMount": ("Default", "Unmasked"),
}
_PROFILES = ("Localhost", "RuntimeDefault", "Unconfined")


def pod_security(pod: JsonObject) -> list[Cause]:
    """Return what is wrong with the pod's securityContext and the namespaces it shares."""
    declared = pod.get("spec") or {}
    context, field = declared.get("securityContext") or {}, "spec.securityContext"
    causes = _context(field, context)
    for index, group in enumerate(context.get("supplementalGroups") or []):
        causes += _number(f"{field}.supplementalGroups[{index}]", group)
    causes += _sysctls(f"{field}.sysctls", context.get("sysctls") or [])
    causes += strict_groups(pod)
    if declared.get("shareProcessNamespace") and declared.get("hostPID"):
        told = "ShareProcessNamespace and HostPID cannot both be enabled"
        causes.append(cause.invalid("spec.shareProcessNamespace", True, told))  # noqa: FBT003 - the value
    return causes + _aliases("spec.hostAliases", declared.get("hostAliases") or [])


def container_security(field: str, context: JsonObject) -> list[Cause]:
    """Return what is wrong with a container's securityContext."""
    causes = _context(field, context)
    if context.get("allowPrivilegeEscalation") is not False:
        return causes
    if context.get("privileged"):
        told = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
        causes.append(cause.invalid(field, "", told))
    if {"SYS_ADMIN", "CAP_SYS_ADMIN"} & set((context.get("capabilities") or {}).get("add") or []):
        told = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
        causes.append(cause.invalid(field, "", told))
    return causes


def _context(field: str, context: JsonObject) -> list[Cause]:
    causes: list[Cause] = []
    for name in ("runAsUser", "runAsGroup", "fsGroup"):
        causes += _number(f"{field}.{name}", context.get(name))
    for name, allowed in _CHOICES.items():
        if context.get(name) is not None and context[name] not in allowed:
            causes.append(cause.not_supported(f"{field}.{name}", context[name], allowed))
    causes += _profile(f"{field}.seccompProfile", context.get("seccompProfile"), "seccomp")
    return causes + _profile(f"{field}.appArmorProfile", context.get("appArmorProfile"), "AppArmor")


def _number(field: str, value: Any) -> list[Cause]:
    return [] if value is None or 0 <= value <= _LARGEST_ID else [cause.invalid(field, value, _ID_RANGE)]


def _profile(field: str, profile: JsonObject | None, called: str) -> list[Cause]:
    if profile is None:
        return []
    kind, local = profile.get("type") or "", profile.get("localhostProfile")
    if not kind:
        return [cause.required(f"{field}.type", f"type is required when {called}Profile is set")]
    if kind not in _PROFILES:
        return [cause.not_supported(f"{field}.type", kind, _PROFILES)]
    at = f"{field}.localhostProfile"
    if kind != "Localhost":
        told = f"can only be set when {called} type is Localhost"
        return [] if local is None else [cause.invalid(at, local, told)]
    if not local:
        return [cause.required(at, f"must be set when {called} type is Localhost")]
    return cause.local_path(at, local) if called == "seccomp" else _profile_name(at, local)


def _profile_name(at: str, name: str) -> list[Cause]:
    return [cause.invalid(at, name, "must not contain white space")] if name.split() != [name] else []


def _sysctls(field: str, given: list[JsonObject]) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, one in enumerate(given):
        at, name = f"{field}[{index}].name", str(one.get("name") or "")
        if not name:
            causes.append(cause.required(at))
        elif len(name) > sysctls.LONGEST_NAME or not sysctls.NAME.fullmatch(name):
            told = f"must have at most {sysctls.LONGEST_NAME} characters and match regex ^{sysctls.NAME.pattern}$"
            causes.append(cause.invalid(at, name, told))
        elif name in seen:
            causes.append(cause.duplicate(at, name))
        seen.add(name)
    return causes


def strict_groups(pod: JsonObject) -> list[Cause]:
    """Refuse Strict where Docker would add the user's groups from the image: it does so without a primary group."""
    context = (pod.get("spec") or {}).get("securityContext") or {}
    if context.get("supplementalGroupsPolicy") != "Strict":
        return []
    groups = [(one.get("securityContext") or {}).get("runAsGroup") for _, _, one in every_container(pod)]
    users = [(one.get("securityContext") or {}).get("runAsUser") for _, _, one in every_container(pod)]
    if all(each is not None or context.get("runAsGroup") is not None for each in groups) and all(
        each is not None or context.get("runAsUser") is not None for each in users
    ):
        return []
    told = (
        "not supported by minik8s without runAsUser and runAsGroup: Docker adds the groups that the image gives a user"
    )
    return [cause.forbidden("spec.securityContext.supplementalGroupsPolicy", told)]


def _aliases(field: str, aliases: list[JsonObject]) -> list[Cause]:
    causes: list[Cause] = []
    for index, alias in enumerate(aliases):
        address = str(alias.get("ip") or "")
        causes += cause.all_invalid(f"{field}[{index}].ip", address, syntax.ipv4(address))
        for at, name in enumerate(alias.get("hostnames") or []):
            causes += cause.all_invalid(f"{field}[{index}].hostnames[{at}]", name, syntax.dns1123_subdomain(name))
    return causes


def host_port(field: str, port: JsonObject, *, host_network: bool) -> list[Cause]:
    """Return what is wrong with a port of the node; ``field`` is the port's."""
    number, address = port.get("hostPort") or 0, port.get("hostIP") or ""
    causes: list[Cause] = []
    if number and host_network and number != port.get("containerPort"):
        told = "must match `containerPort` when `hostNetwork` is true"
        causes.append(cause.invalid(f"{field}.hostPort", number, told))
    elif number:
        causes += cause.all_invalid(f"{field}.hostPort", number, syntax.port_number(number))
    if address:
        messages = syntax.ipv4(address)
        causes += cause.all_invalid(f"{field}.hostIP", address, messages)
        if not messages and ipaddress.IPv4Address(address).is_loopback and not host_network:
            told = "not supported by minik8s: ports of the node lead to pods from its other addresses only"
            causes.append(cause.forbidden(f"{field}.hostIP", told))
    return causes
