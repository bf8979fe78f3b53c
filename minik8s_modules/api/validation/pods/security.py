"""Validation of what pods and containers may do: securityContext, sysctls, host aliases, ports of the node.

Source: kubernetes ``pkg/apis/core/validation/validation.go`` (``validatePodSpecSecurityContext``,
``ValidateSecurityContext``, ``validateSysctls``, ``ValidateHostAliases``).
"""

from __future__ import annotations

from minik8s_modules.api import cause, syntax
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject, every_container
from minik8s_modules.api.pods import sysctls
from minik8s_modules.api.validation import check

_PROFILES = ("Localhost", "RuntimeDefault", "Unconfined")


def pod_security(pod: JsonObject) -> list[Cause]:
    """Return what is wrong with the pod's securityContext and the namespaces it shares."""
    declared = pod.get("spec") or {}
    context, field = declared.get("securityContext") or {}, "spec.securityContext"
    causes = _CONTEXT(field, context)
    causes += _GROUPS(f"{field}.supplementalGroups", context.get("supplementalGroups"))
    causes += _sysctls(f"{field}.sysctls", context.get("sysctls") or [])
    causes += strict_groups(pod)
    if declared.get("shareProcessNamespace") and declared.get("hostPID"):
        detail = "ShareProcessNamespace and HostPID cannot both be enabled"
        causes.append(cause.invalid("spec.shareProcessNamespace", True, detail))  # noqa: FBT003 - the value
    return causes + _ALIASES("spec.hostAliases", declared.get("hostAliases"))


def container_security(field: str, context: JsonObject) -> list[Cause]:
    """Return what is wrong with a container's securityContext."""
    causes = _CONTEXT(field, context)
    if context.get("allowPrivilegeEscalation") is not False:
        return causes
    if context.get("privileged"):
        detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
        causes.append(cause.invalid(field, "", detail))
    if {"SYS_ADMIN", "CAP_SYS_ADMIN"} & set((context.get("capabilities") or {}).get("add") or []):
        detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
        causes.append(cause.invalid(field, "", detail))
    return causes


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
        detail = f"can only be set when {called} type is Localhost"
        return [] if local is None else [cause.invalid(at, local, detail)]
    if not local:
        return [cause.required(at, f"must be set when {called} type is Localhost")]
    return cause.local_path(at, local) if called == "seccomp" else _profile_name(at, local)


def _profile_name(at: str, name: str) -> list[Cause]:
    return [cause.invalid(at, name, "must not contain white space")] if name.split() != [name] else []


_ID = check.between(0, 2**31 - 1)
_CONTEXT = check.fields(
    (("runAsUser", "runAsGroup", "fsGroup"), _ID),
    ("fsGroupChangePolicy", check.if_given(check.one_of("Always", "OnRootMismatch"))),
    ("supplementalGroupsPolicy", check.if_given(check.one_of("Merge", "Strict"))),
    ("procMount", check.if_given(check.one_of("Default", "Unmasked"))),
    ("seccompProfile", lambda at, profile: _profile(at, profile, "seccomp")),
    ("appArmorProfile", lambda at, profile: _profile(at, profile, "AppArmor")),
)


def _sysctls(field: str, given: list[JsonObject]) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, one in enumerate(given):
        at, name = f"{field}[{index}].name", str(one.get("name") or "")
        if not name:
            causes.append(cause.required(at))
        elif len(name) > sysctls.LONGEST_NAME or not sysctls.NAME.fullmatch(name):
            detail = f"must have at most {sysctls.LONGEST_NAME} characters and match regex ^{sysctls.NAME.pattern}$"
            causes.append(cause.invalid(at, name, detail))
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
    detail = (
        "not supported by minik8s without runAsUser and runAsGroup: Docker adds groups that the image gives the user"
    )
    return [cause.forbidden("spec.securityContext.supplementalGroupsPolicy", detail)]


_GROUPS = check.each(_ID)
_ALIASES = check.each(
    check.fields(("ip", check.syntax_of(syntax.ip_address)), ("hostnames", check.each(check.subdomain)))
)


def host_port(field: str, port: JsonObject, *, host_network: bool) -> list[Cause]:
    """Return what is wrong with a port of the node; ``field`` is the port's."""
    number, address = port.get("hostPort") or 0, port.get("hostIP") or ""
    causes: list[Cause] = []
    if number and host_network and number != port.get("containerPort"):
        detail = "must match `containerPort` when `hostNetwork` is true"
        causes.append(cause.invalid(f"{field}.hostPort", number, detail))
    elif number:
        causes += cause.all_invalid(f"{field}.hostPort", number, syntax.port_number(number))
    if address:
        causes += cause.all_invalid(f"{field}.hostIP", address, _node_address(address))
    return causes


def _node_address(address: str) -> list[str]:
    """Return what keeps an address from being one of a node that can lead to a Pod, or all of a family."""
    if found := syntax.ip(address):
        return found
    if syntax.shortest_ip(address) == "::1":
        return ["leads to no Pod, as nothing comes back to ::1; use 127.0.0.1"]
    return syntax.non_special_ipv6(address) if ":" in address and syntax.shortest_ip(address) != "::" else []
