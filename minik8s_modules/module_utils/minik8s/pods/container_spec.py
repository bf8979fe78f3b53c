"""What one container entry means in Docker's words, and what a container that exists says in the same words. Pure.

Both sides become ``Facets``; where they differ a container has drifted. Values a container took from its image are
compared with that image (by the id it was made from), so a moved tag is no drift. Secret values are in no facet: a
label holds the declared HMACs and a keyed hash of the values, the latter is computed again over the real environment.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from ..core import labels
from ..core.digests import canonical
from ..core.faults import KeyFault
from ..core.messages import message_target
from ..core.paths import component, relative, split_key, volume_path
from ..core.schema import check_fields, check_texts, schema_of, with_defaults
from ..core.section import Facets
from ..entries.containers import ContainerEntry, DeviceEntry, MountEntry, Stop, TerminationMessage
from ..entries.identity import PodIdentity
from ..volumes import hostpath
from .cgroups import CPU_PERIOD_US, NO_MEMORY_LIMIT, Limits, same_memory
from .devices import counted_paths, paths_of
from .security import OOM_SCORES, check_security, security_text, user_of

POD = schema_of(PodIdentity)
ENTRY = schema_of(ContainerEntry)
MOUNT = schema_of(MountEntry)
MESSAGE = schema_of(TerminationMessage)
DEVICE = schema_of(DeviceEntry)
STOP = schema_of(Stop)
LOG_CONFIG = {"Type": "json-file", "Config": {"max-size": "10m", "max-file": "5"}}  # kubelet's containerLogMax*
DEFAULT_CPU_SHARES = 1024  # what the kernel means by 0
LIMIT_FACETS = frozenset({"cpu_shares", "cpu_quota_us", "memory_bytes"})


PRIVATE = "rprivate"
PROPAGATION = {"": PRIVATE, "HostToContainer": "rslave", "Bidirectional": "rshared"}


class Mount(NamedTuple):
    """A bind mount: ``source`` on the node (links resolved), ``root`` the volume it must lie in.

    ``bound`` is where a sub path is held fast for Docker, "" for a whole volume; ``propagation`` is Docker's word.
    """

    source: str
    target: str
    read_only: bool
    root: str
    bound: str = ""
    propagation: str = PRIVATE


def normalized(key: str, entry: Mapping[str, Any]) -> ContainerEntry:
    """Return the entry with defaults.

    Raises:
        KeyFault: InvalidEntry or InvalidName.
    """
    check_fields(key, entry, ENTRY)
    check_fields(f"{key}.pod", entry["pod"], POD)
    full = with_defaults(entry, ENTRY)
    if key != f"{full['pod']['uid']}/{full['name']}":
        raise KeyFault("InvalidEntry", f"key {key} is not <pod uid>/<container name> of its entry")
    if full["oom_score_adj"] not in OOM_SCORES:
        raise KeyFault("InvalidEntry", f"{key}.oom_score_adj is {full['oom_score_adj']}, not within -1000 to 1000")
    check_security(key, full["security"])
    for name, schema in (("stop", STOP), ("message", MESSAGE)):
        if full[name] is not None:
            check_fields(f"{key}.{name}", full[name], schema)
    _check_lists(key, full)
    full["mounts"] = [with_defaults(mount, MOUNT) for mount in full["mounts"]]
    return cast("ContainerEntry", full)


def _check_lists(key: str, full: Mapping[str, Any]) -> None:
    split_key(key)
    for name in ("entrypoint", "cmd"):
        check_texts(f"{key}.{name}", full[name] or [])
    check_texts(f"{key}.env", full["env"], 2)
    check_texts(f"{key}.links", full["links"], 2)
    check_texts(f"{key}.secret_env", full["secret_env"], 4)
    for row in full["secret_env"]:
        split_key(row[1])
        component(row[2])
    _check_devices(key, full["devices"])
    for mount in full["mounts"]:
        check_fields(f"{key}.mounts", mount, MOUNT)
        if not mount["target"].startswith("/"):
            raise KeyFault("InvalidEntry", f"{key}: mount target {mount['target']!r} is not an absolute path")
        if mount.get("host_type"):
            hostpath.check(key, mount["host_path"], mount["host_type"])
        if mount.get("sub_path"):
            relative(mount["sub_path"])


def _check_devices(key: str, devices: Any) -> None:
    for device in devices:
        where = f"{key}.devices"
        check_fields(where, device, DEVICE)
        for name in ("paths", "beside"):
            check_texts(f"{where}.{name}", device[name])
        if not all(path.startswith("/dev/") and plain(path) == path for path in (*device["paths"], *device["beside"])):
            raise KeyFault("InvalidEntry", f"{where} of {device['resource']} must be paths below /dev")
        if not device["paths"] or device["count"] < 1:
            raise KeyFault("InvalidEntry", f"{where} of {device['resource']} must be one path and one device at least")


def plain(path: str) -> str:
    """Return a path as Docker keeps it: without a slash at its end, or two in a row."""
    return "/" + os.path.normpath(path).lstrip("/") if path else path


def volume_root(state_dir: str, run_dir: str, uid: str, mount: MountEntry) -> str:
    """Return the path on the node of the volume a mount names."""
    if mount["kind"] == "hostPath":
        return plain(mount["host_path"])
    return volume_path(state_dir, run_dir, uid, mount["volume"], mount["kind"])


def secret_names(entry: ContainerEntry) -> set[str]:
    """Return the names of the environment variables that come from secrets."""
    return {row[0] for row in entry["secret_env"]}


def secret_label(declared: Any, values: Mapping[str, str], node_key: bytes) -> str:
    """Return the label that lets secret environment be compared without showing it."""
    digest = hashlib.sha256(canonical(declared)).hexdigest()[:16]
    return digest + ":" + hmac.new(node_key, canonical(dict(values)), "sha256").hexdigest()[:32]


def body_of(
    node: str, entry: ContainerEntry, sandbox: str, mounts: list[Mount], secrets: Mapping[str, str], node_key: bytes
) -> dict[str, Any]:
    """Return Docker's create request; ``entry`` is normalized, ``sandbox`` the id of its pause container."""
    own = labels.pod_labels(node, entry["pod"], entry["type"], entry["name"], entry["attempt"])
    marks = {**dict.fromkeys(labels.OF_SOME, ""), **own}
    if entry["secret_env"]:
        marks[labels.SECRET_ENV] = secret_label(entry["secret_env"], secrets, node_key)
    if entry["links"]:
        marks[labels.SERVICE_LINKS] = "true"
    marks[labels.DEVICES] = " ".join(counted_paths(entry))
    env = {**dict(entry["links"]), **dict(entry["env"]), **secrets}
    body: dict[str, Any] = {
        "Image": entry["image"],
        "Labels": marks,
        "Env": [f"{name}={value}" for name, value in env.items()],
        "User": entry["user"] or "",
        "Tty": entry["tty"],
        "OpenStdin": entry["stdin"],
        "StdinOnce": entry["stdin_once"],
        "HostConfig": _host_config(entry, sandbox, mounts),
    }
    if entry["entrypoint"]:
        body["Entrypoint"] = entry["entrypoint"]
    if entry["cmd"]:
        body["Cmd"] = entry["cmd"]
    if entry["working_dir"]:
        body["WorkingDir"] = entry["working_dir"]
    return body


