"""Pod Security Standards: whether a pod keeps the level a namespace asks for, in Kubernetes' words.

Pure. ``CHECKS`` is the whole policy: each check belongs to a level, holds from a version on, and may replace another
check of the lower level. Source: k8s.io/pod-security-admission ``policy/check_*.go`` and ``api/constants.go``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from minik8s_modules.api import cause
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject, dig, every_container, spec
from minik8s_modules.api.objects import annotations as annotations_of

PREFIX = "pod-security.kubernetes.io/"
LEVELS = ("privileged", "baseline", "restricted")
MODES = ("enforce", "audit", "warn")
LATEST = 1 << 16
_VERSION = re.compile(r"v1\.(0|[1-9][0-9]{0,3})")


class Policy(NamedTuple):
    """A level at a version; ``minor`` LATEST is the newest."""

    level: str
    minor: int

    def __str__(self) -> str:
        """Return ``level:version`` as messages name it."""
        return f"{self.level}:{'latest' if self.minor == LATEST else f'v1.{self.minor}'}"


def policy_of(labels: Mapping[str, str], mode: str) -> Policy:
    """Return what a namespace's labels ask for in ``mode``; a label that cannot be read counts as restricted:latest."""
    level = labels.get(PREFIX + mode, "privileged")
    minor = _minor(labels.get(f"{PREFIX}{mode}-version", "latest"))
    if level not in LEVELS or minor is None:
        return Policy("restricted", LATEST)
    return Policy(level, minor)


def _minor(text: str) -> int | None:
    if text == "latest":
        return LATEST
    match = _VERSION.fullmatch(text)
    return int(match[1]) if match else None


def label_causes(labels: Mapping[str, str]) -> list[Cause]:
    """Return what is wrong with the Pod Security labels of a namespace."""
    causes = []
    for mode in MODES:
        level, version = labels.get(PREFIX + mode), labels.get(f"{PREFIX}{mode}-version")
        if level is not None and level not in LEVELS:
            detail = f"must be one of {', '.join(LEVELS)}"
            causes.append(cause.invalid(f"metadata.labels[{PREFIX}{mode}]", level, detail))
        if version is not None and _minor(version) is None:
            detail = 'must be "latest" or "v1.x"'
            causes.append(cause.invalid(f"metadata.labels[{PREFIX}{mode}-version]", version, detail))
    return causes


def violations(policy: Policy, pod: JsonObject) -> list[str]:
    """Return what keeps the pod (or a template with the same shape) from the policy, [] when it keeps it."""
    active = [
        check
        for check in CHECKS
        if check.minor <= policy.minor and LEVELS.index(check.level) <= LEVELS.index(policy.level)
    ]
    replaced = {each for check in active for each in check.replaces}
    found = []
    for check in active:
        if check.name not in replaced:
            details = [detail for detail in check.find(pod, policy.minor) if detail]
            if details:
                found.append(f"{check.title} ({'; '.join(details)})")
    return found


# --- wording --------------------------------------------------------------------------------------


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _containers(names: list[str]) -> str:
    return f"{'container' if len(names) == 1 else 'containers'} {_quoted(names)}"


def _holders(pod: JsonObject, bad: Callable[[JsonObject], bool]) -> tuple[bool, list[str]]:
    """Return whether the pod's, and which containers', securityContext is bad."""
    context = spec(pod).get("securityContext") or {}
    return bad(context), [each["name"] for each, inner in _contexts(pod) if bad(inner)]


def _contexts(pod: JsonObject) -> Iterator[tuple[JsonObject, JsonObject]]:
    for _, _, container in every_container(pod):
        yield container, container.get("securityContext") or {}


def _subject(pod: bool, names: list[str]) -> str:  # noqa: FBT001 - what ``_holders`` returns
    return " and ".join(filter(None, ("pod" if pod else "", _containers(names) if names else "")))


def _must_not(pod: JsonObject, bad: Callable[[JsonObject], bool], what: str) -> Iterator[str]:
    subject = _subject(*_holders(pod, bad))
    if subject:
        yield f"{subject} must not set {what}"


# --- baseline -------------------------------------------------------------------------------------

_DEFAULT_CAPABILITIES = frozenset(
    {
        "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP",
        "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
    }
)  # fmt: skip
_SYSCTLS: Mapping[str, int] = {  # name: the minor version from which it counts as safe
    "kernel.shm_rmid_forced": 0, "net.ipv4.ip_local_port_range": 0, "net.ipv4.tcp_syncookies": 0,
    "net.ipv4.ping_group_range": 0, "net.ipv4.ip_unprivileged_port_start": 0, "net.ipv4.ip_local_reserved_ports": 27,
    "net.ipv4.tcp_keepalive_time": 29, "net.ipv4.tcp_fin_timeout": 29, "net.ipv4.tcp_keepalive_intvl": 29,
    "net.ipv4.tcp_keepalive_probes": 29, "net.ipv4.tcp_rmem": 32, "net.ipv4.tcp_wmem": 32,
}  # fmt: skip
_SELINUX_TYPES: Mapping[str, int] = {
    "": 0, "container_t": 0, "container_init_t": 0, "container_kvm_t": 0, "container_engine_t": 31,
}  # fmt: skip


