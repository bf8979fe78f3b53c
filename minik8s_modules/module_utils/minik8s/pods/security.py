"""What a container may do and which namespaces it shares: the ``security`` part of a container's entry.

Everything here is fixed when a container is made, so a container that exists is compared by one label that holds the
declared part as text; Docker's update cannot change any of it. What only the node knows is settled at creation: the
image's user (runAsNonRoot, a group without a user), profiles that lie on the node, and what its kernel can do.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Mapping
from typing import Any

from ..core import labels, memory_events
from ..core.digests import canonical
from ..core.faults import KeyFault
from ..core.files import read_bytes
from ..core.paths import relative
from ..core.schema import check_fields, check_texts, schema_of, with_defaults
from ..core.section import Context
from ..entries.containers import ContainerEntry, Security

ENTRY = schema_of(Security)
CHOICES = {"pid": ("", "host", "pod"), "ipc": ("", "host")}
OF_CONTAINER = "container/"
"""``pid`` of a debugging container: the process namespace of the pod's container of that name."""
LOCALHOST = "localhost/"
CONFIG_ERROR = "CreateContainerConfigError"
APPARMOR = "/sys/module/apparmor/parameters/enabled"
APPARMOR_PROFILES = "/sys/kernel/security/apparmor/profiles"
"""Those that are loaded, a line each: ``NAME (MODE)``; missing where securityfs is not mounted."""
OOM_SCORE = "/proc/self/oom_score_adj"
OOM_SCORES = range(-1000, 1001)  # proc(5)
LEAST_OOM_SCORE = -998  # kubelet's lowest for a pod's processes


def check_security(key: str, security: Mapping[str, Any]) -> None:
    """Raise KeyFault (InvalidEntry, InvalidName) for a ``security`` that cannot be used."""
    where = f"{key}.security"
    check_fields(where, security, ENTRY)
    for name in ("cap_add", "cap_drop", "selinux"):
        check_texts(f"{where}.{name}", security.get(name, []))
    for name, allowed in CHOICES.items():
        of_container = name == "pid" and security.get(name, "").startswith(OF_CONTAINER)
        if security.get(name, "") not in allowed and not of_container:
            raise KeyFault("InvalidEntry", f"{where}.{name} is {security[name]!r}; allowed are {allowed}")
    if not all(type(group) is int and group >= 0 for group in security.get("groups", [])):
        raise KeyFault("InvalidEntry", f"{where}.groups must hold numbers from 0")
    seccomp = security.get("seccomp", "")
    if seccomp.startswith(LOCALHOST):
        relative(seccomp.removeprefix(LOCALHOST))
    elif seccomp not in {"", "unconfined"}:
        raise KeyFault("InvalidEntry", f"{where}.seccomp is {seccomp!r}; allowed are '', unconfined, localhost/<file>")


def security_text(security: Mapping[str, Any]) -> str:
    """Return the declared part as the label that a container made from it carries; "" for nothing declared."""
    return canonical(dict(security)).decode() if security else ""


def user_of(entry: Mapping[str, Any], image_user: str) -> str:
    """Return Docker's user: the entry's, else the image's, with the entry's group where only that is given."""
    group = entry["security"].get("group")
    if entry["user"] or group is None:
        return str(entry["user"] or image_user)
    return f"{image_user.partition(':')[0] or 0}:{group}"


def check_non_root(entry: Mapping[str, Any], image_user: str) -> None:
    """Refuse a container that must not be root and would be, or may be (kubelet's verifyRunAsNonRoot).

    Raises:
        KeyFault: CreateContainerConfigError, in kubelet's words.
    """
    if not entry["security"].get("non_root") or entry["user"]:
        return
    pod = entry["pod"]
    where = f'(pod: "{pod["name"]}_{pod["namespace"]}({pod["uid"]})", container: {entry["name"]})'
    user = image_user.partition(":")[0]
    if user in {"", "0", "root"}:
        raise KeyFault(CONFIG_ERROR, f"container has runAsNonRoot and image will run as root {where}")
    if not re.fullmatch("[0-9]+", user):
        reason = f"image has non-numeric user ({user}), cannot verify user is non-root"
        raise KeyFault(CONFIG_ERROR, f"container has runAsNonRoot and {reason} {where}")


def host_config(security: Mapping[str, Any], sandbox: str, state_dir: str, *, privileged: bool) -> dict[str, Any]:
    """Return the part of Docker's HostConfig that ``security`` asks for.

    Raises:
        KeyFault: CreateContainerConfigError, a profile is not on this node or its kernel does not know it.
    """
    full = with_defaults(security, ENTRY)
    config: dict[str, Any] = {
        "CapAdd": list(full["cap_add"]),
        "CapDrop": list(full["cap_drop"]),
        "ReadonlyRootfs": full["read_only_root"],
        "GroupAdd": [str(group) for group in full["groups"]],
        "SecurityOpt": _options(full, state_dir, privileged=privileged),
        "IpcMode": "host" if full["ipc"] == "host" else f"container:{sandbox}",
    }
    if full["pid"] in {"host", "pod"}:
        config["PidMode"] = "host" if full["pid"] == "host" else f"container:{sandbox}"
    if full["unmasked_proc"]:
        config["MaskedPaths"], config["ReadonlyPaths"] = [], []
    return config