def _host_config(entry: ContainerEntry, sandbox: str, mounts: list[Mount]) -> dict[str, Any]:
    return {
        "NetworkMode": f"container:{sandbox}",
        "IpcMode": f"container:{sandbox}",
        "Privileged": entry["privileged"],
        "RestartPolicy": {"Name": "no"},
        "LogConfig": LOG_CONFIG,
        "OomScoreAdj": entry["oom_score_adj"],
        "Mounts": [
            {
                "Type": "bind",
                "Source": each.bound or each.source,
                "Target": each.target,
                "ReadOnly": each.read_only,
                # unasked, Docker makes what holds its own folder rslave, and refuses it as rprivate
                **({"BindOptions": {"Propagation": each.propagation}} if each.propagation != PRIVATE else {}),
            }
            for each in mounts
        ],
        **limits_of(entry),
        **_devices(entry),
    }


def _devices(entry: ContainerEntry) -> dict[str, Any]:
    found = [
        {"PathOnHost": path, "PathInContainer": path, "CgroupPermissions": permissions}
        for path, permissions in paths_of(entry).items()
    ]
    return {"Devices": found} if found else {}


def _observed_devices(host: Mapping[str, Any]) -> Facets:
    found = {}
    for each in host.get("Devices") or []:
        path, inside = each["PathOnHost"], each["PathInContainer"]
        found[f"device {path}"] = each["CgroupPermissions"] + (f" at {inside}" if inside != path else "")
    return found


