"""A pod's and its containers' securityContext, as entries say it: user, ``security``, sysctls, what is refused.

A container's own fields go before the pod's. What depends on the image's user or on the node's kernel is left to the
node (module_utils ``security.py``). Source: pkg/securitycontext/util.go, pkg/kubelet/kuberuntime/security_context.go.
"""

from __future__ import annotations

from typing import NamedTuple, cast

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.sysctls import is_safe
from minik8s_modules.module_utils.minik8s.entries.containers import Security

_SELINUX = ("user", "role", "type", "level")


class MustNotBeRoot(Exception):
    """A container that must not be root is declared to be."""


class Refusal(NamedTuple):
    """Why a node does not take a pod: ``status.reason`` and ``status.message`` of the failed pod."""

    reason: str
    message: str


def effective(pod: JsonObject, container: JsonObject) -> JsonObject:
    """Return the container's securityContext over the pod's."""
    shared = objects.spec(pod).get("securityContext") or {}
    own = {name: value for name, value in (container.get("securityContext") or {}).items() if value is not None}
    return {**shared, **own}


def user(pod: JsonObject, container: JsonObject) -> str | None:
    """Return Docker's user, None for the image's.

    Raises:
        MustNotBeRoot: runAsNonRoot with runAsUser 0.
    """
    context = effective(pod, container)
    number, group = context.get("runAsUser"), context.get("runAsGroup")
    if context.get("runAsNonRoot") and number == 0:
        where = f'(pod: "{objects.name(pod)}_{objects.namespace(pod)}({objects.uid(pod)})", container: '
        raise MustNotBeRoot(f"container's runAsUser breaks non-root policy {where}{container['name']})")
    if number is None:
        return None
    return str(number) if group is None else f"{number}:{group}"


def security(pod: JsonObject, container: JsonObject) -> Security:
    """Return the entry's ``security``: only what differs from what every container has."""
    spec, context = objects.spec(pod), effective(pod, container)
    capabilities = context.get("capabilities") or {}
    shared = spec.get("securityContext") or {}
    groups = [*(shared.get("supplementalGroups") or []), shared.get("fsGroup")]
    declared: Security = {
        "cap_add": capabilities.get("add") or [],
        "cap_drop": capabilities.get("drop") or [],
        "no_new_privileges": context.get("allowPrivilegeEscalation") is False,
        "read_only_root": bool(context.get("readOnlyRootFilesystem")),
        "seccomp": _profile(context.get("seccompProfile"), "localhost/"),
        "apparmor": _profile(context.get("appArmorProfile"), ""),
        "selinux": _labels(context.get("seLinuxOptions") or {}),
        "groups": [int(group) for group in dict.fromkeys(groups) if group is not None],
        "non_root": bool(context.get("runAsNonRoot")) and context.get("runAsUser") is None,
        "unmasked_proc": context.get("procMount") == "Unmasked",
        "pid": "host" if spec.get("hostPID") else "pod" if spec.get("shareProcessNamespace") else "",
        "ipc": "host" if spec.get("hostIPC") else "",
    }
    found = cast("Security", {name: value for name, value in declared.items() if value})
    if context.get("runAsUser") is None and context.get("runAsGroup") is not None:
        found["group"] = int(context["runAsGroup"])
    return found


def _profile(profile: JsonObject | None, prefix: str) -> str:
    """Return "" for the runtime's own profile, which Docker gives when none is asked for."""
    kind = (profile or {}).get("type") or "RuntimeDefault"
    if kind == "Localhost":
        return prefix + str((profile or {}).get("localhostProfile") or "")
    return "unconfined" if kind == "Unconfined" else ""


def _labels(options: JsonObject) -> list[str]:
    return [f"{name}:{options[name]}" for name in _SELINUX if options.get(name)]


def sysctls(pod: JsonObject) -> list[list[str]]:
    """Return the pod's kernel parameters, as the kernel names them."""
    given = objects.dig(pod, "spec", "securityContext", "sysctls") or []
    return [[str(one.get("name")).replace("/", "."), str(one.get("value"))] for one in given]


def refusal(pod: JsonObject) -> Refusal | None:
    """Return why the node does not take the pod: kernel parameters that are not safe (pkg/kubelet/sysctl)."""
    spec = objects.spec(pod)
    unsafe = [
        name
        for name, _ in sysctls(pod)
        if not is_safe(name, host_network=bool(spec.get("hostNetwork")), host_ipc=bool(spec.get("hostIPC")))
    ]
    if not unsafe:
        return None
    return Refusal("SysctlForbidden", f'forbidden sysctl: "{unsafe[0]}" not allowlisted')