def _host_process(pod: JsonObject, _minor: int) -> Iterator[str]:
    yield from _must_not(
        pod,
        lambda context: bool(dig(context, "windowsOptions", "hostProcess")),
        "securityContext.windowsOptions.hostProcess=true",
    )


def _host_namespaces(pod: JsonObject, _minor: int) -> Iterator[str]:
    found = [f"{field}=true" for field in ("hostNetwork", "hostPID", "hostIPC") if spec(pod).get(field)]
    yield ", ".join(found)


def _privileged(pod: JsonObject, _minor: int) -> Iterator[str]:
    names = [container["name"] for container, context in _contexts(pod) if context.get("privileged")]
    if names:
        yield f"{_containers(names)} must not set securityContext.privileged=true"


def _added(pod: JsonObject, allowed: frozenset[str]) -> Iterator[str]:
    names, added = [], set()
    for container, context in _contexts(pod):
        more = set(dig(context, "capabilities", "add") or []) - allowed
        if more:
            names.append(container["name"])
            added |= more
    if names:
        yield f"{_containers(names)} must not include {_quoted(sorted(added))} in securityContext.capabilities.add"


def _capabilities(pod: JsonObject, _minor: int) -> Iterator[str]:
    yield from _added(pod, _DEFAULT_CAPABILITIES)


def _host_paths(pod: JsonObject, _minor: int) -> Iterator[str]:
    names = [volume["name"] for volume in spec(pod).get("volumes") or [] if "hostPath" in volume]
    if names:
        yield f"{'volume' if len(names) == 1 else 'volumes'} {_quoted(names)}"


def _host_ports(pod: JsonObject, _minor: int) -> Iterator[str]:
    names, ports = [], set()
    for _, _, container in every_container(pod):
        found = {port["hostPort"] for port in container.get("ports") or [] if port.get("hostPort")}
        if found:
            names.append(container["name"])
            ports |= found
    if names:
        uses = "uses" if len(names) == 1 else "use"
        noun = "hostPort" if len(ports) == 1 else "hostPorts"
        yield f"{_containers(names)} {uses} {noun} {', '.join(map(str, sorted(ports)))}"


_APPARMOR = "container.apparmor.security.beta.kubernetes.io/"


def _apparmor(pod: JsonObject, _minor: int) -> Iterator[str]:
    allowed = ("runtime/default", "localhost/")
    odd = [
        f'{key}="{value}"'
        for key, value in sorted(annotations_of(pod).items())
        if key.startswith(_APPARMOR) and value and not value.startswith(allowed)
    ]
    yield f"{'annotation' if len(odd) == 1 else 'annotations'} {', '.join(odd)}" if odd else ""
    unconfined: Callable[[JsonObject], bool] = lambda context: _type(context, "appArmorProfile") == "Unconfined"  # noqa: E731
    yield from _must_not(pod, unconfined, 'AppArmor profile type to "Unconfined"')


def _type(context: JsonObject, profile: str) -> str:
    return str(dig(context, profile, "type") or "")


def _selinux(pod: JsonObject, minor: int) -> Iterator[str]:
    def odd(context: JsonObject) -> list[str]:
        options = context.get("seLinuxOptions") or {}
        kind = options.get("type") or ""
        allowed = _SELINUX_TYPES.get(kind, LATEST + 1) <= minor
        return [
            *([] if allowed else [f'type "{kind}"']),
            *(f"{field} may not be set" for field in ("user", "role") if options.get(field)),
        ]

    holders = _holders(pod, lambda context: bool(odd(context)))
    subject = _subject(*holders)
    if subject:
        contexts = [spec(pod).get("securityContext") or {}, *(context for _, context in _contexts(pod))]
        found = dict.fromkeys(each for context in contexts for each in odd(context))
        verb = "set" if holders[0] or len(holders[1]) > 1 else "sets"
        yield f"{subject} {verb} forbidden securityContext.seLinuxOptions: {'; '.join(found)}"


def _proc_mount(pod: JsonObject, _minor: int) -> Iterator[str]:
    odd = [(c["name"], s["procMount"]) for c, s in _contexts(pod) if s.get("procMount") not in {None, "", "Default"}]
    if odd:
        kinds = _quoted(sorted({kind for _, kind in odd}))
        yield f"{_containers([name for name, _ in odd])} must not set securityContext.procMount to {kinds}"


def _seccomp_baseline(pod: JsonObject, _minor: int) -> Iterator[str]:
    unconfined: Callable[[JsonObject], bool] = lambda context: _type(context, "seccompProfile") == "Unconfined"  # noqa: E731
    yield from _must_not(pod, unconfined, 'securityContext.seccompProfile.type to "Unconfined"')


def _sysctls(pod: JsonObject, minor: int) -> Iterator[str]:
    asked = [each.get("name", "") for each in dig(pod, "spec", "securityContext", "sysctls") or []]
    yield ", ".join(name for name in asked if _SYSCTLS.get(name, LATEST + 1) > minor)


# --- restricted -----------------------------------------------------------------------------------