def limits_of(entry: ContainerEntry) -> dict[str, int]:
    """Return the cgroup limits in Docker's words; no swap beyond the memory limit, as Kubernetes has it."""
    limits = {"CpuShares": entry["cpu_shares"]}
    if entry["cpu_quota_us"]:
        limits.update(CpuQuota=entry["cpu_quota_us"], CpuPeriod=CPU_PERIOD_US)
    if entry["memory_bytes"]:
        limits.update(Memory=entry["memory_bytes"], MemorySwap=entry["memory_bytes"])
    return limits


def limits_update(entry: ContainerEntry) -> dict[str, int]:
    """Return the request that sets the limits on a running container, where Docker takes no 0 for "no limit"."""
    memory = entry["memory_bytes"] or NO_MEMORY_LIMIT
    return {
        "CpuShares": entry["cpu_shares"] or DEFAULT_CPU_SHARES,
        "CpuQuota": entry["cpu_quota_us"] or -1,
        "CpuPeriod": CPU_PERIOD_US,
        "Memory": memory,
        "MemorySwap": memory,
    }


def _env_facets(env: Mapping[str, str], secret: set[str], label: str) -> Facets:
    shown = {f"env {name}": repr(value) for name, value in sorted(env.items()) if name not in secret}
    if secret:
        shown["secret env"] = " ".join(sorted(secret)) + " " + label
    return shown


def _mount_facets(mounts: list[Mount]) -> Facets:
    return {f"mount {each.target}": " ".join((each.source, *_differences(each))) for each in mounts}


def _differences(mount: Mount) -> list[str]:
    """Return what a mount has that others have not."""
    return ["ro"] * mount.read_only + [mount.propagation] * (mount.propagation != PRIVATE)


def _words(words: list[str] | None) -> str:
    return repr(list(words or []))


def split_env(env: list[str] | None) -> dict[str, str]:
    """Return Docker's ``["K=V"]`` as a mapping."""
    return dict(each.partition("=")[::2] for each in env or [])


def declared_facets(
    entry: ContainerEntry, image: Mapping[str, Any], sandbox: str, mounts: list[Mount], label: str
) -> Facets:
    """Return what must be: ``image`` is the image's Config ({} unknown), ``label`` the secret label expected."""
    replaced = bool(entry["entrypoint"])
    entrypoint = entry["entrypoint"] or image.get("Entrypoint")
    command = entry["cmd"] or (None if replaced else image.get("Cmd"))
    env = {**split_env(image.get("Env")), **dict(entry["env"])}
    return {
        "image": entry["image"],
        "sandbox": sandbox[:12],
        "entrypoint": _words(entrypoint),
        "cmd": _words(command),
        "working_dir": entry["working_dir"] or image.get("WorkingDir") or "",
        "user": user_of(entry, str(image.get("User") or "")),
        "privileged": str(entry["privileged"]),
        "tty": str(entry["tty"]),
        "stdin": str(entry["stdin"]) + (" once" if entry["stdin_once"] else ""),
        "security": security_text(entry["security"]),
        "oom_score_adj": str(entry["oom_score_adj"]),
        **declared_limits(entry),
        **_env_facets(env, secret_names(entry), label),
        **_mount_facets(mounts),
        **{f"device {path}": permissions for path, permissions in paths_of(entry).items()},
    }