def _options(full: Mapping[str, Any], state_dir: str, *, privileged: bool) -> list[str]:
    options = ["no-new-privileges"] if full["no_new_privileges"] else []
    if full["seccomp"] and not privileged:
        options.append("seccomp=" + _seccomp(full["seccomp"], state_dir))
    if full["apparmor"]:
        options.append("apparmor=" + _apparmor(full["apparmor"]))
    return options + [f"label={each}" for each in full["selinux"]]


def _seccomp(profile: str, state_dir: str) -> str:
    if not profile.startswith(LOCALHOST):
        return profile
    path = os.path.join(state_dir, "seccomp", profile.removeprefix(LOCALHOST))
    data = read_bytes(path)
    if data is None:
        raise KeyFault(CONFIG_ERROR, f"cannot load seccomp profile {path}: it is not on this node; put it there")
    try:
        return json.dumps(json.loads(data))
    except ValueError as error:
        raise KeyFault(CONFIG_ERROR, f"cannot load seccomp profile {path}: {error}") from None


def _apparmor(profile: str) -> str:
    enabled = (read_bytes(APPARMOR) or b"").strip() == b"Y"
    if profile != "unconfined" and not enabled:
        raise KeyFault(CONFIG_ERROR, f"Cannot enforce AppArmor profile {profile}: AppArmor is not enabled on the host")
    loaded = (read_bytes(APPARMOR_PROFILES) or b"").decode(errors="replace").splitlines()
    # Docker would start the container, and fail with words that name no profile; its own is loaded by itself
    if loaded and profile not in {"unconfined", *(line.rpartition(" (")[0] for line in loaded)}:
        how = "load it with apparmor_parser"
        raise KeyFault(CONFIG_ERROR, f"Cannot enforce AppArmor profile {profile}: it is not loaded on this node; {how}")
    return profile


@functools.cache
def least_oom_score() -> int:
    """Return the lowest oom_score_adj this machine lets root give (0 in many containers and sandboxes), by trying."""
    try:
        with open(OOM_SCORE, "r+", encoding="ascii") as file:
            before = file.read().strip()
            file.seek(0)
            file.write(str(LEAST_OOM_SCORE))
            file.flush()
            file.seek(0)
            file.write(before)
    except OSError:
        return 0
    return OOM_SCORES.start


def adapted(entry: ContainerEntry) -> ContainerEntry:
    """Return a normalized container entry with the oom_score_adj that this machine can give."""
    return {**entry, "oom_score_adj": max(entry["oom_score_adj"], least_oom_score())}


def completed(context: Context, entry: Mapping[str, Any], sandbox: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return Docker's create request with what ``security`` asks for and with the cgroup of the pod.

    Raises:
        KeyFault: CreateContainerConfigError.
        DockerError: Docker did not tell of the image or the sandbox.
    """
    security = entry["security"]
    image_user = ""
    if security.get("non_root") or (security.get("group") is not None and not entry["user"]):
        image = context.docker.image(entry["image"]) or {}
        image_user = str((image.get("Config") or {}).get("User") or "")
    check_non_root(entry, image_user)
    more = host_config(security, sandbox, context.state_dir, privileged=entry["privileged"])
    if security.get("pid", "").startswith(OF_CONTAINER):
        more["PidMode"] = f"container:{_target(context, entry)}"
    more |= _of_sandbox(context, sandbox)
    if "CgroupParent" in more and memory_events.is_version_2():
        name = labels.container_name(entry["pod"], entry["name"], entry["attempt"])
        more["CgroupParent"] = memory_events.own_parent(more["CgroupParent"], name)
    if security:
        body["Labels"][labels.SECURITY] = security_text(security)
    return {**body, "User": user_of(entry, image_user), "HostConfig": {**body["HostConfig"], **more}}


def _target(context: Context, entry: Mapping[str, Any]) -> str:
    """Return the id of the running container that a debugging container looks at."""
    name = entry["security"]["pid"].removeprefix(OF_CONTAINER)
    marks = {labels.NODE: context.node, labels.POD_UID: entry["pod"]["uid"], labels.CONTAINER: name}
    for each in context.docker.containers(marks):
        if each["State"] == "running" and each["Labels"].get(labels.TYPE) != labels.SANDBOX:
            return str(each["Id"])
    raise KeyFault(CONFIG_ERROR, f"target container {name} does not run")


def _of_sandbox(context: Context, sandbox: str) -> dict[str, str]:
    """Return what a container has from its pause container: the pod's cgroup and runtime."""
    inspect = context.docker.inspect(sandbox)
    host = inspect["HostConfig"] if inspect else {}
    return {name: host[name] for name in ("CgroupParent", "Runtime") if host.get(name)}