_VOLUMES = frozenset(
    {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
)


def _volume_types(pod: JsonObject, _minor: int) -> Iterator[str]:
    odd = {
        volume["name"]: kind
        for volume in spec(pod).get("volumes") or []
        for kind in volume
        if kind != "name" and kind not in _VOLUMES
    }
    if odd:
        one, kinds = len(odd) == 1, sorted(set(odd.values()))
        noun = "restricted volume type" if len(kinds) == 1 else "restricted volume types"
        yield f"{'volume' if one else 'volumes'} {_quoted(odd)} {'uses' if one else 'use'} {noun} {_quoted(kinds)}"


def _escalation(pod: JsonObject, _minor: int) -> Iterator[str]:
    names = [c["name"] for c, context in _contexts(pod) if context.get("allowPrivilegeEscalation") is not False]
    if names:
        yield f"{_containers(names)} must set securityContext.allowPrivilegeEscalation=false"


def _non_root(pod: JsonObject, _minor: int) -> Iterator[str]:
    own = dig(pod, "spec", "securityContext", "runAsNonRoot")
    wrong = [c["name"] for c, context in _contexts(pod) if context.get("runAsNonRoot") is False]
    unset = [c["name"] for c, context in _contexts(pod) if context.get("runAsNonRoot") is None]
    if wrong or (own is False and unset):
        yield f"{_subject(own is False and bool(unset), wrong)} must not set securityContext.runAsNonRoot=false"
    elif not own and unset:
        yield f"pod or {_containers(unset)} must set securityContext.runAsNonRoot=true"


def _user(pod: JsonObject, _minor: int) -> Iterator[str]:
    yield from _must_not(pod, lambda context: _is_root(context.get("runAsUser")), "runAsUser=0")


def _is_root(value: Any) -> bool:
    return value is not None and int(value) == 0


def _seccomp_restricted(pod: JsonObject, _minor: int) -> Iterator[str]:
    good = {"RuntimeDefault", "Localhost"}
    own = _type(spec(pod).get("securityContext") or {}, "seccompProfile")
    kinds = {c["name"]: _type(context, "seccompProfile") for c, context in _contexts(pod)}
    wrong = [name for name, kind in kinds.items() if kind and kind not in good]
    unset = [name for name, kind in kinds.items() if not kind]
    detail = 'securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
    bad_pod = bool(own) and own not in good and bool(unset)
    if wrong or bad_pod:
        values = _quoted(sorted({kinds[name] for name in wrong} | ({own} if bad_pod else set())))
        yield f"{_subject(bad_pod, wrong)} must not set securityContext.seccompProfile.type to {values}"
    elif not own and unset:
        yield f"pod or {_containers(unset)} must set {detail}"


def _capabilities_restricted(pod: JsonObject, _minor: int) -> Iterator[str]:
    names = [c["name"] for c, context in _contexts(pod) if "ALL" not in (dig(context, "capabilities", "drop") or [])]
    if names:
        yield f'{_containers(names)} must set securityContext.capabilities.drop=["ALL"]'
    yield from _added(pod, frozenset({"NET_BIND_SERVICE"}))


class Check(NamedTuple):
    """One check: details of violations are found by ``find(pod, minor)``; ``title`` names it in messages."""

    name: str
    level: str
    minor: int
    title: str
    find: Callable[[JsonObject, int], Iterator[str]]
    replaces: tuple[str, ...] = ()


CHECKS: tuple[Check, ...] = (
    Check("hostProcess", "baseline", 0, "hostProcess", _host_process),
    Check("hostNamespaces", "baseline", 0, "host namespaces", _host_namespaces),
    Check("privileged", "baseline", 0, "privileged", _privileged),
    Check("capabilities", "baseline", 0, "non-default capabilities", _capabilities),
    Check("hostPathVolumes", "baseline", 0, "hostPath volumes", _host_paths),
    Check("hostPorts", "baseline", 0, "hostPort", _host_ports),
    Check("appArmorProfile", "baseline", 0, "forbidden AppArmor profile", _apparmor),
    Check("seLinuxOptions", "baseline", 0, "seLinuxOptions", _selinux),
    Check("procMount", "baseline", 0, "procMount", _proc_mount),
    Check("seccompProfile_baseline", "baseline", 19, "seccompProfile", _seccomp_baseline),
    Check("sysctls", "baseline", 0, "forbidden sysctls", _sysctls),
    Check("restrictedVolumes", "restricted", 0, "restricted volume types", _volume_types, ("hostPathVolumes",)),
    Check("allowPrivilegeEscalation", "restricted", 8, "allowPrivilegeEscalation != false", _escalation),
    Check("runAsNonRoot", "restricted", 0, "runAsNonRoot != true", _non_root),
    Check("runAsUser", "restricted", 23, "runAsUser=0", _user),
    Check(
        "seccompProfile_restricted", "restricted", 19, "seccompProfile", _seccomp_restricted,
        ("seccompProfile_baseline",),
    ),
    Check(
        "capabilities_restricted", "restricted", 22, "unrestricted capabilities", _capabilities_restricted,
        ("capabilities",),
    ),
)  # fmt: skip