def observed_facets(
    inspect: Mapping[str, Any], entry: ContainerEntry, mounts: list[Mount], node_key: bytes, kernel: Limits
) -> Facets:
    """Return what a container is; ``entry`` only tells which variables are secret, ``mounts`` which links count.

    ``kernel`` holds the limits of its cgroup, which go before what Docker remembers.
    """
    config, host = inspect["Config"], inspect["HostConfig"]
    env, secret = split_env(config.get("Env")), secret_names(entry)
    digest = config["Labels"].get(labels.SECRET_ENV, "").partition(":")[0]
    values = {name: env[name] for name in secret if name in env}
    hashed = hmac.new(node_key, canonical(values), "sha256").hexdigest()[:32] if secret else ""
    return {
        "image": config["Image"],
        "sandbox": host["NetworkMode"].partition(":")[2][:12],
        "entrypoint": _words(config.get("Entrypoint")),
        "cmd": _words(config.get("Cmd")),
        "working_dir": config.get("WorkingDir") or "",
        "user": config.get("User") or "",
        "privileged": str(host["Privileged"]),
        "tty": str(config["Tty"]),
        "stdin": str(config["OpenStdin"]) + (" once" if config.get("StdinOnce") else ""),
        "security": config["Labels"].get(labels.SECURITY, ""),
        "oom_score_adj": str(host.get("OomScoreAdj") or 0),
        **limit_facets(host, entry, kernel),
        **_env_facets(env, secret, f"{digest}:{hashed}"),
        **_mount_facets(_observed_mounts(inspect, {each.target: each for each in mounts})),
        **_observed_devices(host),
    }


def declared_limits(entry: ContainerEntry) -> Facets:
    """Return the limits a container must have."""
    return {
        "cpu_shares": str(entry["cpu_shares"] or DEFAULT_CPU_SHARES),
        "cpu_quota_us": str(entry["cpu_quota_us"]),
        "memory_bytes": str(entry["memory_bytes"]),
    }


def limit_facets(host: Mapping[str, Any], entry: ContainerEntry, kernel: Limits) -> Facets:
    """Return the limits a container has: those of its cgroup, where the kernel tells them."""
    shares = host["CpuShares"] or DEFAULT_CPU_SHARES
    quota_us = max(0, host["CpuQuota"])
    memory = host["Memory"] if host["Memory"] < NO_MEMORY_LIMIT else 0
    if kernel.cpu_shares is not None and shares == (entry["cpu_shares"] or DEFAULT_CPU_SHARES):
        shares = kernel.cpu_shares
    if kernel.cpu_quota_us is not None:
        quota_us = kernel.cpu_quota_us
    if kernel.memory_bytes is not None and not same_memory(memory, kernel.memory_bytes):
        memory = kernel.memory_bytes
    return {"cpu_shares": str(shares), "cpu_quota_us": str(quota_us), "memory_bytes": str(memory)}


def _observed_mounts(inspect: Mapping[str, Any], declared: Mapping[str, Mount]) -> list[Mount]:
    found = []
    message = message_target(inspect["Config"]["Labels"])
    for each in inspect.get("Mounts") or []:
        if each["Type"] != "bind" or each["Destination"] == message:
            continue  # anonymous volumes of the image; the file of its last words
        source, wanted = each["Source"], declared.get(each["Destination"])
        if wanted and wanted.bound and (source == wanted.bound or _within(source, wanted.root)):
            source = wanted.source  # live updates may move links on the way to it, not the mount
        chosen = wanted is not None and wanted.propagation != PRIVATE  # else Docker's own choice stands
        propagation = (each.get("Propagation") or PRIVATE) if chosen else PRIVATE
        found.append(Mount(source, each["Destination"], not each["RW"], "", propagation=propagation))
    return sorted(found, key=lambda mount: mount.target)


def _within(path: str, root: str) -> bool:
    return path.startswith(root.rstrip(os.sep) + os.sep)
